"""How a host's rows are cut into blocks, each of which its ranks share, and who has which columns.

The rows of a host are in the order of its local graph: by their distance from the loss, and within
a distance interior rows first. A block is a range of them, of one distance and kind. Rank r of the
host updates the r-th share of every block. So all ranks have equally much to do of each kind of
rows, a block of rows of all ranks is one contiguous range of the host's arrays, and its shares of
all blocks, one after another, are contiguous in a rank's own arrays: the rows that a block of the
model needs are the first ones there, too.
"""

from __future__ import annotations

import numpy as np

from hpcgcn.exchange.codec import Rows as MessageRows
from hpcgcn.parallel.features.layout import Layout
from hpcgcn.parallel.local_graph import LocalGraph

BLOCKS = 4                           # of the interior and of the boundary: they overlap
LEAST_ROWS = 64                      # per rank and block


def cut_blocks(local: LocalGraph, ranks: int) -> tuple[np.ndarray, np.ndarray]:
    """(where blocks begin, and the end of the last one; the blocks in the order of a pass: interior
    rows, then boundary rows)."""
    starts = []
    for boundary in (False, True):
        runs = local.runs(local.n_owned, boundary)
        size = max(-(-sum(stop - start for start, stop in runs) // BLOCKS), LEAST_ROWS * ranks)
        starts += [at for start, stop in runs for at in range(start, stop, size)]
    order = np.argsort(np.argsort(np.array(starts, np.int64)))
    return np.append(np.sort(np.array(starts, np.int64)), local.n_owned), order


class HostLayout(Layout):
    """Who owns which rows and which columns of a host: all its ranks both."""

    def __init__(self, runtime, backend, graph):
        """runtime: of the host's ranks. graph: HostGraph."""
        bounds = graph.bounds
        super().__init__(runtime, backend, list(range(runtime.size)), len(bounds) - 1)
        self.bounds = bounds
        self.ids, self._local = graph.host.ids, local_bounds(bounds, runtime.rank, runtime.size)
        self._in_pass, self._boundary = graph.in_pass.tolist(), graph.host.boundary

    def first_blocks(self, n_rows: int) -> list[int]:
        """The blocks of the host's first rows, in the order of a pass."""
        return [block for block in self._in_pass if self.bounds[block + 1] <= n_rows]

    def host_rows(self, block: int) -> tuple[int, int]:
        """A block's rows of the host."""
        return int(self.bounds[block]), int(self.bounds[block + 1])

    def completes(self, rows: tuple[int, int], block: int) -> bool:
        """Is a block complete with these rows of the host, if rows of its kind come in order?"""
        start, stop = self.host_rows(block)
        return stop <= rows[1] and bool(self._boundary[start] == self._boundary[rows[0]])

    def rows(self, rank: int, block: int) -> tuple[int, int]:
        """A rank's share of them."""
        return share(*self.host_rows(block), rank, self.size)

    def local_rows(self, block: int) -> tuple[int, int]:
        return int(self._local[block]), int(self._local[block + 1])

    def message_rows(self, rank: int, block: int, width: int) -> MessageRows:
        start, stop = self.rows(rank, block)
        ids = self.ids[start:stop if width else start]
        return MessageRows(None, self.backend.from_host(ids), ids)


def share(start: int, stop: int, rank: int, ranks: int) -> tuple[int, int]:
    """The range of one of some ranks that divide a range evenly."""
    return start + (stop - start) * rank // ranks, start + (stop - start) * (rank + 1) // ranks


def local_bounds(bounds: np.ndarray, rank: int, ranks: int) -> np.ndarray:
    """Where a rank's shares of the blocks begin in its own rows, and the end of the last one."""
    shares = [share(int(start), int(stop), rank, ranks) for start, stop in zip(bounds, bounds[1:])]
    return np.concatenate([[0], np.cumsum([last - first for first, last in shares])]).astype(int)


def rows_of(bounds: np.ndarray, rank: int, ranks: int) -> np.ndarray:
    """A rank's rows of the host, in its own order."""
    shares = [share(int(start), int(stop), rank, ranks) for start, stop in zip(bounds, bounds[1:])]
    return np.concatenate([np.zeros(0, np.int64), *(np.arange(*pair) for pair in shares)])
