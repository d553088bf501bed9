"""Label propagation on the ranks of a job: sound parts, as good as those of one process."""

import numpy as np
import pytest

from hpcgcn.errors import ConfigError
from hpcgcn.graph.data import TEST, TRAIN
from hpcgcn.graph.generate import generate_grid, generate_rmat, generate_sbm
from hpcgcn.graph.partition import partition_graph, statistics, task_of
from hpcgcn.graph.partitioners import PARTITIONERS
from hpcgcn.graph.partitioners.choose import choose_parts
from hpcgcn.graph.partitioners.views import RankRows
from hpcgcn.mpi.ranks import Ranks

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120),
              pytest.mark.skipif(bool(PARTITIONERS["labels"].missing()), reason="no kernels")]

GRAPHS = {"communities": generate_sbm(2000, 12, 2, 8, seed=0, homophily=0.9),
          "grid": generate_grid(2000, 4, 1, 2, 0), "hubs": generate_rmat(1500, 12, 1, 2, 0)}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("balance", ["nodes", "edges", "train"])
def test_parts_of_ranks(comm, name, balance):
    graph = GRAPHS[name]
    if balance == "train":
        graph.split[0] = np.where(graph.labels == 0, TRAIN, TEST)
    task = task_of(graph, 5, "labels", "cut", balance, seed=3, ranks=Ranks(comm))
    parts, again = (choose_parts(task, "labels").parts for _ in range(2))
    if comm.rank:
        assert len(parts) == 0
        return
    np.testing.assert_array_equal(parts, again)
    costs = statistics(graph, parts)
    alone = statistics(graph, partition_graph(graph, 5, "streaming", "cut", balance, seed=3))
    assert set(parts) == set(range(5)) and costs["balance"][balance] < 1.12
    # Training nodes in one band of a grid: to spread them costs edges, whatever the order.
    assert costs["edge_cut"] < (2 if balance == "train" else 1.3) * alone["edge_cut"]


def test_ranks_know_the_labels_of_their_neighbours(comm):
    """After sharing, each entry reads the label that its owner gave."""
    graph = GRAPHS["hubs"]
    view = RankRows(task_of(graph, 5, ranks=Ranks(comm)))
    truth = np.random.default_rng(0).integers(0, 99, (2, graph.n_nodes)).astype(np.int32)
    truth[1, ::3] = truth[0, ::3]                    # only what changes is sent
    labels = view.first_labels()
    for now in truth:
        labels[:view.n_owned] = now[view.start:view.start + view.n_owned]
        view.share(labels)
        for first, indptr, columns in view.blocks():
            rows = slice(view.start + first, view.start + first + len(indptr) - 1)
            entries = graph.indices[graph.indptr[rows.start]:graph.indptr[rows.stop]]
            np.testing.assert_array_equal(labels[columns], now[entries])
    everything = view.gathered(labels[:view.n_owned])
    np.testing.assert_array_equal(everything, truth[1] if comm.rank == 0 else [])


def test_all_ranks_refuse_together(comm):
    task = task_of(GRAPHS["grid"], 5, "labels", memory=10, ranks=Ranks(comm))
    with pytest.raises(ConfigError, match="'labels' would take"):
        choose_parts(task, "labels")


def test_other_methods_run_on_rank_0_alone(comm):
    chosen = choose_parts(task_of(GRAPHS["grid"], 5, "metis", "cut", ranks=Ranks(comm)), "metis")
    expected = partition_graph(GRAPHS["grid"], 5, "metis", "cut") if comm.rank == 0 else []
    np.testing.assert_array_equal(chosen.parts, expected)
