"""The best parameters are kept beside the last: evaluate, predict and weights export use them,
unless told otherwise, also after a resume."""

import json

import h5py
import numpy as np
import pytest
from safetensors.numpy import load_file
from small_graphs import small_graph

from hpcgcn.cli import main
from hpcgcn.graph.data import VAL
from hpcgcn.graph.store import read_graph, write_graph


@pytest.fixture
def run(tmp_path):
    """A run that gets worse after its best epoch: it was resumed in between."""
    write_graph(tmp_path / "g.h5", small_graph(n_nodes=60, n_edges=100, seed=3))
    flags = ["--hidden", "16", "--layers", "2", "--dropout", "0", "--lr", "0.1", "--eval-every",
             "1", "--name", "r", "--output", str(tmp_path), "--quiet"]
    for epochs, resume in (("30", "never"), ("60", "must")):
        assert main(["train", str(tmp_path / "g.h5"), "--epochs", epochs, "--resume", resume,
                     *flags]) == 0
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    assert summary["best"]["epoch"] < 60 and summary["best"]["val"] > summary["final"]["val"]
    return tmp_path / "r", tmp_path / "g.h5", summary


def which(choice):
    return [] if choice == "best" else ["--which", choice]


@pytest.mark.parametrize("choice", ["best", "last"])
def test_evaluate_and_predict_use_them(tmp_path, run, capsys, choice):
    folder, path, summary = run
    wanted = summary["best"]["val"] if choice == "best" else summary["final"]["val"]
    capsys.readouterr()
    assert main(["evaluate", str(folder), str(path), "--json", *which(choice)]) == 0
    assert json.loads(capsys.readouterr().out)["val"] == pytest.approx(wanted, abs=1e-12)
    assert main(["predict", str(folder), str(path), "-o", str(tmp_path / "p.h5"),
                 *which(choice)]) == 0
    graph = read_graph(path)
    with h5py.File(tmp_path / "p.h5") as file:
        right = file["classes"][...] == graph.labels
    assert right[graph.split[0] == VAL].mean() == pytest.approx(wanted, abs=1e-12)


def test_exported_weights_are_those_of_the_best_epoch(tmp_path, run):
    folder, path, summary = run
    for choice in ("best", "last"):
        assert main(["weights", "export", str(folder), "-o",
                     str(tmp_path / f"{choice}.safetensors"), "--to", "hpcgcn",
                     *which(choice)]) == 0
    # A run that ends at the best epoch has these parameters as its last.
    assert main(["train", str(path), "--epochs", str(summary["best"]["epoch"]), "--hidden", "16",
                 "--layers", "2", "--dropout", "0", "--lr", "0.1", "--eval-every", "1", "--name",
                 "short", "--output", str(tmp_path), "--quiet"]) == 0
    assert main(["weights", "export", str(tmp_path / "short"), "-o",
                 str(tmp_path / "short.safetensors"), "--to", "hpcgcn", "--which", "last"]) == 0
    best, last, short = (load_file(tmp_path / f"{name}.safetensors")
                         for name in ("best", "last", "short"))
    for name in best:
        np.testing.assert_array_equal(best[name], short[name])
    assert any((best[name] != last[name]).any() for name in best)
