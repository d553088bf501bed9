"""Hops with attention, where each rank owns the nodes of one part.

A boundary row's softmax is made of two parts: of its neighbours here while halo rows are in flight,
then of the halo rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpcgcn.mpi.runtime import Runtime
from hpcgcn.parallel.aggregation import Storage, planned_gradient, row_blocks
from hpcgcn.parallel.attention import AttentionProducts, SourceRows
from hpcgcn.parallel.partition.halo_aggregation import HaloAggregation
from hpcgcn.parallel.partition.host_exchange import HaloExchange
from hpcgcn.parallel.partition.matrices import HaloMatrices, PartitionedMatrices


class AttentionForward(HaloAggregation):
    """Softmax and weighted sum over owned and halo rows, for the first rows of the target."""

    packed = None                    # rows are sent from the source itself

    def __init__(self, matrices: PartitionedMatrices, halo: HaloMatrices,
                 products: AttentionProducts, rows: tuple[int, int], exchange: HaloExchange,
                 blocking: bool, progress: Runtime):
        hop = products.hop
        super().__init__(matrices, halo, exchange, rows, hop.target.width, blocking, progress,
                         hop.number, "forward")
        self.products = products
        self.storage = Storage(matrices.backend, hop.source.planned_value)
        n_received, heads, zeros = (halo.plan.n_received, products.attention.heads,
                                    matrices.backend.zeros)
        self._halo_logits = zeros((n_received, heads)), zeros((n_received, heads))
        ids = np.append(matrices.local.halo_ids, -1)[halo.plan.halo_row]
        self._halo_ids = matrices.backend.from_host(ids)
        self.halo_rows: Any = None               # SourceRows of this pass, which backward reads
        n_entries = int(matrices.local.inner.indptr[rows[1]]) + halo.n_entries
        self.multiply_adds = n_entries * hop.target.width

    def push(self, rows, context):
        self.products.make_logits(rows)
        super().push(rows, context)

    def _send(self, context):
        self.exchange.start(self.products.hop.source.value, context.epoch)

    def pull(self, context):
        self._begin(context)
        products, own, progress = self.products, self.products.own, self.progress.progress
        trace, marks = self.progress.trace, self.marks
        for rows in self.interior:
            trace.switch(marks.interior)
            products.attend(self.matrices.inner, own, rows, True, True, context)
            progress()
            yield rows
        trace.switch(marks.boundary)
        for rows in self.boundary:
            products.attend(self.matrices.inner, own, rows, True, False, context)
            progress()
        self.halo_rows = products.received(self.exchange.finish(), *self._halo_logits,
                                           self._halo_ids)
        for rows in self.boundary:
            trace.switch(marks.halo)
            products.attend(self.halo.outer, self.halo_rows, rows, False, True, context)
            progress()
            yield rows


class AttentionBackward(HaloAggregation):
    """Gradients of owned rows; those of halo rows go to their owners."""

    def __init__(self, matrices: PartitionedMatrices, forward: AttentionForward,
                 rows: tuple[int, int], halo_gradient, exchange: HaloExchange, blocking: bool,
                 progress: Runtime):
        """forward: the same hop's. halo_gradient: (n_received, width), what the exchange sends."""
        hop = forward.products.hop
        super().__init__(matrices, forward.halo, exchange, rows, hop.source.width, blocking,
                         progress, hop.number, "backward")
        self.forward, self.products, self.halo_gradient = forward, forward.products, halo_gradient
        self.inner_t = matrices.inner_t(rows[0])
        self.storage = Storage(matrices.backend, planned_gradient(hop.target))
        self.received = row_blocks(matrices.backend, 0, len(halo_gradient), hop.source.width)
        self.multiply_adds = (self.inner_t.nnz + self.halo.n_entries) * hop.source.width

    def push(self, rows, context):
        self.products.make_facts(rows)
        super().push(rows, context)

    def _send(self, context):
        halo: SourceRows = self.forward.halo_rows
        self.progress.trace.switch(self.marks.halo)
        for rows in self.received:
            self.products.gradients(self.halo.outer_t, halo, self.halo_gradient, rows, False,
                                    context)
            self.progress.progress()
        self.exchange.start(self.halo_gradient, context.epoch)

    def pull(self, context):
        self._begin(context)
        for rows in self.interior:
            self.progress.trace.switch(self.marks.interior)
            self._own_gradients(rows, context)
            yield rows
        self.progress.trace.switch(self.marks.boundary)
        for rows in self.boundary:
            self._own_gradients(rows, context)
        hop = self.products.hop
        self.halo.add_gradients(self.exchange.finish(), hop.source.grad, None)
        yield from self.boundary

    def _own_gradients(self, rows, context):
        products, hop = self.products, self.products.hop
        products.gradients(self.inner_t, products.own, hop.source.grad, rows,
                           hop.source.adds(hop), context)
        products.target_gradients(rows, self.n_source)
        self.progress.progress()
