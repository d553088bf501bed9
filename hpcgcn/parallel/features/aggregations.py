"""Aggregation by feature slices, update by node slices: volume that does not grow with the ranks
(MixGCN).

Every rank aggregates some columns of ALL nodes with the whole adjacency, and updates all columns of
SOME nodes. A hop is three moves: rows become columns (gather), the sparse product on the slice,
columns become rows (scatter). Both transposes are cut into blocks of rows: a block is sent while
the next one is computed, and the product of a block begins when the blocks that it reads are here
(all of them, unless the nodes are ordered so that neighbours are near).

How many transposes: a product with the adjacency needs all rows of a column, one with a weight all
columns of a row, and so does a norm or the loss; each change from one to the other is a transpose,
and none can be left out. So a hop costs two forward and two backward, and the first layer of gcn
and sage none where its aggregation is computed once. Only where all that stands between two hops is
element-wise does it happen on the columns, and the two transposes around it cancel: in a gcn
without norm whose layer 1 is not precomputed (sparse features), hops 1 and 2 cost one forward and
one backward each. Models with a product of the node's own row in between, or a weight between every
two hops, always pay both.

Roles: a rank may own no rows (it only aggregates) or no columns (it only updates): MixGCN's mixture
of accelerators.
"""

from __future__ import annotations

import numpy as np

from hpcgcn.exchange.exchange import Exchange
from hpcgcn.exchange.types import Policy
from hpcgcn.mpi import large
from hpcgcn.mpi.runtime import Runtime
from hpcgcn.nn.plan import element_wise_between
from hpcgcn.parallel.aggregation import Aggregation, Aggregations, gathers_gradient, scales
from hpcgcn.parallel.features.layout import Between, Layout, Slices
from hpcgcn.parallel.features.transposes import BACKWARD, FORWARD, Transposes


class Product:
    """A matrix to multiply with, and which blocks of rows each block of its rows gathers from."""

    def __init__(self, layout: Layout, structure, row_scale, column_scale):
        self.matrix = layout.backend.csr(structure.indptr, structure.indices, structure.n_columns,
                                         None, row_scale, column_scale)
        self.reads = layout.blocks_read(structure)


class TransposedAggregation(Aggregation):
    """out (= or +=) A x: gather columns, multiply, scatter rows; block by block.

    Without `gather` the columns are there already, left by the hop before; without `scatter` they
    stay, for the hop after. `on_columns(rows, context)` is called for rows of the product as soon
    as they are there. `received_whole`: what arrives is complete rows, in their place.
    """

    def __init__(self, layout: Layout, product: Product, x, out, adds: bool, gather: list[Exchange],
                 scatter: list[Exchange], slice_in, slice_out, progress: Runtime, on_columns=None,
                 received_whole: bool = False):
        self.layout, self.product, self.x, self.out = layout, product, x, out
        self.gather, self.scatter, self.slice_in, self.slice_out = (gather, scatter, slice_in,
                                                                    slice_out)
        self.progress, self.on_columns, self.received_whole, self.pushed = (progress, on_columns,
                                                                         received_whole, 0)
        self.multiply_adds = product.matrix.nnz * slice_in.shape[1]
        self.only_aggregates = len(x) == 0
        largest = max(stop - start
                      for start, stop in map(layout.local_rows, range(layout.n_blocks)))
        self.whole = layout.backend.zeros((largest, out.shape[1])) if adds and scatter else None

    def push(self, rows, context):
        """Blocks come in order; a rank without rows pushes empty ones, which is how it starts to
        receive."""
        block, layout = self.pushed, self.layout
        self.pushed = (block + 1) % layout.n_blocks
        start, stop = layout.rows(layout.rank, block)
        columns = layout.columns(layout.rank, self.x.shape[1])
        layout.backend.copy(self.x[rows[0]:rows[1], columns], self.slice_in[start:stop])
        self.gather[block].start(self.x, context.epoch)
        self.progress.progress()

    def pull(self, context):
        for block in range(self.layout.n_blocks):
            if self.gather:
                for read in self.product.reads[block]:
                    self.gather[read].finish()
            self._multiply(block, context)
            if not self.scatter:  # no row is ever complete: the next hop goes on with the columns
                continue
            self.scatter[block].start(self.slice_out, context.epoch)
            if self.only_aggregates:         # goes on at once: it need not see its columns arrive
                yield 0, 0
            elif block:
                yield self._complete(block - 1)
        if self.only_aggregates:
            for exchange in self.scatter:
                exchange.finish()
        elif self.scatter:
            yield self._complete(self.layout.n_blocks - 1)
        for exchange in self.gather:         # blocks that nothing read
            exchange.finish()

    def _multiply(self, block: int, context):
        layout = self.layout
        for rank in range(layout.size):
            rows = layout.rows(rank, block)
            layout.backend.spmm(self.product.matrix, self.slice_in, self.slice_out, rows=rows)
            if self.on_columns:
                self.on_columns(rows, context)
            self.progress.progress()

    def _complete(self, block: int):
        """Put the columns of a block together, as they come from all ranks."""
        layout, backend, exchange = self.layout, self.layout.backend, self.scatter[block]
        exchange.finish()
        start, stop = layout.local_rows(block)
        target = self.out[start:stop] if self.whole is None else self.whole[:stop - start]
        width, mine = target.shape[1], layout.rows(layout.rank, block)
        backend.copy(self.slice_out[mine[0]:mine[1]], target[:, layout.columns(layout.rank, width)])
        for route, piece in zip(exchange.routes, exchange.buffer.arrays):
            if len(piece) and not self.received_whole:      # more ranks than columns: some own none
                backend.copy(piece, target[:, layout.columns(route.peer, width)])
        if self.whole is not None:
            backend.axpby(1.0, self.out[start:stop], 1.0, target, self.out[start:stop])
        return start, stop


