"""The methods benchmark's tables, from run folders with known contents."""

import argparse
import json
import os
import sys

import pytest
from test_report import make_run

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "benchmarks"))
pytest.importorskip("matplotlib",
                    reason="matplotlib draws the benchmark's plots and is not installed")
import methods
import methods_tables

from hpcgcn.exchange.presets import PRESETS


def lower_scores(path, points):
    """Take `points` off every validation and test accuracy of a run."""
    metrics = os.path.join(path, "metrics.csv")
    head, *rows = [line.split(",") for line in open(metrics).read().splitlines()]
    for row in rows:
        for name in ("val", "test"):
            at = head.index(name)
            row[at] = row[at] and str(float(row[at]) - points / 100)
    open(metrics, "w").write("\n".join(",".join(row) for row in [head, *rows]) + "\n")


@pytest.fixture
def results(tmp_path):
    """vanilla, a method that loses 0.3 points with a tenth of the bytes, one that loses 2, and one
    that fails."""
    jobs = []
    for label, sent, loss in (("vanilla", 1000, 0), ("thrifty", 100, 0.3), ("lossy", 100, 2.0),
                              ("wild", 100, 0)):
        for seed in range(2):
            path = make_run(tmp_path / "runs" / f"{label}-{seed}", sent=sent)
            lower_scores(path, loss + seed)
            if label == "wild" and seed == 1:
                failure = methods_tables.failure_of(str(tmp_path / "runs" / f"{label}-{seed}"))
                open(failure, "w").write(json.dumps({"message": "the loss is nan in epoch 3"}))
            settings = {"output": str(tmp_path / "runs"), "name": f"{label}-{seed}"}
            jobs.append({"label": label, "seed": seed, "settings": settings})
    args = argparse.Namespace(target=0.99, ranks=4, seeds=2, methods=None,
                              results=str(tmp_path / "results"))
    methods_tables.write_results(args, jobs, {"model": "gcn"}, "some/graph.h5")
    return tmp_path / "results"


def test_numbers(results):
    found = json.loads((results / "methods-graph.json").read_text())
    vanilla, thrifty, lossy, wild = found["methods"]
    assert (vanilla["test"] == pytest.approx(77.5)
            and vanilla["deviation"] == pytest.approx(0.5 ** 0.5))
    assert (thrifty["difference"] == pytest.approx(-0.3)
            and thrifty["difference_error"] == pytest.approx(0, abs=1e-9))
    assert thrifty["bytes_per_epoch"] == 100 and vanilla["bytes_per_epoch"] == 1000
    assert vanilla["epochs_per_second"] == pytest.approx(10)
    # vanilla's two seeds end at 78 and 77, 4 points above the evaluation before; the lossy one
    # stays 2 points below.
    assert found["targets"] == pytest.approx([0.99 * 78, 0.99 * 77])
    assert (vanilla["reached"] == 2 and vanilla["epochs_to_target"] == 20
            and vanilla["bytes_to_target"] == 20000)
    assert lossy["reached"] == 0 and lossy["seconds_to_target"] is None
    assert wild["completed"] == 1 and "nan" in wild["failed"]


def test_table_says_who_is_within_the_limit_and_who_failed(results):
    lines = (results / "methods-graph.md").read_text().splitlines()
    rows = {line.split("|")[1].strip(): line for line in lines if line.startswith("| ")}
    assert ("| yes |" in rows["thrifty"] and "| **no** |" in rows["lossy"]
            and "not reached" in rows["lossy"])
    assert "failed in 1 of 2 runs: the loss is nan" in rows["wild"]
    assert len({line.count("|") for line in rows.values()}) == 1
    assert (results / "methods-graph.png").read_bytes().startswith(b"\x89PNG")


def test_every_preset_of_the_family_is_a_variant_and_vanilla_is_always_there():
    everything = methods.variants(None)
    assert {name for name, preset in PRESETS.items()
            if "parallel" not in preset.settings} <= set(everything)
    assert list(methods.variants(["bns"])) == ["vanilla", "bns"]
    with pytest.raises(SystemExit, match="no variant 'bsn'"):
        methods.variants(["bsn"])


def test_variants_are_settings_that_can_be_trained():
    from hpcgcn.config import make_config
    for _, shared in methods.GRAPHS.values():
        for own in methods.variants(None).values():
            make_config(shared | own)
