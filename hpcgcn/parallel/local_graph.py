"""The local matrices of one rank, split by where a neighbour lives, with rows in the order that
lets work overlap and leaves out what training does not need.

Rows are ordered by their distance from the loss (needed.py), so that the rows that a block of the
model needs are the first ones. Within a distance interior rows come first, then boundary rows (a
row that reads a remote node or is read by one). So every block of rows that becomes complete
together is one contiguous slice. Entries of a row are sorted: those of needed columns come first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hpcgcn.graph.data import Part, SparseRows
from hpcgcn.mpi.halo import HaloPlan, find_halo, make_plan
from hpcgcn.parallel.needed import NeededRows, distances

# Up to so many entries sorting takes no longer than loading SciPy, which every rank would do at
# start.
SORTED_ENTRIES = 1 << 20


@dataclass
class Structure:
    """The pattern of a sparse matrix, and the weights of edges; scales come from the model's
    normalisation."""

    indptr: np.ndarray               # (n_rows + 1,) int64
    indices: np.ndarray              # (nnz,) int32
    n_columns: int
    weights: np.ndarray | None = None    # (nnz,) float32; None: all are 1

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.indptr) - 1

    @classmethod
    def of_entries(cls, rows: np.ndarray, columns: np.ndarray, n_rows: int, n_columns: int,
                   weights: np.ndarray | None = None) -> Structure:
        """With entries at these places, which are sorted."""
        keys, weights = sorted_entries(rows.astype(np.int64) * n_columns + columns, weights)
        indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n_rows))])
        return cls(indptr.astype(np.int64), (keys % max(n_columns, 1)).astype(np.int32), n_columns,
                   weights)

    def chosen(self, entries: np.ndarray) -> Structure:
        """Without the other entries; entries: (nnz,) bool."""
        running = np.concatenate([[0], np.cumsum(entries)])
        weights = None if self.weights is None else self.weights[entries]
        return Structure(running[self.indptr].astype(np.int64), self.indices[entries],
                         self.n_columns, weights)

    def transposed(self) -> Structure:
        """The transpose; entries of a row come out sorted."""
        if len(self.indices) > SORTED_ENTRIES:
            return self._transposed_by_scipy()
        rows = np.repeat(np.arange(self.n_rows, dtype=np.int64), np.diff(self.indptr))
        return Structure.of_entries(self.indices, rows, self.n_columns, self.n_rows, self.weights)

    def _transposed_by_scipy(self) -> Structure:
        import scipy.sparse as sp
        values = np.ones(len(self.indices), np.int8) if self.weights is None else self.weights
        matrix = sp.csr_array((values, self.indices, self.indptr),
                              shape=(self.n_rows, self.n_columns)).tocsc()
        return Structure(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32),
                         self.n_rows, None if self.weights is None else matrix.data)


def sorted_entries(keys: np.ndarray,
                   weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Distinct keys in order, and the weights that belong to them."""
    if weights is None:
        return np.sort(keys), None
    order = np.argsort(keys)
    return keys[order], weights[order]


@dataclass
class LocalGraph:
    """One rank's share: owned rows, halo rows, and the matrices between them."""

    plan: HaloPlan                   # of all halo rows
    order: np.ndarray                # (n_owned,) position in the Part of each local row
    needed: NeededRows               # which rows training needs; distances ascend
    boundary: np.ndarray             # (n_owned,) bool: does it read a remote row, or is it read?
    inner: Structure                 # owned x owned
    outer: Structure                 # owned x halo
    inner_t: Structure               # the same object as `inner` if the graph is undirected
    outer_t: Structure               # halo x owned
    # (n_owned,) sum of the weights of edges in the whole graph, self loop included if there is one
    degree: np.ndarray
    halo_degree: np.ndarray          # (n_halo,)
    ids: np.ndarray                  # (n_owned,) int64 original ids: all draws use these
    halo_ids: np.ndarray             # (n_halo,) int64
    # (n_halo,) bool: the covers of all edges, if the file has them (graph/halo_cover.py)
    cover: np.ndarray | None = None

    @property
    def n_owned(self) -> int:
        """Number of owned rows."""
        return len(self.order)

    @property
    def n_halo(self) -> int:
        """Number of halo rows."""
        return self.plan.n_halo

    @property
    def rows_sent(self) -> int:
        """Rows that this rank sends if all halo rows are exchanged, counted once per receiver."""
        return self.plan.n_sent

    @property
    def n_entries(self) -> int:
        """Entries of this rank's rows of the adjacency."""
        return len(self.inner.indices) + len(self.outer.indices)

    def runs(self, n_rows: int, boundary: bool,
             by_distance: bool = True) -> list[tuple[int, int]]:
        """Ranges of interior or of boundary rows among the first rows.

        By distance, one each: they are the same however many rows are asked for. So blocks of rows
        are, too, and sums over rows that have no gradient add nothing but zeros to the same sums.
        """
        kind = self.boundary[:n_rows].astype(np.int64)
        if by_distance:
            kind += 2 * self.needed.distance[:n_rows]
        cuts = np.flatnonzero(np.diff(kind, prepend=-1, append=-1)) if n_rows else [0]
        return [(int(start), int(stop)) for start, stop in zip(cuts[:-1], cuts[1:])
                if self.boundary[start] == boundary]

    def column_ends(self, n_first: int) -> np.ndarray | None:
        """Where rows of `inner_t` end if all but the first columns are left out; None: nowhere
        else."""
        if n_first == self.n_owned:
            return None
        entries = self.inner.indices[:self.inner.indptr[n_first]]
        kept = np.zeros(self.n_owned, np.int64)
        for at in range(0, len(entries), SORTED_ENTRIES):
            kept += np.bincount(entries[at:at + SORTED_ENTRIES], minlength=self.n_owned)
        return self.inner_t.indptr[:-1] + kept


