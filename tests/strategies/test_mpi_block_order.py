"""The order of rows for ranks with roles: it keeps neighbours in few blocks, and changes nothing
but the numbers of nodes."""

import numpy as np
import pytest
from parts import cut

from hpcgcn.graph.contents import reordered
from hpcgcn.graph.csr import row_numbers
from hpcgcn.graph.generate import generate_grid
from hpcgcn.parallel.features.block_order import JUDGED_BLOCKS, block_order, blocks_read
from hpcgcn.parallel.features.whole_graph import build_whole

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(60)]


def shuffled_grid():
    graph = generate_grid(900, 4, 5, 2, seed=0)
    return reordered(graph, np.random.default_rng(0).permutation(graph.n_nodes))


def test_a_shuffled_grid_reads_few_blocks(comm):
    graph = shuffled_grid()
    part = cut(graph, np.zeros(graph.n_nodes, np.int64), 0, 1)
    rows, columns = row_numbers(part.indptr), part.indices
    assert blocks_read(rows, columns, np.arange(part.n_owned)) == JUDGED_BLOCKS ** 2
    assert blocks_read(rows, columns, block_order(part)) <= 3 * JUDGED_BLOCKS


@pytest.mark.parametrize("self_loops", [False, True])
def test_the_matrix_is_the_same_up_to_the_numbers(comm, self_loops):
    graph = shuffled_grid()
    owner = np.arange(graph.n_nodes) * comm.size // graph.n_nodes
    part = cut(graph, owner, comm.rank, comm.size)
    plain, ordered = (build_whole(comm, part, self_loops, order_blocks=choice)
                      for choice in (False, True))
    old_ids = np.concatenate(comm.allgather(plain.ids))
    new_ids = np.concatenate(comm.allgather(ordered.ids))
    assert sorted(new_ids) == sorted(old_ids)
    assert (new_ids != old_ids).any()

    def entries(whole, ids):
        return {(int(ids[r]), int(ids[c]))
                for r, c in zip(row_numbers(whole.matrix.indptr), whole.matrix.indices)}

    assert entries(plain, old_ids) == entries(ordered, new_ids)
    np.testing.assert_array_equal(part.original_ids[ordered.order], ordered.ids)
