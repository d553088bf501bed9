"""The graph cut into parts, one per rank: halo rows are exchanged while interior rows are computed.

Forward: make partial sums for other ranks and start the messages; interior rows whole (aggregated
here, updated by the caller); the boundary rows' local part; wait; add the halo's part. Backward:
the halo's gradients first, start; interior; boundary; wait; add what arrived. Training does this
for the rows that each hop needs (needed.py), evaluation for all. A row's gradient of a later layer
may still be gathered for the boundary while an earlier layer is already written for the interior:
that is why fields keep three generations of gradients.
"""

from __future__ import annotations

from typing import Any

from hpcgcn.exchange.exchange import Exchange
from hpcgcn.exchange.types import Policy
from hpcgcn.mpi.runtime import Runtime
from hpcgcn.nn.fields import Array
from hpcgcn.parallel.aggregation import (
    Aggregations,
    GatherStores,
    Rows,
    gathers_gradient,
    multiply,
    reuse,
    row_blocks,
)
from hpcgcn.parallel.attention import AttentionProducts
from hpcgcn.parallel.partition.attention import AttentionBackward, AttentionForward
from hpcgcn.parallel.partition.halo_aggregation import HaloAggregation
from hpcgcn.parallel.partition.halo_plans import HaloPlans, HopHalo
from hpcgcn.parallel.partition.host_exchange import ByHost, HaloExchange, by_host
from hpcgcn.parallel.partition.matrices import HaloMatrices, PartitionedMatrices


class Scratch:
    """Arrays that hops of one width share: each is used up before another hop needs it."""

    def __init__(self, backend):
        self.backend = backend
        self._arrays: dict[tuple[str, int], Any] = {}

    def rows(self, what: str, n_rows: int, width: int):
        """Rows for one use."""
        held = self._arrays.get((what, width))
        if held is None or len(held) < n_rows:
            held = self._arrays[what, width] = self.backend.zeros((n_rows, width))
        return held[:n_rows]


class HaloForward(HaloAggregation):
    """out = A_inner x + A_outer halo(x), for the first rows of out from the first rows of x."""

    def __init__(self, matrices: PartitionedMatrices, halo: HaloMatrices, x: Array, out: Array,
                 rows: tuple[int, int], exchange: HaloExchange, blocking: bool,
                 stores: GatherStores, turn: int, progress: Runtime, packed):
        """packed: where what is sent is put together, or None: it is sent from x."""
        width = out.shape[1]
        super().__init__(matrices, halo, exchange, rows, width, blocking, progress, turn, "forward")
        self.x, self.out, self.packed = x, out, packed
        self.storage = stores.storage("owned", x, turn, reuse(matrices.inner))
        self.halo_storage = stores.storage("halo", Array.of("halo rows", exchange.received), turn,
                                           reuse(halo.outer))
        self.n_inner = int(matrices.local.inner.indptr[rows[1]])
        self.multiply_adds = (self.n_inner + halo.n_entries) * width

    def _send(self, context):
        if self.packed is not None:
            self.halo.pack(self.x.data, self.storage.rows, self.packed)
        self.exchange.start(self.x.data if self.packed is None else self.packed, context.epoch)

    def pull(self, context):
        self._begin(context)
        backend, inner = self.matrices.backend, self.matrices.inner
        progress, rows, out = self.progress.progress, self.storage.rows, self.out.data
        marks = self.marks
        yield from marks.each_interior(multiply(backend, inner, rows, out, self.interior,
                                                progress=progress))
        for _ in marks.each_boundary(multiply(backend, inner, rows, out, self.boundary,
                                              progress=progress)):
            pass
        halo = self._stored(self.exchange.finish())
        outer, _ = self.halo.of_draw(self.exchange, context.epoch)
        if outer is not self.halo.outer:
            self.multiply_adds = (self.n_inner + outer.nnz) * out.shape[1]
        yield from marks.each_halo(multiply(backend, outer, halo, out, self.boundary, True,
                                            progress))

    def _stored(self, halo):
        self.halo_storage.source.bind(halo)
        self.halo_storage.keep((0, halo.shape[0]))
        return self.halo_storage.rows


