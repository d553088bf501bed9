"""Fixtures of the tests that damage files of ours."""

import numpy as np
import pytest
from graphs import random_graph

from hpcgcn.cli import main
from hpcgcn.graph.store import write_graph, write_partition
from hpcgcn.train import checkpoint


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """One sound file of every kind; {kind: path}."""
    folder = tmp_path_factory.mktemp("sound")
    graph = random_graph(
        node_names=np.array([f"n{k}" for k in range(41)]), extra={"class_names": ["a", "b", "c"]}
    )
    write_graph(folder / "g.h5", graph)
    write_partition(folder / "q.h5", graph, np.zeros(41, int), settings={})
    assert (
        main(
            [
                "train",
                str(folder / "g.h5"),
                "--epochs",
                "2",
                "--hidden",
                "4",
                "--checkpoint-every",
                "1",
                "--output",
                str(folder),
                "--name",
                "run",
                "--quiet",
            ]
        )
        == 0
    )
    assert (
        main(["predict", str(folder / "run"), str(folder / "g.h5"), "-o", str(folder / "p.h5")])
        == 0
    )
    exchange = folder / "exchange-0-of-1.h5"
    state = {
        "ids": np.arange(5),
        "n_averaged": np.array([3]),
        "received": np.ones((5, 4), np.float32),
    }
    checkpoint._write_exchanges(str(exchange), 2, {"1.forward": state}, "")
    return {
        "graph": folder / "g.h5",
        "partition": folder / "q.h5",
        "predictions": folder / "p.h5",
        "exchange": exchange,
        "model": folder / "run" / "checkpoints" / "epoch-000002" / "model.h5",
    }


@pytest.fixture
def no_waiting(monkeypatch):
    """Without a launcher there is none that would lose a message."""
    monkeypatch.setattr("hpcgcn.cli.LAUNCHER_SECONDS", 0)
    monkeypatch.setattr("hpcgcn.mpi.world.LAUNCHER_SECONDS", 0)
