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
    rows = row_numbers(structure.indptr)
    within = row_chunk[rows] == column_chunk[structure.indices]

    def entries(chosen: np.ndarray) -> Structure:
        counts = np.bincount(rows[chosen], minlength=structure.n_rows)
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return Structure(indptr, structure.indices[chosen], structure.n_columns)

    return entries(within), entries(~within)


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
        self.halo_chunk = halo_chunk
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
        factors = (1, 2) if doubled else (1,)
        self.forward = [(self._matrix(a, rows, columns, 1), self._matrix(b, rows, halo_columns, 1))
                        for a, b in zip(inner, outer)]
        self.exact_backward = [(self._matrix(a, columns, rows, 1),
                                self._matrix(b, halo_columns, rows, 1))
                               for a, b in zip(inner_t, outer_t)]
        self.backward = [(self._matrix(a, columns, rows, f), self._matrix(b, halo_columns, rows, f))
                         for a, b, f in zip(inner_t, outer_t,
                                            factors)] if doubled else self.exact_backward

        mine = (count_entries(local.inner, row_chunk, row_chunk, self.n_chunks)
                + count_entries(local.outer, row_chunk, halo_chunk, self.n_chunks))
        self.entries = partitions.comm.allreduce(mine)                       # of all partitions
        self.reads = self.entries > 0

    def _matrix(self, structure: Structure, row_scale, column_scale, factor: int):
        if factor != 1:
            row_scale = np.full(structure.n_rows, factor,
                                self.backend.dtype) if row_scale is None else factor * row_scale
        return self.backend.csr(structure.indptr, structure.indices, structure.n_columns, None,
                                row_scale, column_scale)

    def rows(self, chunk: int) -> tuple[int, int]:
        """Local rows of a chunk."""
        return int(self.chunks[chunk]), int(self.chunks[chunk + 1])

    def halo_slices(self, chunk: int) -> list[tuple[Neighbour, slice, slice]]:
        """(neighbour, which of its send_rows, which halo rows) of a chunk: both are sorted by
        chunk."""
        slices = []
        start, stop = self.rows(chunk)
        for neighbour in self.local.plan.neighbours:
            sent = slice(*np.searchsorted(neighbour.send_rows, (start, stop)))
            halo_chunks = self.halo_chunk[neighbour.halo]
            first, last = np.searchsorted(halo_chunks, (chunk, chunk + 1)) + neighbour.halo.start
            if sent.stop > sent.start or last > first:
                slices.append((neighbour, sent, slice(int(first), int(last))))
        return slices