class HaloBackward(HaloAggregation):
    """dx (= or +=) A_inner^T dz, plus what the ranks that read my rows send: their A_outer^T dz.

    For the first rows of dx from the first rows of dz.
    """

    def __init__(self, matrices: PartitionedMatrices, halo: HaloMatrices, dz: Array, dx: Array,
                 rows: tuple[int, int], adds: bool, halo_gradient, exchange: HaloExchange,
                 blocking: bool, stores: GatherStores, turn: int, progress: Runtime, summed):
        """halo_gradient: (n_received, width), what the exchange sends. summed: scratch for the
        gradients of sums."""
        width = dz.shape[1]
        super().__init__(matrices, halo, exchange, rows, width, blocking, progress, turn,
                         "backward")
        self.dx, self.adds, self.halo_gradient, self.summed = dx, adds, halo_gradient, summed
        self.inner_t = matrices.inner_t(rows[0])
        self.storage = stores.storage("owned", dz, turn, reuse(matrices.inner_t(dz.shape[0])))
        self.received = row_blocks(matrices.backend, 0, halo.plan.n_received, width)
        self.multiply_adds = (self.inner_t.nnz + halo.n_entries) * width

    def _send(self, context):
        _, outer_t = self.halo.of_draw(self.exchange, context.epoch)
        if outer_t is not self.halo.outer_t:
            self.multiply_adds = (self.inner_t.nnz + outer_t.nnz) * self.halo_gradient.shape[1]
        for _ in self.marks.each_halo(multiply(self.matrices.backend, outer_t, self.storage.rows,
                                               self.halo_gradient, self.received,
                                               progress=self.progress.progress)):
            pass
        self.exchange.start(self.halo_gradient, context.epoch)

    def pull(self, context):
        self._begin(context)
        backend, inner_t = self.matrices.backend, self.inner_t
        progress, rows, dx = self.progress.progress, self.storage.rows, self.dx.data
        yield from self.marks.each_interior(multiply(backend, inner_t, rows, dx, self.interior,
                                                     self.adds, progress))
        for _ in self.marks.each_boundary(multiply(backend, inner_t, rows, dx, self.boundary,
                                                   self.adds, progress)):
            pass
        self.halo.add_gradients(self.exchange.finish(), dx, self.summed)
        yield from self.boundary


Forward = HaloForward | AttentionForward


