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

import copy

from hpcgcn.exchange.exchange import Exchange
from hpcgcn.exchange.types import Policy
from hpcgcn.mpi.runtime import Runtime
from hpcgcn.nn.plan import element_wise_between
from hpcgcn.parallel.aggregation import (
    Aggregation,
    Aggregations,
    Rows,
    gathers_gradient,
    scales,
)
from hpcgcn.parallel.features.layout import Between, NodeLayout, Slices
from hpcgcn.parallel.features.transposes import BACKWARD, FORWARD, Transposes


class Product:
    """A matrix to multiply with, and which blocks of rows each block of its rows gathers from."""

    def __init__(self, layout: NodeLayout, structure, row_scale, column_scale):
        self.layout, self.structure = layout, structure
        self.scales = row_scale, column_scale
        self.matrix = self.of_columns(None)
        self.reads = layout.blocks_read(structure)

    def of_columns(self, row_ends):
        """The matrix without the entries of each row from its end on."""
        return self.layout.backend.csr(self.structure.indptr, self.structure.indices,
                                       self.structure.n_columns, self.structure.weights,
                                       *self.scales, row_ends)


class TransposedAggregation(Aggregation):
    """out (= or +=) A x: gather columns, multiply, scatter rows; block by block.

    Without `gather` the columns are there already, left by the hop before; without `scatter` they
    stay, for the hop after. `on_columns(rows, context)` is called for rows of the product as soon
    as they are there. `received_whole`: what arrives is complete rows, in their place.
    """

    def __init__(self, layout: NodeLayout, product: Product, matrix, limits: tuple[int, int], x,
                 out, adds: bool, gather: dict[int, Exchange], scatter: dict[int, Exchange],
                 slice_in, slice_out, progress: Runtime, on_columns=None,
                 received_whole: bool = False):
        """matrix: the product's, or that of fewer columns. limits: how far from the loss rows are
        that it reads and makes."""
        self.layout, self.product, self.matrix, self.x, self.out = layout, product, matrix, x, out
        self.gather, self.scatter, self.slice_in, self.slice_out = (gather, scatter, slice_in,
                                                                    slice_out)
        self.progress, self.on_columns, self.received_whole, self.pushed = (progress, on_columns,
                                                                         received_whole, 0)
        self.only_aggregates = len(x) == 0
        self._use(limits)
        largest = max((stop - start for start, stop in map(layout.local_rows, self.made)),
                      default=0)
        self.whole = layout.backend.zeros((largest, out.shape[1])) if adds and scatter else None

    def _use(self, limits: tuple[int, int]):
        layout, product = self.layout, self.product
        self.read, self.made = map(layout.first_blocks, limits)
        here = set(self.read)
        self.reads = [[block for block in blocks if block in here] for blocks in product.reads]
        n_entries = int(product.structure.indptr[layout.n_rows(limits[1])])
        self.multiply_adds = min(n_entries, self.matrix.nnz) * self.slice_in.shape[1]

    def with_limits(self, limits: tuple[int, int]) -> TransposedAggregation:
        """The same for other rows, with the same exchanges."""
        other = copy.copy(self)
        other._use(limits)
        return other

    def push(self, rows, context):
        """Blocks come in order; a rank without rows pushes empty ones, which is how it starts to
        receive."""
        block, layout = self.read[self.pushed], self.layout
        self.pushed = (self.pushed + 1) % len(self.read)
        start, stop = layout.rows(layout.rank, block)
        columns = layout.columns(layout.rank, self.x.shape[1])
        layout.backend.copy(self.x[rows[0]:rows[1], columns], self.slice_in[start:stop])
        self.gather[block].start(self.x, context.epoch)
        self.progress.progress()

    def pull(self, context):
        before = None
        for block in self.made:
            if self.gather:
                for read in self.reads[block]:
                    self.gather[read].finish()
            self._multiply(block, context)
            if not self.scatter:  # no row is ever complete: the next hop goes on with the columns
                continue
            self.scatter[block].start(self.slice_out, context.epoch)
            if self.only_aggregates:         # goes on at once: it need not see its columns arrive
                yield 0, 0
            elif before is not None:
                yield self._complete(before)
            before = block
        if self.only_aggregates and self.scatter:
            for block in self.made:
                self.scatter[block].finish()
        elif before is not None:
            yield self._complete(before)
        for block in self.read if self.gather else ():       # those that nothing read
            self.gather[block].finish()

    def _multiply(self, block: int, context):
        layout = self.layout
        for rank in range(layout.size):
            rows = layout.rows(rank, block)
            layout.backend.spmm(self.matrix, self.slice_in, self.slice_out, rows=rows)
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
        self.layout = NodeLayout(runtime, backend, whole.counts,
                                 aggregators or list(range(runtime.size)), n_blocks)
        self.whole = whole
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
            self.evaluation.append(self._evaluation(hop, product, plain, policy,
                                                    self.forward[-1]))
        self.blocks = [self.layout.local_rows(k) for k in range(self.layout.n_blocks)]

    def n_needed(self, block: int) -> int:
        return self.layout.n_local_rows(self.whole.needed.limit(block))

    def n_in_loss(self) -> int:
        return self.whole.needed.n_in_loss

    def needed_blocks(self, block: int) -> list[Rows]:
        limit = self.whole.needed.limit(block)
        return [self.layout.local_rows(k) for k in self.layout.first_blocks(limit)]

    def _between(self, model, whole) -> dict[int, Between]:
        steps = element_wise_between(model)
        if not steps:
            return {}
        ids = self.backend.from_host(whole.ids_of_all(self.runtime.comm))
        return {hop: Between(step, self.layout, self.slices, hop, ids)
                for hop, step in steps.items()}

    def _forward(self, hop, product: Product, policy: Policy) -> TransposedAggregation:
        limit = self.whole.needed.limit
        return self._there(hop, product, policy, (limit(hop.number - 1), limit(hop.number)), True)

    def _evaluation(self, hop, product: Product, plain: Policy, policy: Policy,
                    trained: TransposedAggregation) -> TransposedAggregation:
        """Exact, of all rows: with training's exchanges if they are exact, too."""
        everywhere = len(self.layout.counts), len(self.layout.counts)
        return (trained.with_limits(everywhere) if policy.exact
                else self._there(hop, product, plain, everywhere, False))

    def _there(self, hop, product: Product, policy: Policy, limits: tuple[int, int],
               training: bool) -> TransposedAggregation:
        before, after = self.between.get(hop.number - 1), self.between.get(hop.number)
        return self._aggregation(hop, product, product.matrix, limits, hop.source.value,
                                 hop.target.value, False, policy, FORWARD, training,
                                 before and before.values, after and after.values,
                                 after and after.forward)

    def _backward(self, hop, product: Product, policy: Policy) -> TransposedAggregation:
        before, after = self.between.get(hop.number - 1), self.between.get(hop.number)
        limit = self.whole.needed.limit
        limits = limit(hop.number), limit(hop.number - 1)
        # Other rows have no gradient: what is in their place is of another hop.
        row_ends = self.whole.column_ends(self.layout.n_rows(limits[0]))
        matrix = product.matrix if row_ends is None else product.of_columns(row_ends)
        return self._aggregation(hop, product, matrix, limits, hop.target.grad, hop.source.grad,
                                 hop.source.adds(hop), policy, BACKWARD, True,
                                 after and after.gradients, before and before.gradients,
                                 before and before.backward)

    def _aggregation(self, hop, product: Product, matrix, limits: tuple[int, int], x, out, adds,
                     policy: Policy, direction: int, training: bool, columns_in, columns_out,
                     on_columns) -> TransposedAggregation:
        """columns_in, columns_out: where the columns are, or stay, if no transpose brings or takes
        them."""
        layout, mine = self.layout, self.layout.slice_width(self.runtime.rank, x.shape[1])
        gather: dict[int, Exchange] = {}
        scatter: dict[int, Exchange] = {}
        slice_in, slice_out = columns_in, columns_out
        read, made = map(layout.first_blocks, limits)
        if policy.exact and direction == FORWARD:        # evaluation takes them, for all rows
            read = made = list(range(layout.n_blocks))
        if columns_in is None:
            # Stale rows must outlive the epoch: such hops do not share their input slice.
            generation = hop.number if policy.staleness else hop.number % 2
            slice_in = self.slices.get(f"in {direction} {training} {policy.staleness}", generation,
                                       mine)
            gather = self.transposes.gather(hop, x, slice_in, policy, direction, training, read)
        if columns_out is None:
            slice_out = self.slices.get("out", 0, mine)
            scatter = self.transposes.scatter(hop, slice_out, out, adds, policy, direction,
                                              training, made)
        return TransposedAggregation(layout, product, matrix, limits, x, out, adds, gather,
                                     scatter, slice_in, slice_out, self.runtime, on_columns,
                                     self.transposes.received_whole(adds, policy))

    def close(self):
        """Take in what is in flight and free the persistent requests."""
        made = (*self.forward, *self.backward, *self.evaluation)
        for aggregation in {id(a): a for a in made if a is not None}.values():
            for exchange in (*aggregation.gather.values(), *aggregation.scatter.values()):
                exchange.close()