class TransposedAggregations(Aggregations):
    """Two transposes per hop and direction.

    `aggregators` are the ranks that own columns (default: all).
    """

    def __init__(self, runtime: Runtime, backend, whole, model, policies, plain: Policy, *,
                 seed: int, n_blocks: int, aggregators: list[int] | None = None):
        self.runtime, self.backend = runtime, backend
        self.layout = Layout(runtime, backend, whole.offsets,
                             aggregators or list(range(runtime.size)), n_blocks)
        self.slices = Slices(backend, whole.n_nodes)
        self.transposes = Transposes(self.layout, seed)
        self.exchanges = self.transposes.exchanges
        if aggregators:
            self.role = "sparse" if runtime.rank in aggregators else "dense"
        self.between = self._between(model, whole)
        rows, columns, _ = scales(model.shape.normalisation, whole.degree, whole.degree[:0],
                                  backend.dtype)
        product = Product(self.layout, whole.matrix, rows, columns)
        transposed = Product(self.layout, whole.matrix_t, columns, rows)
        self.forward: list[TransposedAggregation] = []
        self.backward: list[TransposedAggregation | None] = []
        self.evaluation: list[TransposedAggregation] = []
        for hop in model.hops:
            policy = policies(hop.number, "forward")
            self.forward.append(self._forward(hop, product, policy))
            self.backward.append(self._backward(hop, transposed, policies(hop.number, "backward"))
                                 if gathers_gradient(hop) else None)
            self.evaluation.append(self.forward[-1] if policy.exact
                                   else self._forward(hop, product, plain, training=False))
        self.blocks = [self.layout.local_rows(k) for k in range(n_blocks)]

    def _between(self, model, whole) -> dict[int, Between]:
        steps = element_wise_between(model)
        if not steps:
            return {}
        ids = self.backend.from_host(np.concatenate(large.allgather(self.runtime.comm, whole.ids)))
        return {hop: Between(step, self.layout, self.slices, hop, ids)
                for hop, step in steps.items()}

    def _forward(self, hop, product: Product, policy: Policy,
                 training=True) -> TransposedAggregation:
        before, after = self.between.get(hop.number - 1), self.between.get(hop.number)
        return self._aggregation(hop, product, hop.source.value, hop.target.value, False, policy,
                                 FORWARD, training, before and before.values,
                                 after and after.values, after and after.forward)

    def _backward(self, hop, product: Product, policy: Policy) -> TransposedAggregation:
        before, after = self.between.get(hop.number - 1), self.between.get(hop.number)
        return self._aggregation(hop, product, hop.target.grad, hop.source.grad,
                                 hop.source.adds(hop), policy, BACKWARD, True,
                                 after and after.gradients, before and before.gradients,
                                 before and before.backward)

    def _aggregation(self, hop, product: Product, x, out, adds, policy: Policy, direction: int,
                     training: bool, columns_in, columns_out, on_columns) -> TransposedAggregation:
        """columns_in, columns_out: where the columns are, or stay, if no transpose brings or takes
        them."""
        mine = self.layout.slice_width(self.runtime.rank, x.shape[1])
        gather, scatter, slice_in, slice_out = [], [], columns_in, columns_out
        if columns_in is None:
            # Stale rows must outlive the epoch: such hops do not share their input slice.
            generation = hop.number if policy.staleness else hop.number % 2
            slice_in = self.slices.get(f"in {direction} {training} {policy.staleness}", generation,
                                       mine)
            gather = self.transposes.gather(hop, x, slice_in, policy, direction, training)
        if columns_out is None:
            slice_out = self.slices.get("out", 0, mine)
            scatter = self.transposes.scatter(hop, slice_out, out, adds, policy, direction,
                                              training)
        return TransposedAggregation(self.layout, product, x, out, adds, gather, scatter, slice_in,
                                     slice_out, self.runtime,
                                     on_columns, self.transposes.received_whole(adds, policy))

    def close(self):
        """Take in what is in flight and free the persistent requests."""
        made = (*self.forward, *self.backward, *self.evaluation)
        for aggregation in {id(a): a for a in made if a is not None}.values():
            for exchange in aggregation.gather + aggregation.scatter:
                exchange.close()
