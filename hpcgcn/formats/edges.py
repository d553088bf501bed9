"""From a stream of edges to sorted rows in bounded memory: runs are sorted and kept on disk, then
merged by row ranges."""

from __future__ import annotations

import os
import tempfile

import numpy as np

from hpcgcn.errors import GraphError
from hpcgcn.graph.csr import index_dtype

RUN_KEYS = 1 << 24             # keys that are sorted at once: 128 MiB
MOST_NODES = 2 ** 31 - 1       # a key has 31 bits for each end, and one for the direction

_ROW, _TURNED, _COLUMN_MASK = np.uint64(32), np.uint64(1), np.uint64(2 ** 31 - 1)


class EdgeSpool:
    """Takes edges in any order and number; `build` gives the CSR, as arrays or, if it is long, as a
    file in memory's place.

    An edge is one 64-bit key: row (the target), column (the source), and whether it was added the
    other way.
    """

    def __init__(self, folder: str, undirected: bool, run_keys: int = RUN_KEYS):
        self.folder, self.undirected, self.run_keys = folder, undirected, run_keys
        self.pending: list[np.ndarray] = []      # keys in memory, not sorted yet
        self.n_pending = 0
        self.runs: list[np.memmap] = []          # sorted keys, in files
        self.n_edges = self.n_loops = 0
        self.largest = -1
        # source and target of an edge that was given twice
        self.repeated: tuple[int, int] | None = None
        self.counts = np.zeros(0, np.int64)      # keys of every row

    def add(self, sources: np.ndarray, targets: np.ndarray):
        """Some more edges; ids are not negative and less than 2^31 - 1."""
        if not len(sources):
            return
        largest = int(max(sources.max(), targets.max()))
        if min(sources.min(), targets.min()) < 0 or largest >= MOST_NODES:
            wrong = min(int(sources.min()), int(targets.min()))
            raise GraphError(f"there is an edge to node {wrong if wrong < 0 else largest}; "
                             f"expected ids in 0..{MOST_NODES - 1}")
        self.largest = max(self.largest, largest)
        self.n_edges += len(sources)
        proper = sources != targets
        if not proper.all():
            self.n_loops += int(len(proper) - np.count_nonzero(proper))
            sources, targets = sources[proper], targets[proper]
        self._keep(targets, sources, turned=False)
        if self.undirected:
            self._keep(sources, targets, turned=True)

    def _keep(self, rows: np.ndarray, columns: np.ndarray, turned: bool):
        keys = rows.astype(np.uint64) << _ROW
        keys |= columns.astype(np.uint64) << _TURNED
        if turned:
            keys |= _TURNED
        for start in range(0, len(keys), self.run_keys):
            self.pending.append(keys[start:start + self.run_keys])
            self.n_pending += len(self.pending[-1])
            if self.n_pending >= self.run_keys:
                self._write_run()

    def _sorted_pending(self) -> np.ndarray:
        keys = np.concatenate(self.pending) if self.pending else np.zeros(0, np.uint64)
        self.pending, self.n_pending = [], 0
        keys.sort()
        return keys

    def _count(self, keys: np.ndarray):
        """Add the rows of sorted keys to the counts."""
        rows = (keys >> _ROW).astype(np.int64)
        first = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]]))
        if rows[-1] >= len(self.counts):
            grown = np.zeros(max(int(rows[-1]) + 1, 2 * len(self.counts)), np.int64)
            grown[:len(self.counts)] = self.counts
            self.counts = grown
        self.counts[rows[first]] += np.diff(np.append(first, len(rows)))

    def _write_run(self):
        keys = self._sorted_pending()
        if not len(keys):
            return
        self._count(keys)
        handle, path = tempfile.mkstemp(dir=self.folder, suffix=".run")
        with os.fdopen(handle, "wb") as file:
            keys.tofile(file)
        self.runs.append(np.memmap(path, np.uint64, "r"))

    def build(self, n_nodes: int) -> tuple[np.ndarray, np.ndarray, int]:
        """(indptr, indices, number of edges that were there more than once)."""
        if not self.runs:
            keys = self._sorted_pending()
            columns, degrees, n_repeated = self._distinct(keys, 0, n_nodes)
            return _indptr(degrees), columns.astype(index_dtype(n_nodes)), n_repeated
        self._write_run()
        return self._merge(n_nodes)

    def _merge(self, n_nodes: int) -> tuple[np.ndarray, np.ndarray, int]:
        """Rows in ranges that fit in memory: the pieces of all runs, sorted together."""
        degrees, n_repeated = np.zeros(n_nodes, np.int64), 0
        key_stops = np.cumsum(self.counts[:n_nodes])
        handle, path = tempfile.mkstemp(dir=self.folder, suffix=".indices")
        with os.fdopen(handle, "wb") as file:
            start = 0
            while start < len(key_stops):
                before = key_stops[start - 1] if start else 0
                stop = max(int(np.searchsorted(key_stops, before + self.run_keys, side="right")),
                           start + 1)
                keys = np.concatenate([_between(run, start, stop) for run in self.runs])
                keys.sort()
                columns, degrees[start:stop], repeated = self._distinct(keys, start, stop)
                columns.astype(index_dtype(n_nodes)).tofile(file)
                n_repeated += repeated
                start = stop
        indices = np.memmap(path, index_dtype(n_nodes),
                            "r") if degrees.any() else np.zeros(0, index_dtype(n_nodes))
        for run in self.runs:
            os.unlink(str(run.filename))
        self.runs = []
        return _indptr(degrees), indices, n_repeated

    def _distinct(self, keys: np.ndarray, start: int,
                  stop: int) -> tuple[np.ndarray, np.ndarray, int]:
        """(columns, number of them in each of the rows start:stop, edges that the user listed
        twice) of sorted keys."""
        given = keys[(keys & _TURNED) == 0]
        again = given[1:] == given[:-1]
        n_repeated = int(np.count_nonzero(again))
        if n_repeated and self.repeated is None:
            key = int(given[int(again.argmax())])
            self.repeated = (key >> 1) & (2 ** 31 - 1), key >> 32
        keys = keys >> _TURNED
        first = np.ones(len(keys), bool)
        np.not_equal(keys[1:], keys[:-1], out=first[1:])
        keys = keys[first]
        rows = (keys >> np.uint64(31)).astype(np.int64)
        return (keys & _COLUMN_MASK).astype(np.int64), np.bincount(rows - start, minlength=stop
                                                                   - start), n_repeated


def _between(run: np.memmap, start: int, stop: int) -> np.ndarray:
    """The keys of the rows start:stop of a sorted run, read rather than mapped: mapped pages would
    count as memory in use."""
    low, high = (int(at) for at in np.searchsorted(run, np.array([start, stop], np.uint64) << _ROW))
    return np.fromfile(str(run.filename), np.uint64, count=high - low, offset=8 * low)


def _indptr(degrees: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