def build_local(comm, part: Part, self_loops: bool, n_hops: int | None = None,
                all_rows: bool = False, chunks: np.ndarray | None = None,
                whole_blocks: int = 0) -> LocalGraph:
    """Split the part's rows into interior and boundary, find the halo, and re-label columns.

    n_hops: of the model that is trained; None: it is only evaluated, and needs all rows. all_rows:
    training computes all of them, too. chunks: where chunks begin in the part, and the end of the
    last one; rows stay chunk after chunk, ordered by distance in each, and all count as boundary.
    whole_blocks: so many of the first blocks of the model are run on all rows.
    Collective.
    """
    start, n_owned = int(part.offsets[part.rank]), part.n_owned
    halo = find_halo(comm, part.offsets, part.rank, part.indices)
    halo_file_ids, counts, read_by = halo
    degree = np.diff(part.indptr).astype(np.int64)
    remote = (part.indices < start) | (part.indices >= start + n_owned)

    boundary = np.full(n_owned, chunks is not None)
    row_has_remote = np.add.reduceat(np.append(remote, False),
                                     part.indptr[:-1]) if n_owned else np.zeros(0)
    boundary[(row_has_remote > 0) & (degree > 0)] = True
    for rows in read_by:
        boundary[rows] = True
    if n_hops is None:
        distance, n_hops, all_rows = np.zeros(n_owned, np.int32), 0, True
    else:
        distance = distances(comm, part, n_hops, halo)
    order = np.lexsort((boundary, distance))  # stable: otherwise as in the part
    if chunks is not None:
        order = np.lexsort((distance, np.repeat(np.arange(len(chunks) - 1), np.diff(chunks))))
    local_of = np.empty(n_owned, np.int32)
    local_of[order] = np.arange(n_owned, dtype=np.int32)

    inner = _inner_structure(part, order, local_of, remote, start, self_loops)
    inner_t = inner.transposed()         # sorted, and of an undirected graph the same matrix
    outer = _outer_structure(part, order, remote, halo_file_ids)
    plan = make_plan(comm, counts, [local_of[rows] for rows in read_by])
    degree = (weight_sums(part.indptr, part.edge_weights)[order] + self_loops).astype(np.float64)
    ids = part.original_ids[order]
    local = LocalGraph(plan, order, NeededRows(distance[order], n_hops, all_rows,
                                                whole_blocks),
                       boundary[order], inner if part.directed else inner_t, outer, inner_t,
                       outer.transposed(), degree, plan.scatter(degree), ids, plan.scatter(ids),
                       part.halo_cover)
    return local if chunks is None else _in_order_of_owners(local)


def _in_order_of_owners(local: LocalGraph) -> LocalGraph:
    """The same with halo rows, and what is sent, in the order of the owner's rows. Collective."""
    plan = local.plan
    rows_of_owners = plan.scatter(np.arange(local.n_owned))
    order = np.concatenate([np.zeros(0, np.int64),
                            *(n.halo.start + np.argsort(rows_of_owners[n.halo])
                              for n in plan.neighbours)])
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    outer = replace(local.outer, indices=place[local.outer.indices])
    neighbours = [replace(n, send_rows=np.sort(n.send_rows)) for n in plan.neighbours]
    return replace(local, plan=replace(plan, neighbours=neighbours), outer=outer,
                   outer_t=outer.transposed(), halo_degree=local.halo_degree[order],
                   halo_ids=local.halo_ids[order],
                   cover=None if local.cover is None else local.cover[order])


