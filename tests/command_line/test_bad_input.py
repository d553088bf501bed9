"""A user's mistake gets one clear message from rank 0, exit code 2, no traceback, on any number of
ranks."""

import os

import numpy as np
import pytest
from launch import launch

from hpcgcn.graph.generate import generate_grid, generate_sbm
from hpcgcn.graph.store import write_graph, write_partition

RANKS = 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    graph = generate_sbm(200, 6, 8, 3, seed=0)
    write_graph(folder / "g.h5", graph)
    write_partition(folder / "three.h5", graph, (np.arange(200) % 3).astype(np.int32), settings={})
    data = (folder / "g.h5").read_bytes()
    (folder / "cut.h5").write_bytes(data[:len(data) // 2])
    (folder / "text.h5").write_text("this is not HDF5")
    (folder / "bad.toml").write_text("hiden = 3\n")
    (folder / "broken.toml").write_text("hidden = = 3\n")
    (folder / "deep.toml").write_text(f"hidden = {'[' * 5000}{']' * 5000}\n")
    os.mkfifo(folder / "pipe.toml")

    unlabelled = generate_sbm(50, 4, 8, 3, seed=0)
    unlabelled.split[...] = 3
    write_graph(folder / "no-train.h5", unlabelled)
    return folder


CASES = {
    "missing": (["missing.h5"], "no such file"),
    "truncated": (["cut.h5"], "cut.h5"),
    "not hdf5": (["text.h5"], "not an HDF5 file"),
    "other number of parts": (["three.h5"], "start 3 ranks"),
    "no training nodes": (["no-train.h5"], "no labelled training nodes"),
    "unknown flag": (["g.h5", "--hiden", "3"], "did you mean --hidden"),
    "unknown key": (["g.h5", "--config", "bad.toml"], "did you mean 'hidden'"),
    "broken toml": (["g.h5", "--config", "broken.toml"], "not valid TOML"),
    "deep toml": (["g.h5", "--config", "deep.toml"], "brackets within brackets"),
    "pipe for toml": (["g.h5", "--config", "pipe.toml"], "it is no file"),
    "missing toml": (["g.h5", "--config", "none.toml"], "no configuration file"),
    "unknown model": (["g.h5", "--model", "gcm"], "did you mean 'gcn'"),
    "bad bound": (["g.h5", "--dropout", "1"], "less than 1"),
    "bad rate": (["g.h5", "--codec", "bits", "--rate", "sometimes"], "is not a schedule"),
    "combination": (["g.h5", "--smooth-features", "0.9"], "needs stale features"),
    "budget too small": (["g.h5", "--codec", "subset", "--byte-budget", "10", "--epochs", "5"],
                         "raise the budget"),
    "float64 on native": (["g.h5", "--dtype", "float64", "--backend", "native"],
                          "backend = 'reference'"),
    "nothing to resume": (["g.h5", "--resume", "--name", "never-run"], "there is no run"),
    "bad name": (["g.h5", "--name", "../out"], "without slashes"),
    "diverges": (["g.h5", "--lr", "1e30", "--model", "gcn", "--method", "pipegcn", "--epochs", "20",
                  "--overwrite", "--name", "diverges"], "training diverged"),
    "no such split": (["g.h5", "--split-index", "4"], "split"),
    "linear layers": (["g.h5", "--linear-layers", "3"], "leaves no layer"),
}


@pytest.mark.parametrize("case", CASES)
def test_one_clear_message(folder, case):
    args, expected = CASES[case]
    done = launch(RANKS, ["hpcgcn", "train", *args], cwd=folder, timeout=60)
    said = [line for line in done.stderr.splitlines() if line.startswith("hpcgcn: ")]
    assert done.code == 2, done.stderr
    assert len(said) == 1 and expected in said[0], done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_folder_that_cannot_be_written(folder):
    (folder / "locked").mkdir(mode=0o500)
    done = launch(RANKS, ["hpcgcn", "train", "g.h5", "--output", "locked"], cwd=folder, timeout=60)
    assert done.code == 2 and "cannot write" in done.stderr


def test_awkward_graphs_just_train(folder):
    """Disconnected, isolated nodes, one class, a rank without training nodes: no mistakes at
    all."""
    graph = generate_grid(64, 4, 5, 2, seed=0)
    graph.labels[...] = 0
    graph.n_classes = 1
    graph.split[...] = 2
    graph.split[0, :8] = 1
    graph.indices, graph.indptr = graph.indices[:0], np.zeros_like(graph.indptr)
    write_graph(folder / "isolated.h5", graph)
    write_partition(folder / "isolated-2.h5", graph, (np.arange(64) // 32).astype(np.int32),
                    settings={})
    for extra in ([], ["--inductive"], ["--method", "pipegcn-gf"], ["--method", "sylvie-a"]):
        launch(RANKS, ["hpcgcn", "train", "isolated-2.h5", "--epochs", "3", *extra], cwd=folder,
               timeout=60).check()
