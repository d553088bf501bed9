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

    def __init__(self, folder: str, undirected: bool, run_keys: int = RUN_KEYS,
                 weighted: bool = False):
        self.folder, self.undirected, self.run_keys = folder, undirected, run_keys
        self.weighted = weighted                 # does every edge have a weight?
        self.pending: list[np.ndarray] = []      # keys in memory, not sorted yet
        self.pending_weights: list[np.ndarray] = []
        self.n_pending = 0
        self.runs: list[np.memmap] = []          # sorted keys, in files
        self.run_weights: list[str] = []         # files with their weights
        self.n_edges = self.n_loops = 0
        self.largest = -1
        # source and target of an edge that was given twice
        self.repeated: tuple[int, int] | None = None
        self.counts = np.zeros(0, np.int64)      # keys of every row

    def add(self, sources: np.ndarray, targets: np.ndarray, weights: np.ndarray | None = None):
        """Some more edges; ids are not negative and less than 2^31 - 1. Of an edge that is given
        twice the first weight counts."""
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
            weights = None if weights is None else weights[proper]
        self._keep(targets, sources, weights, turned=False)
        if self.undirected:
            self._keep(sources, targets, weights, turned=True)

    def _keep(self, rows: np.ndarray, columns: np.ndarray, weights: np.ndarray | None,
              turned: bool):
        keys = rows.astype(np.uint64) << _ROW
        keys |= columns.astype(np.uint64) << _TURNED
        if turned:
            keys |= _TURNED
        for start in range(0, len(keys), self.run_keys):
            self.pending.append(keys[start:start + self.run_keys])
            if self.weighted and weights is not None:
                self.pending_weights.append(weights[start:start + self.run_keys])
            self.n_pending += len(self.pending[-1])
            if self.n_pending >= self.run_keys:
                self._write_run()

    def _sorted_pending(self) -> tuple[np.ndarray, np.ndarray | None]:
        keys = np.concatenate(self.pending) if self.pending else np.zeros(0, np.uint64)
        weights = np.concatenate([np.zeros(0, np.float32), *self.pending_weights])
        self.pending, self.pending_weights, self.n_pending = [], [], 0
        return _in_order(keys, weights.astype(np.float32) if self.weighted else None)

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
        keys, weights = self._sorted_pending()
        if not len(keys):
            return
        self._count(keys)
        handle, path = tempfile.mkstemp(dir=self.folder, suffix=".run")
        with os.fdopen(handle, "wb") as file:
            keys.tofile(file)
        self.runs.append(np.memmap(path, np.uint64, "r"))
        if weights is not None:
            self.run_weights.append(path + ".weights")
            weights.tofile(self.run_weights[-1])

    def build(self, n_nodes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, int]:
        """(indptr, indices, weights or None, number of edges that were there more than once)."""
        if not self.runs:
            columns, weights, degrees, n_repeated = self._distinct(*self._sorted_pending(), 0,
                                                                   n_nodes)
            return _indptr(degrees), columns.astype(index_dtype(n_nodes)), weights, n_repeated
        self._write_run()
        return self._merge(n_nodes)

    def _merge(self, n_nodes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, int]:
        """Rows in ranges that fit in memory: the pieces of all runs, sorted together."""
        merged_weights = [np.zeros(0, np.float32)]
        degrees, n_repeated = np.zeros(n_nodes, np.int64), 0
        key_stops = np.cumsum(self.counts[:n_nodes])
        handle, path = tempfile.mkstemp(dir=self.folder, suffix=".indices")
        with os.fdopen(handle, "wb") as file:
            start = 0
            while start < len(key_stops):
                before = key_stops[start - 1] if start else 0
                stop = max(int(np.searchsorted(key_stops, before + self.run_keys, side="right")),
                           start + 1)
                keys, weights = _in_order(*self._between(start, stop))
                columns, weights, degrees[start:stop], repeated = self._distinct(keys, weights,
                                                                                 start, stop)
                columns.astype(index_dtype(n_nodes)).tofile(file)
                merged_weights += [] if weights is None else [weights]
                n_repeated += repeated
                start = stop
        indices = np.memmap(path, index_dtype(n_nodes),
                            "r") if degrees.any() else np.zeros(0, index_dtype(n_nodes))
        for run in self.runs:
            os.unlink(str(run.filename))
        for path in self.run_weights:
            os.unlink(path)
        self.runs, self.run_weights = [], []
        return (_indptr(degrees), indices,
                np.concatenate(merged_weights) if self.weighted else None, n_repeated)

    def _between(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Keys and weights of the rows start:stop of all runs, one run after the other."""
        keys, weights = [], [np.zeros(0, np.float32)]
        for number, run in enumerate(self.runs):
            low, high = (int(at) for at in np.searchsorted(
                run, np.array([start, stop], np.uint64) << _ROW))
            # read rather than mapped: mapped pages would count as memory in use
            keys.append(np.fromfile(str(run.filename), np.uint64, high - low, offset=8 * low))
            if self.weighted:
                weights.append(np.fromfile(self.run_weights[number], np.float32, high - low,
                                           offset=4 * low))
        return np.concatenate(keys), np.concatenate(weights) if self.weighted else None

    def _distinct(self, keys: np.ndarray, weights: np.ndarray | None, start: int,
                  stop: int) -> tuple[np.ndarray, np.ndarray | None, np.ndarray, int]:
        """(columns, weights, number of them in each of the rows start:stop, edges that the user
        listed twice) of sorted keys."""
        given = keys[(keys & _TURNED) == 0]
        again = given[1:] == given[:-1]
        n_repeated = int(np.count_nonzero(again))
        if n_repeated and self.repeated is None:
            key = int(given[int(again.argmax())])
            self.repeated = (key >> 1) & (2 ** 31 - 1), key >> 32
        turned = (keys & _TURNED) != 0
        keys = keys >> _TURNED
        first = np.ones(len(keys), bool)
        np.not_equal(keys[1:], keys[:-1], out=first[1:])
        if weights is not None:
            _check_both_ways(keys, weights, first, turned)
            weights = weights[first]
        keys = keys[first]
        rows = (keys >> np.uint64(31)).astype(np.int64)
        return ((keys & _COLUMN_MASK).astype(np.int64), weights,
                np.bincount(rows - start, minlength=stop - start), n_repeated)


def _in_order(keys: np.ndarray,
              weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Sorted keys with their weights; of equal keys the first stays the first."""
    if weights is None:
        keys.sort()
        return keys, None
    order = np.argsort(keys, kind="stable")
    return keys[order], weights[order]


def _check_both_ways(keys: np.ndarray, weights: np.ndarray, first: np.ndarray,
                     turned: np.ndarray):
    """Refuse an edge that was given both ways with different weights, where both are to be one."""
    starts = np.flatnonzero(first)
    given = starts[np.cumsum(first) - 1]                 # where the equal keys of each begin
    first_turned = turned & (first | np.append(True, ~turned[:-1]))
    wrong = np.flatnonzero(first_turned & ~turned[given] & (weights != weights[given]))
    if len(wrong):
        key, at = int(keys[wrong[0]]), wrong[0]
        raise GraphError(f"the edge between nodes {key & (2 ** 31 - 1)} and {key >> 31} has the "
                         f"weight {weights[given[at]]:g} one way and {weights[at]:g} the other; "
                         "expected the same, or no --undirected")


def _indptr(degrees: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
