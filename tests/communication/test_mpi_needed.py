"""Which rows training needs: distances from the loss, on any number of ranks, against a walk over
single edges."""

import numpy as np
import pytest
from parts import KINDS, awkward, cut

from hpcgcn.graph import csr
from hpcgcn.graph.data import TRAIN
from hpcgcn.nn.models import MODELS, Shape
from hpcgcn.parallel.needed import NeededRows, count_hops, distances, distances_within

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(60)]


def walked(graph, trains, n_hops) -> np.ndarray:
    """Hop by hop over every edge."""
    distance = [0 if train else n_hops + 1 for train in trains]
    for now in range(n_hops):
        for reader in [v for v in range(graph.n_nodes) if distance[v] == now]:
            for read in graph.indices[graph.indptr[reader]:graph.indptr[reader + 1]]:
                distance[read] = min(distance[read], now + 1)
    return np.array(distance)


@pytest.mark.parametrize("share", [0.03, 0.5, 1.0])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_distances_are_those_of_a_walk(comm, kind, directed, share, monkeypatch):
    monkeypatch.setattr(csr, "BLOCK_EDGES", 3)
    graph, owner = awkward(kind, comm.size, directed=directed, train_share=share)
    part = cut(graph, owner, comm.rank, comm.size)
    for n_hops in (0, 1, 2, 5, 300):
        wanted = walked(graph, graph.split[0] == TRAIN, n_hops)
        np.testing.assert_array_equal(distances(comm, part, n_hops), wanted[part.original_ids])
        np.testing.assert_array_equal(
            distances_within(graph.indptr, graph.indices, graph.split[0] == TRAIN, n_hops), wanted)


def test_needed_rows_of_each_block(comm):
    rows = NeededRows(np.array([0, 2, 1, 3, 0]), n_hops=2)
    assert [rows.count(block) for block in range(3)] == [4, 3, 2]
    np.testing.assert_array_equal(rows.mask(1), [True, False, True, False, True])
    everything = NeededRows(rows.distance, 2, all_rows=True)
    assert [everything.count(block) for block in range(3)] == [5, 5, 5]


def test_nodes_without_a_label_are_not_in_the_loss(comm):
    graph, owner = awkward("random", comm.size)
    graph.labels[::2] = -1
    part = cut(graph, owner, comm.rank, comm.size)
    found = distances(comm, part, 0)
    np.testing.assert_array_equal(found == 0, (part.split == TRAIN) & (part.labels >= 0))


def test_hops_are_counted_from_the_model(comm):
    for model in MODELS:
        for precomputed in (False, MODELS[model].precomputes_input):
            shape = Shape(model, 5, 3, 4, 8)
            assert count_hops(shape, sparse=False, precomputed=precomputed) == 4 - precomputed
    assert count_hops(Shape("gcn", 5, 3, 4, 8, linear_layers=2), sparse=True,
                      precomputed=False) == 2