def weight_sums(indptr: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """The weighted degree of every row: the number of its entries where they have no weights."""
    lengths = np.diff(indptr)
    if weights is None:
        return lengths.astype(np.float64)
    return np.bincount(np.repeat(np.arange(len(lengths)), lengths), weights, len(lengths))


def _rows_of(part: Part, order: np.ndarray):
    """Positions of the entries of the given rows, in that order, and the length of each row."""
    lengths = np.diff(part.indptr)[order]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    return np.repeat(part.indptr[order] - indptr[:-1], lengths) + np.arange(indptr[-1]), lengths


def _select(lengths: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """indptr of the chosen entries (a boolean mask over the rows' entries)."""
    running = np.concatenate([[0], np.cumsum(chosen)])
    return running[np.concatenate([[0], np.cumsum(lengths)])].astype(np.int64)


def _inner_structure(part, order, local_of, remote, start, self_loops) -> Structure:
    """Owned x owned in local order, with self loops if asked for."""
    positions, lengths = _rows_of(part, order)
    chosen = ~remote[positions]
    indptr = _select(lengths, chosen)
    columns = local_of[part.indices[positions[chosen]] - start]
    weights = None if part.edge_weights is None else part.edge_weights[positions[chosen]]
    n_owned = len(order)
    if self_loops:
        shifted = indptr + np.arange(n_owned + 1)
        with_loops = np.empty(shifted[-1], np.int32)
        loop_at = shifted[1:] - 1  # the loop is the last entry of its row
        with_loops[loop_at] = np.arange(n_owned, dtype=np.int32)
        others = np.ones(shifted[-1], bool)
        others[loop_at] = False
        with_loops[others] = columns
        if weights is not None:
            loop_weights = np.ones(shifted[-1], np.float32)
            loop_weights[others] = weights
            weights = loop_weights
        indptr, columns = shifted, with_loops
    return Structure(indptr, np.ascontiguousarray(columns, np.int32), n_owned, weights)


def _outer_structure(part, order, remote, halo_file_ids) -> Structure:
    """Owned x halo."""
    positions, lengths = _rows_of(part, order)
    chosen = remote[positions]
    indptr = _select(lengths, chosen)
    columns = np.searchsorted(halo_file_ids, part.indices[positions[chosen]]).astype(np.int32)
    weights = None if part.edge_weights is None else part.edge_weights[positions[chosen]]
    return Structure(indptr, columns, len(halo_file_ids), weights)


def restrict(comm, part: Part, keep: np.ndarray) -> Part:
    """The part's share of the subgraph induced by the kept nodes (keep: (n_owned,) bool),
    re-numbered on all ranks."""
    halo_file_ids, counts, read_by = find_halo(comm, part.offsets, part.rank, part.indices)
    plan = make_plan(comm, counts, read_by)
    offsets = np.concatenate([[0], np.cumsum(comm.allgather(int(keep.sum())))]).astype(np.int64)
    new_ids = np.where(keep, np.cumsum(keep) - 1 + offsets[part.rank], -1)          # (n_owned,)
    halo_new_ids = plan.scatter(new_ids)

    start = int(part.offsets[part.rank])
    order = np.flatnonzero(keep)
    positions, lengths = _rows_of(part, order)
    columns = part.indices[positions].astype(np.int64)
    own = (columns >= start) & (columns < start + part.n_owned)
    mapped = np.empty(len(columns), np.int64)
    mapped[own] = new_ids[columns[own] - start]
    mapped[~own] = halo_new_ids[np.searchsorted(halo_file_ids, columns[~own])]
    chosen = mapped >= 0
    features = part.features
    if features.shape[0]:                # a rank may hold none of its nodes' features
        features = features.take(order) if isinstance(features, SparseRows) else features[order]
    chunks = None if part.chunks is None else np.concatenate([[0], np.cumsum(keep)])[part.chunks]
    weights = None if part.edge_weights is None else part.edge_weights[positions[chosen]]
    return Part(offsets=offsets, rank=part.rank, indptr=_select(lengths, chosen),
                indices=mapped[chosen], edge_weights=weights, features=features,
                labels=part.labels[order],
                split=part.split[order], original_ids=part.original_ids[order],
                n_classes=part.n_classes, directed=part.directed, chunks=chunks)
