"""The whole adjacency for every rank, held once per host: what feature parallelism needs.

Ranks of a host share one MPI window. Every rank writes its own rows there; then one rank per host
sends them to the other hosts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcgcn.graph.csr import entry_positions, row_numbers, take_indptr
from hpcgcn.graph.data import Part
from hpcgcn.mpi import large
from hpcgcn.parallel.features.block_order import block_order
from hpcgcn.parallel.features.layout import first_rows
from hpcgcn.parallel.local_graph import Structure, sorted_entries, weight_sums
from hpcgcn.parallel.needed import EVALUATED, Depth, NeededRows, distances

COUNTED_ENTRIES = 1 << 24            # looked at together: bounds the memory that it takes


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

    # (distances, n_ranks) nodes of each distance from the loss; rows of matrices in that order
    counts: np.ndarray
    needed: NeededRows               # of this rank's rows
    order: np.ndarray                # (n_owned,) position in the Part of each local row
    ids: np.ndarray                  # (n_owned,) original ids
    matrix: Structure                # (n_nodes, n_nodes)
    matrix_t: Structure              # the same object if the graph is undirected
    degree: np.ndarray               # (n_nodes,) sums of weights, with the self loop if any
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
        return int(self.counts.sum())

    def column_ends(self, n_first: int) -> np.ndarray | None:
        """Where rows of `matrix_t` end without all but the first columns; None: nowhere else."""
        if n_first == self.n_nodes:
            return None
        entries = self.matrix.indices[:self.matrix.indptr[n_first]]
        kept = np.zeros(self.n_nodes, np.int64)
        for at in range(0, len(entries), COUNTED_ENTRIES):
            kept += np.bincount(entries[at:at + COUNTED_ENTRIES], minlength=self.n_nodes)
        return self.matrix_t.indptr[:-1] + kept

    def ids_of_all(self, comm) -> np.ndarray:
        """(n_nodes,) original ids, in the order of the matrices' rows. Collective."""
        first, ids = first_rows(self.counts), np.empty(self.n_nodes, np.int64)
        for rank, of_rank in enumerate(large.allgather(comm, self.ids)):
            at = 0
            for start, n in zip(first[:, rank], self.counts[:, rank]):
                ids[start:start + n] = of_rank[at:at + n]
                at += n
        return ids


def build_whole(comm, part: Part, self_loops: bool, depth: Depth = EVALUATED,
                all_rows: bool = False, order_blocks: bool = False) -> WholeGraph:
    """Gather the whole adjacency once per host. Collective.

    depth: of the model that is trained, or EVALUATED, which needs all rows. all_rows: training
    computes all of them, too. order_blocks: every rank may put its rows in an order in
    which blocks of rows gather from few blocks.
    """
    from mpi4py import MPI
    needed = _needed(comm, part, depth, all_rows)
    order = block_order(part) if order_blocks else np.arange(part.n_owned)
    order = order[np.argsort(needed.distance[order], kind="stable")]
    needed.distance = needed.distance[order]
    n_classes = comm.allreduce(int(needed.distance.max(initial=0)), MPI.MAX) + 1
    counts = np.array(comm.allgather(np.bincount(needed.distance, minlength=n_classes))).T

    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    leaders = comm.Split(0 if node.rank == 0 else MPI.UNDEFINED, comm.rank)
    leaders = None if leaders == MPI.COMM_NULL else leaders
    host = node.bcast(None if leaders is None else leaders.rank)
    hosts = comm.allgather(host)

    indptr, indices, weights = _with_loops(part, self_loops)
    indptr, indices, weights = _ordered(comm, part, indptr, indices, weights, order, counts)
    # Rows of one distance after the other: those of all ranks together are filled in at a time.
    class_bounds = np.concatenate([[0], np.cumsum(counts[:, comm.rank])])
    entries = np.array(comm.allgather(np.diff(indptr[class_bounds]))).T
    lengths = SharedArray(comm, node, leaders, part.n_nodes, np.int64)
    columns = SharedArray(comm, node, leaders, int(entries.sum()), np.int32)
    values = (None if weights is None
              else SharedArray(comm, node, leaders, int(entries.sum()), np.float32))
    for distance, (start, stop) in enumerate(zip(class_bounds[:-1], class_bounds[1:])):
        lengths.fill(np.diff(indptr[start:stop + 1]), _bounds(counts, distance), hosts)
        columns.fill(indices[indptr[start]:indptr[stop]].astype(np.int32),
                     _bounds(entries, distance), hosts)
        if values is not None and weights is not None:
            values.fill(weights[indptr[start]:indptr[stop]], _bounds(entries, distance), hosts)
    whole_indptr = np.concatenate([[0], np.cumsum(lengths.array)])
    matrix = Structure(whole_indptr, columns.array, part.n_nodes,
                       None if values is None else values.array)
    return WholeGraph(counts, needed, order, part.original_ids[order], matrix,
                      matrix.transposed() if part.directed else matrix,
                      weight_sums(whole_indptr, matrix.weights), [lengths, columns, values],
                      len(indices))


def _needed(comm, part: Part, depth: Depth, all_rows: bool) -> NeededRows:
    """Which rows training needs, in the part's order."""
    if depth.n_hops is None or all_rows:
        return NeededRows(np.zeros(part.n_owned, np.int32), 0, all_rows=True)
    return NeededRows(distances(comm, part, depth.n_hops), depth.n_hops,
                      whole_blocks=depth.whole_blocks)


def _bounds(counts: np.ndarray, distance: int) -> np.ndarray:
    """Where what each rank has of a distance begins, and the end of the last one."""
    first = first_rows(counts)[distance]
    return np.append(first, first[-1] + counts[distance, -1])


def _with_loops(part: Part,
                self_loops: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The part's rows, each with its own node as the last entry if asked for."""
    weights = part.edge_weights
    if not self_loops:
        return part.indptr, part.indices, weights
    start = int(part.offsets[part.rank])
    own = np.arange(start, start + part.n_owned)
    return (part.indptr + np.arange(part.n_owned + 1),
            np.insert(part.indices, part.indptr[1:], own),
            None if weights is None else np.insert(weights, part.indptr[1:], 1))


def _ordered(comm, part: Part, indptr, indices, weights, order,
             counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The rows in each rank's order, with every node's new number; the entries of a row are
    sorted, so that those of the first columns come first."""
    numbers, first = np.empty(part.n_nodes, np.int64), first_rows(counts)
    for rank, of_rank in enumerate(large.allgather(comm, order)):
        # Position in the rank's order to row: shifted by distance.
        local_first = np.cumsum(counts[:, rank]) - counts[:, rank]
        shift = np.repeat(first[:, rank] - local_first, counts[:, rank])
        numbers[int(part.offsets[rank]) + of_rank] = np.arange(len(of_rank)) + shift
    new_indptr = take_indptr(indptr, order)
    positions = entry_positions(indptr, order, new_indptr)
    keys = numbers[indices[positions]]
    keys += row_numbers(new_indptr) * part.n_nodes
    keys, weights = sorted_entries(keys, None if weights is None else weights[positions])
    return new_indptr, keys % max(part.n_nodes, 1), weights
