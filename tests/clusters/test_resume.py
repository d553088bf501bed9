"""Resumed runs end bit for bit like uninterrupted ones, for every preset; the same seed gives the
same bits."""

import numpy as np
import pytest
from many_runs import job, run_many
from same_losses import assert_same_losses

from hpcgcn.exchange.presets import PRESETS
from hpcgcn.graph.generate import generate_sbm
from hpcgcn.graph.store import write_graph

pytestmark = [pytest.mark.mpi_skip, pytest.mark.timeout(600)]

EPOCHS, DIED_AFTER = 12, 7
# Settings that add state of their own to a checkpoint: feedback, residuals, averages, an adaptive
# rate.
SPECIAL = {
    "feedback": {"method": "pipegcn", "codec": "bits", "rate": "step:2@0,4@6",
                 "error_feedback": True},
    "feedback-sync": {"method": "overlap", "codec": "4bit", "error_feedback": True},
    "residual": {"method": "pipegcn-gf", "codec": "4bit", "residual": True, "refresh_every": 5},
    "residual-subset": {"method": "overlap", "codec": "subset", "rate": "4", "residual": True},
    "corrected": {"method": "pipegcn-gf", "smooth_correction": True, "smooth_features": 0.5},
    "plateau": {"method": "overlap", "codec": "bits", "rate": "plateau:1:32:1", "lr": 0.0001},
    "budget": {"method": "varco", "byte_budget": "400KB"},
    "optimiser": {"method": "overlap", "lr_schedule": "cosine", "warmup": 9, "clip": 0.5,
                  "weight_decay": 0.01},
    "inductive": {"method": "pipegcn", "inductive": True},
    "stale-error": {"method": "pipegcn", "staleness": "1", "stale_error": "0.3,gradients=0.6",
                    "lr": 0.03},
    "by-hop": {"staleness": "1,last=0", "codec": "bits,last=bf16", "rate": "plateau:8:2:1,1=4"},
    "gcnii": {"method": "pipegcn-gf", "model": "gcnii"},
    "resgcn": {"method": "sylvie-a", "model": "resgcn"},
}
# run a second time, from the start
TWICE = ("overlap", "pipegcn-gf", "sylvie-a", "varco", "bns", "residual")


def settings_of(name: str) -> dict:
    if name not in PRESETS:
        return SPECIAL[name]
    # Without a bound, so that each preset is stale in its own way from the start.
    bounded = "stale_error" in PRESETS[name].settings
    return {"method": name} | ({"stale_error": "inf"} if bounded else {})


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp("graph") / "g.h5"
    write_graph(path, generate_sbm(160, 8, 12, 5, seed=2))
    return path


@pytest.fixture(scope="module")
def runs(graph, tmp_path_factory):
    """Results on 3 ranks of each straight run, of some once more, and of one that died after 7
    epochs and was resumed."""
    folder, jobs = tmp_path_factory.mktemp("resume"), []
    for name in [*PRESETS, *SPECIAL]:
        settings = {"epochs": EPOCHS, "checkpoint_every": DIED_AFTER,
                    "eval_every": 3} | settings_of(name)
        jobs += [job(f"{name}.again", graph, **settings, keep=1)] if name in TWICE else []
        jobs += [job(f"{name}.straight", graph, **settings),
                 job(f"{name}.resumed", graph, **settings | {"name": f"{name}.straight"},
                     resume="must", forget_after=DIED_AFTER)]
    return folder, run_many(3, jobs, folder)


@pytest.mark.parametrize("name", [*PRESETS, *SPECIAL])
def test_resumed_equals_uninterrupted(runs, name):
    _, results = runs
    straight = results[f"{name}.straight"]
    assert "losses" in straight, straight
    assert len(straight["losses"]) == EPOCHS
    for other in [results[f"{name}.resumed"],
                  *([results[f"{name}.again"]] if name in TWICE else [])]:
        assert other["losses"] == straight["losses"]
        assert other["digest"] == straight["digest"]
        for column in ("epoch", "loss", "train", "val", "test", "bytes_sent", "bytes_received",
                       "rate"):
            assert [row[column] for row in other["rows"]] == [row[column]
                                                              for row in straight["rows"]], column
        assert other["summary"]["best"] == straight["summary"]["best"]
        measured = [column for column in straight["rows"][0]
                    if column.startswith(("change_", "drift_", "coding_error_", "stale_share"))]
        for column in measured:
            assert [row[column] for row in other["rows"]] == [row[column]
                                                              for row in straight["rows"]], column


def test_an_error_bound_makes_some_epochs_synchronous(runs):
    _, results = runs
    shares = {float(row["stale_share"]) for row in results["stale-error.straight"]["rows"]}
    assert len(shares) > 1, "else a resumed run could not show that it decides alike"


def test_presets_differ(runs):
    _, results = runs
    kinds = {name: tuple(results[f"{name}.straight"]["losses"]) for name in PRESETS}
    assert kinds.pop(
        "vanilla") == kinds["overlap"], "the two synchronous exact methods are the same arithmetic"
    assert len(set(kinds.values())) == len(kinds)


def test_another_rank_count_goes_on_sensibly(runs, graph):
    folder, results = runs
    names = [name for name in [*PRESETS, *SPECIAL] if "budget" not in name]
    jobs = [job(f"{name}.fewer", graph, epochs=EPOCHS + 5,
                **settings_of(name) | {"name": f"{name}.straight"}, resume="must",
                checkpoint_every=DIED_AFTER, eval_every=0) for name in names]
    for label, run in run_many(2, jobs, folder).items():
        name = label.split(".")[0]
        before = results[f"{name}.straight"]["losses"]
        assert run["losses"][:EPOCHS] == before, label
        assert len(run["losses"]) == EPOCHS + 5
        # The step from the last epoch of 3 ranks to the first of 2 is like any other.
        largest = np.abs(np.diff(before)).max()
        assert abs(run["losses"][EPOCHS] - before[-1]) < 3 * largest + 0.05, label


def test_the_last_epoch_continues_exactly_where_no_state_is_lost(graph, tmp_path):
    settings = {"epochs": EPOCHS, "checkpoint_every": DIED_AFTER, "method": "overlap"}
    on_two = run_many(2, [job("a", graph, **settings)], tmp_path)["a"]
    on_three = run_many(3, [job("a", graph, **settings, resume="must", forget_after=DIED_AFTER)],
                        tmp_path)["a"]
    assert on_three["losses"][:DIED_AFTER] == on_two["losses"][:DIED_AFTER]
    assert_same_losses(on_three, on_two, "three ranks after two", equal_until=DIED_AFTER)
