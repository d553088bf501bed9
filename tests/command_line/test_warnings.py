"""The end of a run warns by itself where stale or compressed rows may have cost accuracy."""

import pytest

from hpcgcn.config import Config
from hpcgcn.train.exchange_errors import HIGH_DRIFT, Counts
from hpcgcn.train.messages import closing_lines


def summary(errors: dict, best=0.8, last=0.79) -> dict:
    return {"stopped_early": False, "epochs": 100, "ranks": 1, "hosts": ["a"], "roles": {"both": 1},
            "by_rank": [{"rank": 0, "compute_seconds": 1.0}], "seconds_per_epoch": 0.1,
            "bytes_sent": 10, "bytes_network": 0, "compression": 1.0, "at_chance": False,
            "best": {"epoch": 50, "val": best, "test": 0.7}, "final": {"val": last},
            "peak_memory_bytes": {"largest_rank": 1}, "exchange_errors": errors}


def counts(stale: int, drifted: int, synchronous: int = 0) -> dict:
    found = Counts()
    for k in range(stale + synchronous):
        drift = 2 * HIGH_DRIFT if k < drifted or k >= stale else 0.1
        found.add(1.0, drift, 0.0)
        found.use(drift, synchronous=k >= stale)
    return found.facts(lossy=False)


@pytest.mark.parametrize("stale, drifted, synchronous, warned", [
    (100, 30, 0, True), (100, 5, 0, False), (100, 0, 0, False), (0, 0, 100, False),
    (100, 0, 50, False), (20, 10, 80, True), (3, 1, 97, False)])
def test_a_high_drift_in_many_stale_epochs_is_told(stale, drifted, synchronous, warned):
    facts = counts(stale, drifted, synchronous)
    assert (facts["stale_uses"], facts["stale_uses_with_high_drift"]) == (stale, drifted)
    text = closing_lines("runs/x", summary({"backward_2": facts}), Config())
    assert ("warning: stale rows drifted" in text) == warned
    if warned:
        assert f"{drifted / stale:.0%} at hop 2 gradients" in text and "--stale-error" in text


@pytest.mark.parametrize("errors, last, warned", [
    ({"forward_1": counts(10, 0)}, 0.7, True), ({"forward_1": counts(10, 0)}, 0.79, False),
    ({}, 0.7, False), ({"forward_1": counts(10, 0)}, None, False)])
def test_a_score_that_fell_is_told_where_exchanges_may_be_the_reason(errors, last, warned):
    text = closing_lines("runs/x", summary(errors, last=last), Config())
    assert ("validation score fell from 0.8000 (epoch 50) to 0.7000" in text) == warned
