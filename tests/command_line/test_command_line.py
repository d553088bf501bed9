"""The commands as a user runs them."""

import csv
import json
import subprocess
import sys

import h5py
import numpy as np
import pytest
from launch import launch, rank_environment

from hpcgcn.cli import COMMANDS
from hpcgcn.config import FIELDS
from hpcgcn.graph.generate import generate_sbm
from hpcgcn.graph.store import write_graph


def hpcgcn(*args, cwd=None, timeout=120):
    return subprocess.run([sys.executable, "-m", "hpcgcn", *map(str, args)], cwd=cwd,
                          capture_output=True, text=True, timeout=timeout, env=rank_environment())


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    """A graph, and a finished run on two ranks."""
    folder = tmp_path_factory.mktemp("cli")
    write_graph(folder / "g.h5", generate_sbm(400, 8, 12, 4, seed=1))
    launch(2, ["hpcgcn", "train", "g.h5", "--epochs", "30", "--hidden", "16", "--name", "first",
               "--eval-every", "10"], cwd=folder).check()
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_help_touches_neither_mpi_nor_gpu(command):
    module = f"hpcgcn.cli.{command}"
    code = ("import sys; from hpcgcn.cli import main\n"
            f"try: main(['{command}', '--help'])\n"
            "except SystemExit as end: assert not end.code\n"
            "assert not {'mpi4py.MPI', 'cupy', 'torch', 'h5py'} & set(sys.modules), "
            "sorted(sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{module}: {done.stderr}"
    assert done.stdout.startswith("usage:")


def test_config_prints_every_key_and_reads_it_back(tmp_path):
    text = hpcgcn("config").stdout
    for name in FIELDS:
        assert f"\n{name} = " in "\n" + text
    (tmp_path / "all.toml").write_text(text)
    from hpcgcn.config import make_config
    assert make_config(toml_path=str(tmp_path / "all.toml")) == make_config()


def test_methods_lists_every_preset():
    from hpcgcn.exchange.presets import PRESETS
    shown = json.loads(hpcgcn("methods", "--json").stdout)
    assert list(shown) == list(PRESETS)
    assert all(name in hpcgcn("methods").stdout for name in PRESETS)


def test_doctor_says_that_training_can_run():
    done = hpcgcn("doctor")
    assert done.returncode == 0 and "training can run" in done.stdout
    assert json.loads(hpcgcn("doctor", "--json").stdout)["can_run"]


def test_doctor_shows_a_forced_instruction_set(monkeypatch):
    monkeypatch.setenv("HPCGCN_ISA", "plain")
    assert "instruction set plain (forced by HPCGCN_ISA)" in hpcgcn("doctor").stdout
    monkeypatch.setenv("HPCGCN_ISA", "mmx")
    done = hpcgcn("doctor")
    assert done.returncode != 0 and "HPCGCN_ISA=mmx is not a level" in done.stdout


def test_run_folder_holds_what_is_promised(run_folder):
    first = run_folder / "runs" / "first"
    rows = list(csv.DictReader((first / "metrics.csv").open()))
    assert [int(r["epoch"]) for r in rows] == list(range(1, 31))
    promised = ["epoch", "loss", "train", "val", "test", "seconds", "wait_seconds", "bytes_sent",
                "bytes_received"]
    assert list(rows[0])[:9] == promised
    assert [bool(r["val"]) for r in rows] == [(e + 1) % 10 == 0 for e in range(30)]
    assert all(r["bytes_sent"] == r["bytes_received"] != "0" for r in rows)
    summary = json.loads((first / "summary.json").read_text())
    assert summary["epochs"] == 30 and not summary["stopped_early"] and summary["ranks"] == 2
    assert summary["peak_memory_bytes"]["largest_rank"] > 0
    assert "hidden = 16" in (first / "config.toml").read_text()


def test_evaluate_agrees_with_training_on_any_rank_count(run_folder):
    last = list(csv.DictReader((run_folder / "runs/first/metrics.csv").open()))[-1]
    for ranks in (1, 3):
        done = launch(ranks, ["hpcgcn", "evaluate", "runs/first", "g.h5", "--which", "last",
                              "--json"], cwd=run_folder).check()
        found = json.loads(done.stdout)
        assert found["metric"] == "accuracy"
        assert found["test"] == pytest.approx(float(last["test"]), abs=1e-6)


def test_predictions_are_in_global_order_on_any_rank_count(run_folder):
    arrays = []
    for ranks in (1, 3):
        out = run_folder / f"logits-{ranks}.h5"
        launch(ranks, ["hpcgcn", "predict", "runs/first", "g.h5", "-o", out, "--what", "logits"],
               cwd=run_folder).check()
        arrays.append(h5py.File(out)["logits"][...])
    assert arrays[0].shape == (400, 4)
    np.testing.assert_allclose(arrays[0], arrays[1], rtol=1e-4, atol=1e-5)
    launch(2, ["hpcgcn", "predict", "runs/first", "g.h5", "-o", "c.h5"], cwd=run_folder).check()
    np.testing.assert_array_equal(h5py.File(run_folder / "c.h5")["classes"][...],
                                  arrays[0].argmax(axis=1))
    launch(2, ["hpcgcn", "predict", "runs/first", "g.h5", "-o", "e.h5", "--what", "embeddings",
               "--layer", "2"], cwd=run_folder).check()
    assert h5py.File(run_folder / "e.h5")["embeddings"].shape == (400, 16)
    assert "predictions" in hpcgcn("info", run_folder / "e.h5").stdout


def test_finished_run_says_so_and_ends_well(run_folder):
    args = ["hpcgcn", "train", "g.h5", "--epochs", "30", "--hidden", "16", "--name", "first",
            "--resume", "auto"]
    done = launch(2, args, cwd=run_folder).check()
    assert "nothing to do" in done.stdout


def test_results_are_never_overwritten_unasked(run_folder):
    args = ["hpcgcn", "train", "g.h5", "--epochs", "1", "--hidden", "16", "--name", "first"]
    done = launch(2, args, cwd=run_folder)
    assert done.code == 2 and "--overwrite" in done.stderr
    assert len((run_folder / "runs/first/metrics.csv").read_text().splitlines()) == 31


def test_library_does_the_same_with_a_communicator(run_folder, monkeypatch):
    from mpi4py import MPI

    import hpcgcn as package
    monkeypatch.chdir(run_folder)
    config = package.make_config({"epochs": 30, "hidden": 16, "eval_every": 10, "name": "library",
                                  "quiet": True})
    result = package.train_model("g.h5", config, MPI.COMM_SELF)
    first = json.loads((run_folder / "runs/first/summary.json").read_text())
    assert result.exit_code == 0
    assert result.summary["final"]["test"] == pytest.approx(first["final"]["test"], abs=0.02)
    model = package.open_model("runs/library", "g.h5", comm=MPI.COMM_SELF)
    assert model.scores()["test"] == pytest.approx(result.summary["best"]["test"], abs=1e-6)
