"""The whole adjacency for every rank, held once per host: what feature parallelism needs.

Ranks of a host share one MPI window. Every rank writes its own rows there; then one rank per host
sends them to the other hosts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcgcn.graph.csr import entry_positions, take_indptr
from hpcgcn.graph.data import Part
from hpcgcn.mpi import large
from hpcgcn.parallel.features.block_order import block_order
from hpcgcn.parallel.local_graph import Structure


class SharedArray:
    """An array of one host's ranks in one MPI shared-memory window; filled by all, then read by
    all."""

    def __init__(self, comm, node, leaders, shape: int, dtype):
        from mpi4py import MPI
        dtype = np.dtype(dtype)
        self.comm, self.node, self.leaders = comm, node, leaders
        self.window = MPI.Win.Allocate_shared(shape * dtype.itemsize if node.rank == 0 else 0,
                                              dtype.itemsize, comm=node)
        memory, _ = self.window.Shared_query(0)
        # MPI's buffer has the buffer protocol, which its type information does not say.
        self.array = (np.frombuffer(memory, dtype, count=shape)      # type: ignore[call-overload]
                      if shape else np.zeros(0, dtype))

    def fill(self, mine: np.ndarray, bounds: np.ndarray, hosts: list[int]):
        """array[bounds[r]:bounds[r+1]] = what rank r gives, on every host. hosts[r] is the host of
        rank r."""
        self.array[bounds[self.comm.rank]:bounds[self.comm.rank + 1]] = mine
        self.window.Fence()
        if self.leaders is not None:
            for rank, host in enumerate(hosts):
                large.bcast(self.leaders, self.array[bounds[rank]:bounds[rank + 1]], root=host)
        self.window.Fence()


@dataclass
class WholeGraph:
    """All rows of the adjacency, and this rank's slice of the nodes."""

    offsets: np.ndarray              # (n_ranks + 1,) rank r owns nodes offsets[r]:offsets[r + 1]
    order: np.ndarray                # (n_owned,) position in the Part of each local row
    ids: np.ndarray                  # (n_owned,) original ids
    matrix: Structure                # (n_nodes, n_nodes)
    matrix_t: Structure              # the same object if the graph is undirected
    degree: np.ndarray               # (n_nodes,) in-degree, self loop included if there is one
    windows: list                    # keep the shared memory alive
    n_entries: int                   # entries of this rank's own rows

    n_halo = 0
    rows_sent = 0                    # transposes are not counted in rows

    @property
    def n_owned(self) -> int:
        """Number of nodes whose rows this rank updates."""
        return len(self.order)

    @property
    def n_nodes(self) -> int:
        """Number of nodes of the graph."""
        return int(self.offsets[-1])


def build_whole(comm, part: Part, self_loops: bool, order_blocks: bool = False) -> WholeGraph:
    """Gather the whole adjacency once per host. Collective.

    order_blocks: every rank may put its rows in an order in which blocks of rows gather from few
    blocks.
    """
    from mpi4py import MPI
    order = block_order(part) if order_blocks else np.arange(part.n_owned)
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    leaders = comm.Split(0 if node.rank == 0 else MPI.UNDEFINED, comm.rank)
    leaders = None if leaders == MPI.COMM_NULL else leaders
    host = node.bcast(None if leaders is None else leaders.rank)
    hosts = comm.allgather(host)

    indptr, indices = _with_loops(part, self_loops)
    if order_blocks:
        indptr, indices = _ordered(comm, part, indptr, indices, order)
    entries = np.concatenate([[0], np.cumsum(comm.allgather(len(indices)))])
    lengths = SharedArray(comm, node, leaders, part.n_nodes, np.int64)
    lengths.fill(np.diff(indptr), part.offsets, hosts)
    columns = SharedArray(comm, node, leaders, int(entries[-1]), np.int32)
    columns.fill(indices.astype(np.int32), entries, hosts)
    whole_indptr = np.concatenate([[0], np.cumsum(lengths.array)])
    matrix = Structure(whole_indptr, columns.array, part.n_nodes)
    return WholeGraph(part.offsets, order, part.original_ids[order], matrix,
                      matrix.transposed() if part.directed else matrix,
                      lengths.array.astype(np.float64), [lengths, columns], len(indices))


def _with_loops(part: Part, self_loops: bool) -> tuple[np.ndarray, np.ndarray]:
    """The part's rows, each with its own node as the last entry if asked for."""
    if not self_loops:
        return part.indptr, part.indices
    start = int(part.offsets[part.rank])
    own = np.arange(start, start + part.n_owned)
    return part.indptr + np.arange(part.n_owned + 1), np.insert(part.indices, part.indptr[1:], own)


def _ordered(comm, part: Part, indptr, indices, order) -> tuple[np.ndarray, np.ndarray]:
    """The rows in each rank's order, with every node's new number; the entries of a row stay in
    their order."""
    numbers = np.empty(part.n_nodes, np.int64)
    for rank, of_rank in enumerate(large.allgather(comm, order)):
        start = int(part.offsets[rank])
        numbers[start + of_rank] = np.arange(start, start + len(of_rank))
    new_indptr = take_indptr(indptr, order)
    return new_indptr, numbers[indices[entry_positions(indptr, order, new_indptr)]]
