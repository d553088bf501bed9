"""Outputs that are no numbers are refused, and what made them is named."""

import numpy as np
import pytest
from graphs import random_graph
from launch import launch
from mpi4py import MPI

from hpcgcn import open_model, predict
from hpcgcn.errors import DivergedError
from hpcgcn.graph.store import write_graph
from hpcgcn.train.scores import scores


@pytest.fixture
def folder(tmp_path):
    write_graph(tmp_path / "g.h5", random_graph())
    graph = random_graph()
    graph.features *= 3e4
    write_graph(tmp_path / "large.h5", graph)
    return tmp_path


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("labels", [np.zeros(4, np.int32), np.ones((4, 3), np.uint8)])
def test_scores_refuse_what_is_no_number(labels, value):
    logits = np.zeros((4, 3), np.float32)
    assert scores(MPI.COMM_SELF, logits, labels, np.ones(4, np.uint8))["train"] in (0.0, 1.0)
    logits[2, 1] = value
    with pytest.raises(DivergedError, match="outputs for 1 nodes are NaN or infinite"):
        scores(MPI.COMM_SELF, logits, labels, np.ones(4, np.uint8))


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_that_diverged_in_its_last_step_has_no_scores(folder, ranks):
    done = launch(ranks, ["hpcgcn", "train", "g.h5", "--lr", "1e38", "--epochs", "1"], cwd=folder)
    assert done.code == 2 and "accuracy" not in done.stdout
    assert done.stderr.count("are NaN or infinite: training diverged; lower lr") == 1


def test_predictions_of_a_diverged_model_are_refused(folder):
    args = ["hpcgcn", "train", "g.h5", "--epochs", "1", "--name", "x"]
    launch(1, args, cwd=folder).check()
    for kind in ("classes", "logits"):
        model = open_model(folder / "runs/x", folder / "g.h5", comm=MPI.COMM_SELF)
        model.parameters.value[...] = np.nan
        with pytest.raises(DivergedError, match="NaN or infinite"):
            predict(model, folder / "p.h5", kind)
        with pytest.raises(DivergedError, match="NaN or infinite"):
            model.scores()
        model.close()
        assert not (folder / "p.h5").exists()


@pytest.mark.parametrize("codec, code", [("fp16", 2), ("bf16", 0), ("fp32", 0)])
def test_overflow_of_a_codec_is_named(folder, codec, code):
    done = launch(2, ["hpcgcn", "train", "large.h5", "--codec", codec, "--epochs", "2", "--norm",
                      "no", "--layers", "4"], cwd=folder)
    assert done.code == code, done.stderr
    assert ("codec = 'fp16' overflowed in epoch 1: rows to exchange hold numbers above 65504"
            in done.stderr) == (codec == "fp16")
    assert "codec = 'bf16' has the range of float32" in done.stderr or codec != "fp16"


def test_divergence_is_not_blamed_on_the_codec(folder):
    done = launch(2, ["hpcgcn", "train", "g.h5", "--codec", "fp16", "--lr", "1e38", "--epochs", "5",
                      "--eval-every", "0"], cwd=folder)
    assert done.code == 2 and "training diverged; lower lr (now 1e+38)" in done.stderr
    assert "overflowed" not in done.stderr


@pytest.mark.parametrize("ranks,method", [(1, "overlap"), (2, "overlap"), (2, "gnnpipe")])
def test_parameters_that_could_not_be_read_back_are_not_saved(folder, ranks, method):
    """Without evaluation nobody looks at the outputs of the last step; parameters are looked at."""
    for lr, code in (("1e5", 0), ("1e7", 2)):
        done = launch(ranks, ["hpcgcn", "train", "g.h5", "--lr", lr, "--epochs", "1",
                              "--eval-every", "0", "--name", lr, "--method", method], cwd=folder)
        assert done.code == code, done.stderr
    assert "parameters after epoch 1 are NaN or above 1e+06: training diverged" in done.stderr
    assert not any((folder / "runs" / "1e7" / "checkpoints").glob("*"))


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_no_warning_of_numpy_reaches_the_user(folder, backend):
    done = launch(1, ["hpcgcn", "train", "g.h5", "--lr", "1e20", "--epochs", "5", "--backend",
                      backend, "--layers", "4"], cwd=folder)
    assert done.code == 2 and "training diverged" in done.stderr
    assert "RuntimeWarning" not in done.stderr and len(done.stderr.splitlines()) == 1
