"""Feature parallelism: who owns which rows and which columns, and the arrays of all nodes by some
columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpcgcn.exchange.codec import Rows as MessageRows


class Layout:
    """Who owns which rows and which columns, and how rows are cut into blocks; equal on all
    ranks."""

    def __init__(self, runtime, backend, aggregators: list[int], n_blocks: int):
        self.runtime, self.backend, self.n_blocks = runtime, backend, n_blocks
        self.rank, self.size = runtime.rank, runtime.size
        self.aggregators = aggregators

    def rows(self, rank: int, block: int) -> tuple[int, int]:
        """Rows of one block of a rank, in arrays of all nodes."""
        raise NotImplementedError

    def local_rows(self, block: int) -> tuple[int, int]:
        """The same of this rank, counted in its own rows."""
        raise NotImplementedError

    def columns(self, rank: int, width: int) -> slice:
        """Columns that a rank aggregates: as equal as whole columns can be, none for a rank that
        only updates."""
        if rank not in self.aggregators:
            return slice(0, 0)
        k, n = self.aggregators.index(rank), len(self.aggregators)
        return slice(width * k // n, width * (k + 1) // n)

    def slice_width(self, rank: int, width: int) -> int:
        """Number of columns that a rank aggregates."""
        columns = self.columns(rank, width)
        return columns.stop - columns.start

    def message_rows(self, rank: int, block: int, width: int) -> MessageRows:
        """Rows of a message; a message without columns has none."""
        start, stop = self.rows(rank, block)
        ids = np.arange(start, stop if width else start, dtype=np.int64)
        return MessageRows(None, self.backend.from_host(ids), ids)

    def peers(self) -> list[int]:
        """The other ranks, nearest first, so that not all send to the same one at once."""
        return [(self.rank + k) % self.size for k in range(1, self.size)]


class NodeLayout(Layout):
    """All nodes in the order of their distances from the loss, and of their ranks within each.

    So the rows that a block of the model needs are the first ones, of all ranks together and of
    each. Blocks are cut within a distance.
    """

    def __init__(self, runtime, backend, counts: np.ndarray, aggregators: list[int],
                 n_blocks: int):
        """counts: (distances, ranks) nodes of each. n_blocks: of all nodes, about."""
        totals = counts.sum(axis=1)
        pieces = -(-totals * n_blocks // max(int(totals.sum()), 1))
        self.blocks = [(distance, k, int(n)) for distance, n in enumerate(pieces)
                       for k in range(n)]
        super().__init__(runtime, backend, aggregators, len(self.blocks))
        self.counts, self.first = counts, first_rows(counts)
        self.local_first = np.cumsum(counts[:, self.rank]) - counts[:, self.rank]

    def rows(self, rank: int, block: int) -> tuple[int, int]:
        distance, k, n_pieces = self.blocks[block]
        start, n = int(self.first[distance, rank]), int(self.counts[distance, rank])
        return start + n * k // n_pieces, start + n * (k + 1) // n_pieces

    def local_rows(self, block: int) -> tuple[int, int]:
        start, stop = self.rows(self.rank, block)
        distance = self.blocks[block][0]
        shift = int(self.local_first[distance] - self.first[distance, self.rank])
        return start + shift, stop + shift

    def first_blocks(self, limit: int) -> list[int]:
        """The blocks of nodes that are at most so far from the loss."""
        return [block for block, (distance, _, _) in enumerate(self.blocks) if distance <= limit]

    def n_rows(self, limit: int) -> int:
        """How many nodes they are: the first ones."""
        return int(self.counts[:limit + 1].sum())

    def n_local_rows(self, limit: int) -> int:
        """How many of them are this rank's."""
        return int(self.counts[:limit + 1, self.rank].sum())

    def blocks_read(self, structure) -> list[list[int]]:
        """For each block of rows of a matrix the blocks of rows that it gathers from: few where the
        node order keeps neighbours together, and then its product need not wait for the others."""
        block_of = np.empty(int(self.counts.sum()), np.int64)
        for rank in range(self.size):
            for block in range(self.n_blocks):
                block_of[slice(*self.rows(rank, block))] = block
        counts = np.zeros((self.n_blocks, self.n_blocks), np.int64)
        for rank in range(self.size):
            for block in range(self.n_blocks):
                start, stop = self.rows(rank, block)
                sources = structure.indices[structure.indptr[start]:structure.indptr[stop]]
                counts[block] += np.bincount(block_of[sources], minlength=self.n_blocks)
        return [np.flatnonzero(row).tolist() for row in counts]


def first_rows(counts: np.ndarray) -> np.ndarray:
    """Where the nodes of each distance and rank begin; counts and result: (distances, ranks)."""
    return (np.cumsum(counts) - counts.reshape(-1)).reshape(counts.shape)


class Slices:
    """Arrays of all nodes by this rank's columns, shared by hops that are never alive together."""

    def __init__(self, backend, n_nodes: int):
        self.backend, self.n_nodes = backend, n_nodes
        self._arrays: dict[tuple[str, int, int], Any] = {}       # backend arrays

    def get(self, role: str, generation: int, width: int):
        """The array for this key, made when it is first asked for."""
        slot = (role, generation, width)
        if slot not in self._arrays:
            self._arrays[slot] = self.backend.zeros((self.n_nodes, width))
        return self._arrays[slot]


class Between:
    """An element-wise step between two hops, on this rank's columns of all rows: nothing is
    transposed for it."""

    def __init__(self, step, layout: Layout, slices: Slices, hop: int, ids):
        width = step.target.width
        mine = layout.slice_width(layout.rank, width)
        self.step, self.columns, self.ids = step, layout.columns(layout.rank, width), ids
        self.values = slices.get("values between", hop, mine)  # kept for the way back, as the mask
        self.gradients = slices.get("gradients between", hop % 2, mine)

    def forward(self, rows: tuple[int, int], context):
        """The step on this rank's columns."""
        block = slice(*rows)
        self.step.forward_slice(self.values[block], self.columns, self.ids[block], context)

    def backward(self, rows: tuple[int, int], context):
        """Back through the step: the mask of its ReLU and dropout, and the bias's gradient, which
        needs the masked rows too.

        Here the product that follows could apply the mask itself (`spmm(mask=...)`; the fused
        operator of the MixGCN paper, S-SpMM, is not published, and that is our reading of it).
        Alone it is 2 to 12 % faster than mask, then product; with the bias it saves no pass over
        the rows and is 4 to 16 % slower (benchmarks/results/mixgcn-masked.md).
        """
        block = slice(*rows)
        self.step.backward_slice(self.gradients[block], self.values[block], self.columns, context)
