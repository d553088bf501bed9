"""Arrays on disk while a graph is made that is too large for the memory: written once from front to
back, read in slices; and sets of edges, sorted run by run."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator

import numpy as np

from hpcgcn.graph.csr import edge_keys, index_dtype, sort_distinct

RUN_KEYS = 1 << 23         # edges in memory at once


class SpooledArray:
    """An array in a file of its own: rows are appended, then read by slices."""

    def __init__(self, path: str, row_shape: tuple[int, ...], dtype):
        self.path, self.stored, self.row_shape = path, np.dtype(dtype), row_shape
        self.dtype, self.n_rows = self.stored, 0
        open(path, "wb").close()

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole array."""
        return (self.n_rows, *self.row_shape)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return 1 + len(self.row_shape)

    def __len__(self) -> int:
        return self.n_rows

    def astype(self, dtype) -> SpooledArray:
        """The same array, whose slices are of another type."""
        other = copy.copy(self)
        other.dtype = np.dtype(dtype)
        return other

    def append(self, rows: np.ndarray):
        """Add rows at the end."""
        rows = np.ascontiguousarray(rows, self.stored)
        with open(self.path, "ab") as file:
            rows.tofile(file)
        self.n_rows += len(rows)

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(self.n_rows)
        row_items = int(np.prod(self.row_shape))
        with open(self.path, "rb") as file:
            file.seek(start * row_items * self.stored.itemsize)
            items = np.fromfile(file, self.stored, max(0, stop - start) * row_items)
        return items.reshape(-1, *self.row_shape).astype(self.dtype, copy=False)


class SpooledEdges:
    """Distinct edges, smaller id first, in files by ranges of the smaller id."""

    def __init__(self, folder: str, n_nodes: int, n_edges: int):
        self.folder, self.n_nodes = folder, n_nodes
        n_runs = max(1, -(-2 * n_edges // RUN_KEYS))
        self.bounds = n_nodes * np.arange(n_runs + 1) // n_runs
        self.lengths = np.zeros(n_runs, np.int64)
        self.changed = np.zeros(n_runs, bool)

    def __len__(self) -> int:
        """The number of distinct edges; sorts what was added."""
        for run in np.flatnonzero(self.changed).tolist():
            keys = sort_distinct(np.fromfile(self._path(run), np.int64))
            keys.tofile(self._path(run))
            self.lengths[run] = len(keys)
        self.changed[:] = False
        return int(self.lengths.sum())

    def add(self, keys: np.ndarray):
        """Add the keys of edges."""
        self._append(keys, "")
        self.changed[:] = True

    def _append(self, keys: np.ndarray, kind: str):
        keys.sort()
        cuts = np.searchsorted(keys, self.bounds * self.n_nodes)
        for run, (first, last) in enumerate(zip(cuts[:-1], cuts[1:])):
            with open(self._path(run, kind), "ab") as file:
                keys[first:last].tofile(file)

    def csr(self) -> tuple[np.ndarray, SpooledArray]:
        """(indptr, indices) with every edge both ways; the edges are gone then."""
        len(self)
        for run in range(len(self.lengths)):
            rows, columns = np.divmod(np.fromfile(self._path(run), np.int64), self.n_nodes)
            self._append(edge_keys(self.n_nodes, columns, rows), "back")
        indices = SpooledArray(os.path.join(self.folder, "indices"), (), index_dtype(self.n_nodes))
        indptr = np.zeros(self.n_nodes + 1, np.int64)
        for run, keys in enumerate(self._both_ways()):
            first, last = int(self.bounds[run]), int(self.bounds[run + 1])
            limits = np.arange(first, last + 1, dtype=np.int64) * self.n_nodes
            indptr[first + 1:last + 1] = indptr[first] + np.searchsorted(keys, limits)[1:]
            keys %= self.n_nodes
            indices.append(keys)
        return indptr, indices

    def _both_ways(self) -> Iterator[np.ndarray]:
        for run in range(len(self.lengths)):
            paths = [self._path(run), self._path(run, "back")]
            keys = np.concatenate([np.fromfile(path, np.int64) for path in paths])
            keys.sort()
            yield keys
            for path in paths:
                os.unlink(path)

    def _path(self, run: int, kind: str = "") -> str:
        return os.path.join(self.folder, f"edges{kind}-{run}")
