"""How a host's rows are cut into blocks, each of which its ranks share, and who has which columns.

The rows of a host are in the order of its local graph: interior, then boundary. A block is a range
of them. Rank r of the host updates the r-th share of every block. So all ranks have equally much to
do of each kind of rows, a block of rows of all ranks is one contiguous range of the host's arrays,
and its shares of all blocks, one after another, are contiguous in a rank's own arrays.
"""

from __future__ import annotations

import numpy as np

from hpcgcn.exchange.codecs import Rows as MessageRows
from hpcgcn.parallel.features.layout import Layout

BLOCKS = 4                           # of the interior and of the boundary: they overlap
LEAST_ROWS = 64                      # per rank and block


def cut_blocks(n_interior: int, n_rows: int, ranks: int) -> np.ndarray:
    """Where blocks begin, and the end of the last one."""
    bounds = [0]
    for start, stop in ((0, n_interior), (n_interior, n_rows)):
        size = max(-(-(stop - start) // BLOCKS), LEAST_ROWS * ranks)
        bounds += [min(at + size, stop) for at in range(start, stop, size)]
    return np.array(bounds, np.int64)


class HostLayout(Layout):
    """Who owns which rows and which columns of a host: all its ranks both."""

    def __init__(self, runtime, backend, bounds: np.ndarray, ids: np.ndarray):
        """runtime: of the host's ranks. bounds: of the blocks. ids: (n_rows,) original ids."""
        super().__init__(runtime, backend, bounds, list(range(runtime.size)), len(bounds) - 1)
        self.ids, self._local = ids, local_bounds(bounds, runtime.rank, runtime.size)

    def host_rows(self, block: int) -> tuple[int, int]:
        """A block's rows of the host."""
        return int(self.offsets[block]), int(self.offsets[block + 1])

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
