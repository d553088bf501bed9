"""The adjacency of one partition by chunks: what a chunk reads of its own chunk and of others, here
and on other partitions."""

from __future__ import annotations

import numpy as np

from hpcgcn.graph.csr import row_numbers
from hpcgcn.mpi.halo import Neighbour
from hpcgcn.parallel.aggregation import scales
from hpcgcn.parallel.local_graph import LocalGraph, Structure


def split(structure: Structure, row_chunk: np.ndarray,
          column_chunk: np.ndarray) -> tuple[Structure, Structure]:
    """(entries within a chunk, entries across chunks)."""
    within = row_chunk[row_numbers(structure.indptr)] == column_chunk[structure.indices]
    return structure.chosen(within), structure.chosen(~within)


def with_columns(structure: Structure, kept: np.ndarray) -> Structure:
    """Without the entries of all other columns; kept: (n_columns,) bool."""
    return structure.chosen(kept[structure.indices])


def count_entries(structure: Structure, row_chunk: np.ndarray, column_chunk: np.ndarray,
                  n_chunks: int) -> np.ndarray:
    """(n_chunks, n_chunks): entries by the chunk of their row and of their column."""
    pairs = (row_chunk[row_numbers(structure.indptr)].astype(np.int64) * n_chunks
             + column_chunk[structure.indices])
    return np.bincount(pairs, minlength=n_chunks * n_chunks).reshape(n_chunks, n_chunks)


class ChunkedGraph:
    """Matrices of the local rows.

    Each direction is a list of (matrix of owned, matrix of halo) to be added up.

    `doubled`: the gradients that cross chunks count twice, because under a random order each such
    edge is live half of the time; for that the entries within a chunk and those across chunks are
    kept apart.
    """

    def __init__(self, backend, partitions, local: LocalGraph, chunks: np.ndarray,
                 normalisation: str, doubled: bool):
        self.backend, self.partitions, self.local, self.chunks = backend, partitions, local, chunks
        self.n_chunks = len(chunks) - 1
        row_chunk = np.repeat(np.arange(self.n_chunks, dtype=np.int32), np.diff(chunks))
        halo_chunk = local.plan.scatter(row_chunk)
        self.halo_chunk, self.halo_distance = halo_chunk, local.plan.scatter(local.needed.distance)
        rows, columns, halo_columns = scales(normalisation, local.degree, local.halo_degree,
                                             backend.dtype)

        def pieces(structure, structure_rows, structure_columns):
            return split(structure, structure_rows, structure_columns) if doubled else (structure,)

        inner, outer = pieces(local.inner, row_chunk,
                              row_chunk), pieces(local.outer, row_chunk, halo_chunk)
        # The transpose of an undirected graph is the same matrix: the pieces are shared, too.
        inner_t = inner if local.inner_t is local.inner else pieces(local.inner_t, row_chunk,
                                                                    row_chunk)
        outer_t = pieces(local.outer_t, halo_chunk, row_chunk)
        self._transposes = inner_t, outer_t, (columns, halo_columns, rows)
        self._factors = (1, 2) if doubled else (1,)
        self._backward: dict[tuple[int, bool], list] = {}
        self.forward = [(self._matrix(a, rows, columns, 1), self._matrix(b, rows, halo_columns, 1))
                        for a, b in zip(inner, outer)]
        mine = (count_entries(local.inner, row_chunk, row_chunk, self.n_chunks)
                + count_entries(local.outer, row_chunk, halo_chunk, self.n_chunks))
        self.entries = partitions.comm.allreduce(mine)                       # of all partitions
        self.reads = self.entries > 0

    def _matrix(self, structure: Structure, row_scale, column_scale, factor: int):
        if factor != 1:
            row_scale = np.full(structure.n_rows, factor,
                                self.backend.dtype) if row_scale is None else factor * row_scale
        return self.backend.csr(structure.indptr, structure.indices, structure.n_columns,
                                structure.weights, row_scale, column_scale)

    def factors(self, exact: bool) -> tuple[int, ...]:
        """How often the gradients of each pair of matrices count."""
        return (1,) * len(self._factors) if exact else self._factors

    def backward(self, block: int, exact: bool) -> list:
        """For gradients of the rows that a block of the model needs: the others have none."""
        kept = self.local.needed.mask(block)
        key = int(kept.sum()), exact or len(self._factors) == 1
        if key not in self._backward:
            inner_t, outer_t, (columns, halo_columns, rows) = self._transposes
            if not kept.all():
                inner_t, outer_t = ([with_columns(piece, kept) for piece in pieces]
                                    for pieces in (inner_t, outer_t))
            self._backward[key] = [
                (self._matrix(a, columns, rows, f), self._matrix(b, halo_columns, rows, f))
                for a, b, f in zip(inner_t, outer_t, self.factors(exact))]
        return self._backward[key]

    def needs_all(self, block: int) -> bool:
        """Does a block of the model need all rows, on all partitions? Collective."""
        return self.partitions.comm.allreduce(int((~self.local.needed.mask(block)).sum())) == 0

    def rows(self, chunk: int, block: int | None = None) -> tuple[int, int]:
        """Local rows of a chunk; block: those that it needs, which come first."""
        start, stop = int(self.chunks[chunk]), int(self.chunks[chunk + 1])
        if block is None:
            return start, stop
        distance = self.local.needed.distance[start:stop]
        return start, start + _first(distance, self.local.needed.limit(block))

    def n_entries(self, block: int) -> int:
        """Entries of the rows that a block of the model needs."""
        lengths = np.diff(self.local.inner.indptr) + np.diff(self.local.outer.indptr)
        return int(lengths[self.local.needed.mask(block)].sum())

    def halo_slices(self, chunk: int,
                    block: int | None = None) -> list[tuple[Neighbour, slice, slice]]:
        """(neighbour, which of its send_rows, which halo rows) of a chunk, or of those that a block
        needs: all are sorted by chunk, and by distance within each."""
        slices = []
        start, stop = self.rows(chunk, block)
        for neighbour in self.local.plan.neighbours:
            sent = slice(*np.searchsorted(neighbour.send_rows, (start, stop)))
            halo_chunks = self.halo_chunk[neighbour.halo]
            first, last = np.searchsorted(halo_chunks, (chunk, chunk + 1)) + neighbour.halo.start
            if block is not None:
                last = first + _first(self.halo_distance[first:last],
                                      self.local.needed.limit(block))
            if sent.stop > sent.start or last > first:
                slices.append((neighbour, sent, slice(int(first), int(last))))
        return slices


def _first(distance: np.ndarray, limit: int) -> int:
    """How many of some rows in the order of their distances are at most so far away."""
    return int(np.searchsorted(distance, limit, side="right"))
