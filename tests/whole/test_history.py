"""Pipelines with history against a serial run written by hand; what resumes, what changes nothing, what is told about it."""

import itertools

import numpy as np
import pytest
from many_runs import job, run_many
from serial_history import Rules, Serial
from small_graphs import dense_adjacency, dense_features, small_graph

from hpcgcn.graph.data import TRAIN
from hpcgcn.graph.partition import partition_graph
from hpcgcn.graph.store import write_graph, write_partition

pytestmark = [pytest.mark.mpi_skip, pytest.mark.timeout(600)]

EPOCHS, LAYERS, CHUNKS = 12, 5, 8
PRECISE = {"backend": "reference", "dtype": "float64", "epochs": EPOCHS, "dropout": 0.5, "lr": 0.02, "seed": 5, "hidden": 8,
           "layers": LAYERS, "method": "gnnpipe"}
# name: (the rules by hand, the settings that should mean the same)
CASES = {
    "paper": (Rules(), {}),
    "short": (Rules(hold=3), {"history_hold": 3}),
    "every": (Rules(hold=1), {"history_hold": 1}),
    "ordered": (Rules(hold=3, shuffle=False), {"history_hold": 3, "shuffle_chunks": False}),
    "stale": (Rules(hold=3, zero_gradients=False), {"history_hold": 3, "history_gradients": "stale"}),
    "none-of-them": (Rules(hold=1, shuffle=False, zero_gradients=False),
                     {"history_hold": 1, "shuffle_chunks": False, "history_gradients": "stale"}),
}
MODELS = ("gcnii", "resgcn")
GRIDS = [(1, 1), (2, 1), (3, 1), (4, 1), (2, 2), (4, 2), (4, 4)]       # (ranks, ways)


def graph_of(kind: str):
    return small_graph(60, 200, 6, 4, seed=7, directed=kind == "directed")


def chunk_of(graph, ways: int) -> np.ndarray:
    """The part of every node in a file of CHUNKS parts is way by way: part p is chunk p % (CHUNKS / ways) of its way."""
    return partition_graph(graph, CHUNKS, "random", seed=1) % (CHUNKS // ways)


def serial_losses(kind: str, model: str, ways: int, rules: Rules) -> list[float]:
    graph = graph_of(kind)
    labels = np.where(graph.split[0] == TRAIN, graph.labels, -1)
    run = Serial(dense_adjacency(graph), dense_features(graph), labels, chunk_of(graph, ways), model, PRECISE["hidden"], LAYERS,
                 graph.n_classes, PRECISE["dropout"], PRECISE["lr"], PRECISE["seed"], rules)
    return [run.epoch(t) for t in range(EPOCHS)]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    for kind in ("undirected", "directed"):
        graph = graph_of(kind)
        write_graph(folder / f"{kind}.h5", graph)
        write_partition(folder / f"{kind}-{CHUNKS}.h5", graph, partition_graph(graph, CHUNKS, "random", seed=1), settings={})
    return folder


@pytest.mark.parametrize("n_ranks, ways", GRIDS)
def test_equals_the_serial_reference(n_ranks, ways, sources, tmp_path):
    wanted = [(name, model, "undirected") for name, model in itertools.product(CASES, MODELS)]
    wanted += [("short", "gcnii", "directed"), ("stale", "resgcn", "directed")]
    jobs = [job(".".join(key), sources / f"{key[2]}-{CHUNKS}.h5", model=key[1], chunks=CHUNKS, ways=ways,
                **PRECISE | CASES[key[0]][1]) for key in wanted]
    found = run_many(n_ranks, jobs, tmp_path)
    for key in wanted:
        run = found[".".join(key)]
        assert "losses" in run, run
        np.testing.assert_allclose(run["losses"], serial_losses(key[2], key[1], ways, CASES[key[0]][0]), rtol=1e-9, err_msg=str(key))
    losses = {tuple(found[f"{name}.gcnii.undirected"]["losses"]) for name in CASES}
    assert len(losses) == len(CASES), "two settings that should differ gave the same losses"
