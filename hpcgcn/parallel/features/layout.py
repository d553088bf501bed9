"""Feature parallelism: who owns which rows and which columns, and the arrays of all nodes by some
columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpcgcn.exchange.codecs import Rows as MessageRows


class Layout:
    """Who owns which rows and which columns, and how rows are cut into blocks; equal on all
    ranks."""

    def __init__(self, runtime, backend, offsets: np.ndarray, aggregators: list[int],
                 n_blocks: int):
        self.runtime, self.backend, self.offsets, self.n_blocks = (runtime, backend, offsets,
                                                                   n_blocks)
        self.rank, self.size = runtime.rank, runtime.size
        self.aggregators = aggregators

    def rows(self, rank: int, block: int) -> tuple[int, int]:
        """Global rows of one block of a rank."""
        start, n = int(self.offsets[rank]), int(self.offsets[rank + 1] - self.offsets[rank])
        return start + n * block // self.n_blocks, start + n * (block + 1) // self.n_blocks

    def local_rows(self, block: int) -> tuple[int, int]:
        """The same of this rank, counted from its first row."""
        start, stop = self.rows(self.rank, block)
        first = int(self.offsets[self.rank])
        return start - first, stop - first

    def blocks_read(self, structure) -> list[list[int]]:
        """For each block of rows of a matrix the blocks of rows that it gathers from: few where the
        node order keeps neighbours together, and then its product need not wait for the others."""
        block_of = np.empty(int(self.offsets[-1]), np.int64)
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