class HaloAggregations(Aggregations):
    """One exchange per hop and direction.

    `policies(hop, direction)` gives the Policy of training's exchanges.
    """

    def __init__(self, runtime: Runtime, backend, local, model, policies, plain: Policy, *,
                 seed: int, blocking: bool, precision: str = "fp32",
                 halos: HaloPlans | None = None, trains: bool = True):
        """halos: what hops exchange; rows, if it is not given. trains: or is it only evaluated?"""
        self.runtime, self.width = runtime, model.shape.hidden
        self.matrices = PartitionedMatrices(backend, local, model.shape.normalisation)
        self.seed, self.blocking = seed, blocking
        self.halos = halos or HaloPlans(local)
        self.stores, self.scratch = GatherStores(backend, precision), Scratch(backend)
        self.exchanges: list[tuple[int, str, Exchange]] = []
        self.forward: list[Forward] = [self._forward(hop, policies(hop.number, "forward"))
                                       for hop in model.hops if trains]
        self.backward: list[HaloBackward | AttentionBackward | None] = [
            self._backward(hop, policies(hop.number, "backward"))
            if gathers_gradient(hop) else None for hop in model.hops if trains]
        self._plain: dict[int, tuple[Any, Any]] = {}    # of evaluation, by width
        self.evaluation: list[Forward] = [
            self._evaluation(hop, self.forward[k] if trains else None, plain)
            for k, hop in enumerate(model.hops)]
        self.blocks = self._first_blocks(local.n_owned)

    def n_needed(self, block: int) -> int:
        return self.matrices.local.needed.count(block)

    def n_in_loss(self) -> int:
        return self.matrices.local.needed.n_in_loss

    def needed_blocks(self, block: int) -> list[Rows]:
        return self._first_blocks(self.n_needed(block))

    def _first_blocks(self, n_rows: int) -> list[Rows]:
        return [block for boundary in (False, True)
                for block in self.matrices.blocks(n_rows, boundary, self.width)]

    def _forward(self, hop, policy: Policy) -> Forward:
        plan = self.halos.of_hop(hop.number)
        packed = self._packed(plan, hop.source.width)
        exchange = self._exchange(hop, "forward", plan, policy, packed)
        self._count(hop, "forward", exchange)
        return self._there(hop, plan, exchange, packed,
                           (self.n_needed(hop.number - 1), self.n_needed(hop.number)))

    def _there(self, hop, plan: HopHalo, exchange: HaloExchange, packed, rows) -> Forward:
        """packed: what the exchange sends from, or None."""
        if hop.attention:
            products = AttentionProducts(self.matrices.backend, hop, self.matrices.ids)
            return AttentionForward(self.matrices, self.matrices.halo(plan), products, rows,
                                    exchange, self.blocking, self.runtime)
        return HaloForward(self.matrices, self.matrices.halo(plan), hop.source.planned_value,
                           hop.target.planned_value, rows, exchange, self.blocking, self.stores,
                           hop.number, self.runtime, packed)

    def _packed(self, plan: HopHalo, width: int):
        """Where rows and sums to be sent are put together."""
        return self.scratch.rows("packed", plan.n_sent, width) if plan.has_sums else None

    def _backward(self, hop, policy: Policy) -> HaloBackward | AttentionBackward:
        plan, width = self.halos.of_hop(hop.number), hop.target.width
        halo = self.matrices.halo(plan)
        halo_gradient = self.matrices.backend.zeros((plan.n_received, width))
        exchange = self._exchange(hop, "backward", plan, policy, halo_gradient)
        self._count(hop, "backward", exchange)
        rows = self.n_needed(hop.number), self.n_needed(hop.number - 1)
        forward = self.forward[hop.number - 1]
        if isinstance(forward, AttentionForward):
            return AttentionBackward(self.matrices, forward, rows, halo_gradient, exchange,
                                     self.blocking, self.runtime)
        return HaloBackward(self.matrices, halo, hop.target.planned_grad,
                            hop.source.planned_grad, rows,
                            hop.source.adds(hop), halo_gradient, exchange, self.blocking,
                            self.stores, hop.number, self.runtime,
                            self.scratch.rows("summed", halo.n_summed, width))

    def _evaluation(self, hop, training: Forward | None, plain: Policy) -> Forward:
        """Exact, of all rows: training's own aggregation if it is that, or another one."""
        n_owned, width = self.matrices.n_owned, hop.source.width
        plan = self.halos.whole()
        if training and training.exchange.policy.exact and training.halo.plan is plan:
            exchange, packed = training.exchange, training.packed
        else:
            if width not in self._plain:
                packed = self._packed(plan, width)
                self._plain[width] = (self._exchange(hop, "forward", plan, plain, packed), packed)
            exchange, packed = self._plain[width]
        return self._there(hop, plan, exchange, packed, (n_owned, n_owned))

    def _count(self, hop, direction: str, exchange: HaloExchange):
        """Training's exchanges, for accounting and checkpoints."""
        if isinstance(exchange, ByHost):
            self.exchanges += [(hop.number, direction, exchange.across),
                               (hop.number, f"{direction}_within_host", exchange.within)]
        else:
            self.exchanges.append((hop.number, direction, exchange))

    def _exchange(self, hop, direction: str, plan: HopHalo, policy: Policy,
                  source=None) -> HaloExchange:
        backend, width = self.matrices.backend, hop.source.width

        def make(routes, n_received, policy, source) -> Exchange:
            return Exchange(self.runtime, backend, routes, n_received, width, policy,
                            seed=self.seed, layer=hop.number, source=source)

        routes = self.matrices.halo(plan).routes(direction, policy.codec.weighs_rows)
        if plan.passes:
            return by_host(make, backend, plan, direction, routes, policy, width, source)
        n_received = plan.n_received if direction == "forward" else plan.n_sent
        return make(routes, n_received, policy, source)

    def close(self):
        """Take in what is in flight and free the persistent requests."""
        for exchange in {id(a.exchange): a.exchange
                         for a in (*self.forward, *self.backward, *self.evaluation)
                         if a is not None}.values():
            exchange.close()
