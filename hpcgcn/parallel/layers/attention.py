"""Hops with attention in a pipeline: one chunk's softmax and weighted sum, forward and back.

A row's softmax takes current rows of its own and of earlier chunks and, of later ones, rows of the
snapshot, whose logits are computed with the vectors of today. Going back, an edge to a snapshot
carries nothing, neither to its row nor to the source vector; the target's own logit takes part in
all coefficients of its row. Where edges across chunks count twice, what they bring to a row and
through its source logit is doubled.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hpcgcn.nn.steps import PassContext
from hpcgcn.parallel.aggregation import Rows, row_blocks
from hpcgcn.parallel.attention import AttentionProducts, SourceRows
from hpcgcn.parallel.layers.hops import BackwardHop, ChunkHalo, ForwardHop
from hpcgcn.parallel.layers.matrices import ChunkedGraph


class HaloLogits:
    """The logits of rows on other partitions, beside the rows."""

    def __init__(self, graph: ChunkedGraph, products: AttentionProducts, rows):
        """rows: (n_halo, width), where halo rows arrive."""
        backend, heads = graph.backend, products.attention.heads
        self.products = products
        self.source = SourceRows(rows, backend.zeros((len(rows), heads)),
                                 backend.zeros((len(rows), heads)),
                                 backend.from_host(graph.local.halo_ids))

    def renew(self, rows: slice):
        """These rows have arrived."""
        source = self.source
        if rows.stop > rows.start:
            self.products.received(source.x[rows], source.logits[rows], source.dlogits[rows],
                                   source.ids[rows])


class AttentionForwardHop(ForwardHop):
    """Softmax and weighted sum, chunk by chunk."""

    def __init__(self, graph: ChunkedGraph, hop, halo_array, halo: ChunkHalo | None, progress,
                 training: bool, products: AttentionProducts, halo_logits: HaloLogits | None):
        super().__init__(graph, hop, halo_array, halo, progress, training)
        self.products, self.halo_logits = products, halo_logits
        self.read = hop.number - 1 if training else None

    def begin(self):
        """All rows are those of the snapshot until they are pushed."""
        x, attention = self.x, self.products.attention
        self.graph.backend.head_dots(x, attention.source_vector.value.reshape(-1),
                                     attention.source_logits.data)
        if self.halo_logits:
            self.halo_logits.renew(slice(0, len(self.halo_array)))

    def push(self, chunk: int, context: PassContext):
        rows = self.graph.rows(chunk, self.read)
        if rows[1] > rows[0]:
            self.products.make_logits(rows)
        super().push(chunk, context)

    def pull(self, chunk: int, context: PassContext, exact: bool) -> Iterator[Rows]:
        graph, products, own = self.graph, self.products, self.products.own
        blocks = row_blocks(graph.backend, *graph.rows(chunk, self.made), self.out.shape[1])
        halo = self.halo_logits
        of_owned = [(pair[0], own) for pair in graph.forward]
        of_halo = [(pair[1], halo.source) for pair in graph.forward] if halo else []
        n_parts = len(of_owned) + len(of_halo)
        for rows in blocks:
            for k, (matrix, source) in enumerate(of_owned):
                products.attend(matrix, source, rows, k == 0, k == n_parts - 1, context)
            self.progress.progress()
            if not halo:
                yield rows
        if not halo:
            return
        for arrived in self._receive(chunk, exact):
            halo.renew(arrived)
        for rows in blocks:
            for k, (matrix, source) in enumerate(of_halo, len(of_owned)):
                products.attend(matrix, source, rows, False, k == n_parts - 1, context)
            self.progress.progress()
            yield rows


class AttentionBackwardHop(BackwardHop):
    """Gradients of rows through their coefficients and logits, chunk by chunk."""

    def __init__(self, graph: ChunkedGraph, hop, halo: ChunkHalo | None, progress,
                 products: AttentionProducts, halo_logits: HaloLogits | None):
        super().__init__(graph, hop, halo, progress)
        self.products, self.halo_logits = products, halo_logits

    def begin(self):
        """No chunk is there yet: gradients of all rows are zero, and so is what follows from
        them."""
        self.products.make_facts((0, len(self.dz)))

    def push(self, chunk: int):
        """The gradient of a chunk's output is complete."""
        rows = self.graph.rows(chunk, self.number)
        if rows[1] > rows[0]:
            self.products.make_facts(rows)

    def pull(self, chunk: int, context: PassContext, exact: bool) -> Iterator[Rows]:
        graph, products = self.graph, self.products
        matrices = list(zip(graph.backward(self.number, exact), graph.factors(exact)))
        first, last = graph.rows(chunk, self.number - 1)
        targets = graph.rows(chunk, self.number)[1]
        blocks = row_blocks(graph.backend, first, last, self.dx.shape[1])
        if self.halo:
            for _, _, halo in self.halo.slices[chunk]:
                self._gather(matrices, 1, (halo.start, halo.stop), self.halo_gradient, False,
                             context)
            self.halo.start(chunk, self.halo_gradient, context.epoch)
        for rows in blocks:
            self._gather(matrices, 0, rows, self.dx, self.adds, context)
            products.target_gradients(rows, targets)
            self.progress.progress()
            if not self.halo:
                yield rows
        if self.halo:
            self.halo.add_gradients(chunk, self.dx)
            yield from blocks

    def _gather(self, matrices: list, side: int, rows: Rows, dx: Any, adds: bool,
                context: PassContext):
        """Gradients of some rows, from all pieces of the transpose."""
        products = self.products
        if rows[1] == rows[0]:
            return
        source = self.halo_logits.source if side and self.halo_logits else products.own
        for pair, times in matrices:
            products.gradients(pair[side], source, dx, rows, adds, context, times)
            adds = True
