"""hpcgcn as a library: results, messages and callbacks are the same on every rank."""

import logging
import subprocess
import sys

import pytest
from graphs import random_graph
from launch import launch, rank_environment
from mpi4py import MPI

import hpcgcn
from hpcgcn import Config, EpochReport, train_model, write_graph
from hpcgcn.errors import ConfigError
from hpcgcn.train.callback import CallbackError

SCRIPT = """
import sys
from mpi4py import MPI
from hpcgcn import train_model
from hpcgcn.errors import HpcgcnError
world, method = MPI.COMM_WORLD, sys.argv[1]

seen = []
result = train_model("g.h5", {"epochs": 4, "eval_every": 2, "hidden": 8, "layers": 4,
                              "model": "gcnii",
                              "method": method}, callback=seen.append)
everyone = world.allgather((result, [(e.epoch, e.epochs, e.loss, e.scores) for e in seen]))
assert all(found == everyone[0] for found in everyone), everyone
assert [e.epoch for e in seen] == [1, 2, 3, 4]
assert [bool(e.scores) for e in seen] == [False, True] * 2
assert result.summary["bytes_sent"] > 0 and len(result.summary["by_rank"]) == 2
assert all(rank["compute_seconds"] > 0 for rank in result.summary["by_rank"])

def fails(report):
    if report.epoch == 2 and world.rank == 1:
        raise KeyError("mine")
try:
    train_model("g.h5", {"epochs": 4}, callback=fails)
    raise AssertionError("the failure of a callback went unnoticed")
except HpcgcnError as error:
    told = "the callback failed after epoch 2: KeyError: 'mine' [rank 1 on host"
    assert told in str(error), error
    assert isinstance(error.__cause__, KeyError) == (world.rank == 1)
"""


@pytest.fixture
def graph_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_graph("g.h5", random_graph())
    return tmp_path


@pytest.mark.parametrize("method", ["overlap", "gnnpipe", "mixgcn"])
def test_every_rank_gets_the_same_result_and_reports(graph_file, method):
    (graph_file / "script.py").write_text(SCRIPT)
    launch(2, [sys.executable, "script.py", method], cwd=graph_file).check()


@pytest.mark.parametrize("asked", [False, True])
def test_a_library_prints_nothing_unasked(graph_file, asked):
    code = (f"import hpcgcn\nif {asked}: hpcgcn.show_messages()\n"
            "hpcgcn.train_model('g.h5', {'epochs': 2, 'eval_every': 1})")
    done = launch(1, [sys.executable, "-c", code], cwd=graph_file).check()
    assert (done.stdout.count("epoch  "), done.stderr) == (2 if asked else 0, "")
    assert bool(done.stdout) == asked


def test_messages_go_to_the_logger(graph_file, caplog):
    with caplog.at_level(logging.INFO, "hpcgcn"):
        result = train_model("g.h5", {"epochs": 2, "eval_every": 1}, MPI.COMM_SELF)
    lines = [r.getMessage() for r in caplog.records if r.name == "hpcgcn.progress"]
    assert lines[0].startswith("epoch     1/2  loss ") and f"results: {result.folder}" in lines[-1]


def test_quiet_leaves_the_summary(graph_file, caplog):
    with caplog.at_level(logging.INFO, "hpcgcn"):
        train_model("g.h5", {"epochs": 2, "eval_every": 1, "quiet": True}, MPI.COMM_SELF)
    assert len(caplog.records) == 1 and "results: " in caplog.text


def test_a_failing_callback_is_named_and_its_exception_kept(graph_file):
    def fails(report: EpochReport):
        raise ZeroDivisionError("no")
    with pytest.raises(CallbackError,
                       match="the callback failed after epoch 1: ZeroDivisionError: no"):
        train_model("g.h5", Config(epochs=3), MPI.COMM_SELF, callback=fails)


def test_settings_may_be_a_dictionary_and_are_checked(graph_file):
    with pytest.raises(ConfigError, match="did you mean 'epochs'"):
        train_model("g.h5", {"epoch": 3}, MPI.COMM_SELF)


def test_all_that_is_public_can_be_imported_and_has_hints():
    for name in hpcgcn.__all__:
        assert getattr(hpcgcn, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        assert hpcgcn.nothing
    assert set(hpcgcn.__all__) <= set(dir(hpcgcn))


def test_types_are_shipped():
    code = ("import importlib.resources as r; "
            "print(r.files('hpcgcn').joinpath('py.typed').is_file())")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env=rank_environment())
    assert done.stdout == "True\n"
    with open(f"{hpcgcn.__path__[0]}/../setup.cfg") as file:
        assert "hpcgcn = py.typed" in file.read()


@pytest.mark.parametrize("given, used", [(None, "4"), ("20", "20")])
def test_threads_of_openblas_do_not_spin_unless_somebody_wants_them_to(given, used):
    """What it reads when NumPy is loaded is set before that."""
    name = "OPENBLAS_THREAD_TIMEOUT"
    environment = {key: value for key, value in rank_environment().items() if key != name}
    environment |= {name: given} if given else {}
    code = f"import os, sys, hpcgcn; print('numpy' in sys.modules, os.environ['{name}'])"
    done = subprocess.run([sys.executable, "-c", code], env=environment, text=True,
                          capture_output=True, check=True)
    assert done.stdout.split() == ["False", used]
