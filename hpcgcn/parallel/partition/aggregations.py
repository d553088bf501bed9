"""The graph cut into parts, one per rank: the halo exchange overlaps with work on interior rows.

Forward: start the messages; interior rows whole (aggregated here, updated by the caller); the
boundary rows' local part; wait; add the halo's part. Backward: the halo's gradients first, start;
interior; boundary; wait; add what arrived. A row's gradient of a later layer may still be gathered
for the boundary while an earlier layer is already written for the interior: that is why fields keep
three generations of gradients.
"""

from __future__ import annotations

from hpcgcn.exchange.codecs import Rows as MessageRows
from hpcgcn.exchange.exchange import Exchange
from hpcgcn.exchange.types import Policy, Route
from hpcgcn.mpi.runtime import Runtime
from hpcgcn.parallel.aggregation import (
    Aggregation,
    Aggregations,
    GatherStores,
    gathers_gradient,
    multiply,
    reuse,
    row_blocks,
    scales,
    split_blocks,
)


class PartitionedMatrices:
    """The matrices and message routes that all hops of a partitioned graph share."""

    def __init__(self, backend, local, normalisation: str, for_loss: bool = False):
        self.backend, self.local, self.n_interior, self.n_owned = (backend, local, local.n_interior,
                                                                   local.n_owned)
        rows, columns, halo_columns = scales(normalisation, local.degree, local.halo_degree,
                                             backend.dtype)
        boundary_rows = rows[self.n_interior:]
        n_boundary = self.n_owned - self.n_interior

        def matrix(structure, row_scale, column_scale):
            return backend.csr(structure.indptr, structure.indices, structure.n_columns, None,
                               row_scale, column_scale)

        def transposes(inner_t, outer_t):
            # (n_halo, n_boundary)
            return matrix(inner_t, columns, rows), matrix(outer_t, halo_columns, boundary_rows)

        self.inner = matrix(local.inner, rows, columns)
        self.outer = matrix(local.outer, boundary_rows, halo_columns)  # (n_boundary, n_halo)
        self.transposes = transposes(local.inner_t, local.outer_t)
        # The loss has a gradient at training nodes only.
        self.transposes_of_loss = transposes(
            local.inner_t.with_columns(local.trains), local.outer_t.with_columns(
                local.trains[self.n_interior:])) if for_loss else self.transposes
        self.n_train = inside, outside = local.n_train if for_loss else (self.n_interior,
                                                                         n_boundary)
        first, within = self.n_interior, local.inner.indptr
        self.n_entries_for_loss = int(within[inside] + within[first + outside] - within[first]
                                      + local.outer.indptr[outside])
        self.send_rows = [backend.from_host(n.send_rows) for n in local.plan.neighbours]
        self.n_boundary = n_boundary

    def routes(self, direction: str) -> list[Route]:
        """Owner to halo (values) or halo to owner (gradients)."""
        local, routes = self.local, []
        for neighbour, send_rows in zip(local.plan.neighbours, self.send_rows):
            owned_ids, halo_ids = local.ids[neighbour.send_rows], local.halo_ids[neighbour.halo]
            owned = MessageRows(send_rows, self.backend.from_host(owned_ids), owned_ids)
            halo = MessageRows(None, self.backend.from_host(halo_ids), halo_ids)
            if direction == "forward":
                routes.append(Route(neighbour.rank, owned, None, halo, neighbour.halo))
            else:
                received = MessageRows(None, owned.ids, owned_ids)
                # Several ranks send gradients for the same node: each draws its own rounding.
                routes.append(Route(neighbour.rank, halo, neighbour.halo, received,
                                    neighbour.receive_slice, out_stream=local.plan.comm.rank + 1,
                                    in_stream=neighbour.rank + 1))
        return routes


class HaloForward(Aggregation):
    """out = A_inner x + A_outer halo(x)."""

    def __init__(self, matrices: PartitionedMatrices, x, out, exchange: Exchange, blocking: bool,
                 stores: GatherStores, turn: int, progress: Runtime, last: bool):
        self.matrices, self.x, self.out, self.exchange = matrices, x, out, exchange
        self.blocking, self.progress = blocking, progress
        self.storage = stores.storage("owned", x, turn, reuse(matrices.inner))
        self.halo_storage = stores.storage("halo", exchange.received, turn, reuse(matrices.outer))
        backend, width = matrices.backend, out.shape[1]
        self.everywhere = (row_blocks(backend, 0, matrices.n_interior, width),
                           row_blocks(backend, matrices.n_interior, matrices.n_owned, width))
        inside, outside = matrices.n_train
        self.for_loss = (row_blocks(backend, 0, inside, width),
                         row_blocks(backend, matrices.n_interior, matrices.n_interior + outside,
                                    width))
        self.last = last
        self.multiply_adds = (matrices.n_entries_for_loss if last
                              else matrices.inner.nnz + matrices.outer.nnz) * width

    def push(self, rows, context):
        self.storage.keep(rows)
        if rows[1] == self.matrices.n_owned:  # boundary rows come last: now all of them are ready
            self.exchange.start(self.x, context.epoch)
        self.progress.progress()

    def pull(self, context):
        backend, matrices = self.matrices.backend, self.matrices
        if self.blocking:
            self.exchange.finish()
        progress, rows = self.progress.progress, self.storage.rows
        interior, boundary = self.for_loss if self.last and context.training else self.everywhere
        yield from multiply(backend, matrices.inner, rows, self.out, interior, progress=progress)
        for _ in multiply(backend, matrices.inner, rows, self.out, boundary, progress=progress):
            pass
        halo = self._stored(self.exchange.finish())
        first = matrices.n_interior
        blocks = [(start - first, stop - first) for start, stop in boundary]
        for start, stop in multiply(backend, matrices.outer, halo, self.out[first:], blocks, True,
                                    progress):
            yield first + start, first + stop

    def _stored(self, halo):
        self.halo_storage.source = halo
        self.halo_storage.keep((0, halo.shape[0]))
        return self.halo_storage.rows


class HaloBackward(Aggregation):
    """dx (= or +=) A_inner^T dz, plus what the ranks that read my rows send: their A_outer^T dz."""

    def __init__(self, matrices: PartitionedMatrices, dz, dx, adds: bool, halo_gradient,
                 exchange: Exchange, blocking: bool, stores: GatherStores,
                 turn: int, progress: Runtime, last: bool):
        self.inner_t, self.outer_t = matrices.transposes_of_loss if last else matrices.transposes
        self.matrices, self.dz, self.dx, self.adds, self.exchange = matrices, dz, dx, adds, exchange
        self.blocking, self.progress = blocking, progress
        self.storage = stores.storage("owned", dz, turn, reuse(matrices.transposes[0]))
        self.halo_gradient = halo_gradient  # (n_halo, width), what the exchange sends
        backend, width = matrices.backend, dz.shape[1]
        self.interior = row_blocks(backend, 0, matrices.n_interior, width)
        self.boundary = row_blocks(backend, matrices.n_interior, matrices.n_owned, width)
        self.halo = row_blocks(backend, 0, matrices.local.n_halo, width)
        self.multiply_adds = (self.inner_t.nnz + self.outer_t.nnz) * width

    def push(self, rows, context):
        self.storage.keep(rows)
        if rows[1] == self.matrices.n_owned:
            boundary = self.storage.rows[self.matrices.n_interior:]
            for _ in multiply(self.matrices.backend, self.outer_t, boundary, self.halo_gradient,
                              self.halo, progress=self.progress.progress):
                pass
            self.exchange.start(self.halo_gradient, context.epoch)
        self.progress.progress()

    def pull(self, context):
        backend, matrices = self.matrices.backend, self.matrices
        if self.blocking:
            self.exchange.finish()
        progress, rows = self.progress.progress, self.storage.rows
        yield from multiply(backend, self.inner_t, rows, self.dx, self.interior, self.adds,
                            progress)
        for _ in multiply(backend, self.inner_t, rows, self.dx, self.boundary, self.adds, progress):
            pass
        arrived = self.exchange.finish()
        for neighbour, send_rows in zip(matrices.local.plan.neighbours, matrices.send_rows):
            backend.scatter_add_rows(arrived[neighbour.receive_slice], send_rows, self.dx)
        yield from self.boundary


class HaloAggregations(Aggregations):
    """One exchange per hop and direction.

    `policies(hop, direction)` gives the Policy of training's exchanges.
    """

    def __init__(self, runtime: Runtime, backend, local, model, policies, plain: Policy, *,
                 seed: int, blocking: bool, precision: str = "fp32", for_loss: bool = False):
        """for_loss: training needs no other logits than those of training nodes."""
        self.runtime, self.backend, self.model = runtime, backend, model
        self.matrices = PartitionedMatrices(backend, local, model.shape.normalisation, for_loss)
        self.seed, self.blocking = seed, blocking
        self.stores = GatherStores(backend, precision)
        self.exchanges: list[tuple[int, str, Exchange]] = []
        self.forward: list[HaloForward] = [self._forward(hop, policies(hop.number, "forward"))
                                           for hop in model.hops]
        self.backward: list[HaloBackward | None] = [
            self._backward(hop, policies(hop.number, "backward"))
            if gathers_gradient(hop) else None for hop in model.hops]
        self.evaluation: list[HaloForward] = [
            self._evaluation(hop, training, plain)
            for hop, training in zip(model.hops, self.forward)]
        inside, outside = self.matrices.n_train
        inner, inner_idle = split_blocks(backend, 0, inside, local.n_interior, model.shape.hidden)
        outer, outer_idle = split_blocks(backend, local.n_interior, outside, local.n_owned,
                                         model.shape.hidden)
        self.blocks, self.idle_blocks = (inner + inner_idle + outer + outer_idle,
                                         frozenset(inner_idle + outer_idle))

    def _forward(self, hop, policy: Policy, training: bool = True) -> HaloForward:
        exchange = self._exchange(hop, "forward", policy)
        if training:
            self.exchanges.append((hop.number, "forward", exchange))
        return HaloForward(self.matrices, hop.source.value, hop.target.value, exchange,
                           self.blocking, self.stores,
                           hop.number, self.runtime, hop is self.model.hops[-1])

    def _backward(self, hop, policy: Policy) -> HaloBackward:
        halo_gradient = self.backend.zeros((self.matrices.local.n_halo, hop.target.width))
        exchange = self._exchange(hop, "backward", policy, halo_gradient)
        self.exchanges.append((hop.number, "backward", exchange))
        return HaloBackward(self.matrices, hop.target.grad, hop.source.grad, hop.source.adds(hop),
                            halo_gradient, exchange, self.blocking, self.stores, hop.number,
                            self.runtime, hop is self.model.hops[-1])

    def _evaluation(self, hop, training: HaloForward, plain: Policy) -> HaloForward:
        """Exact: training's own exchange if that is exact, or another one."""
        if training.exchange.policy.exact:
            return training
        return self._forward(hop, plain, training=False)

    def _exchange(self, hop, direction: str, policy: Policy, source=None) -> Exchange:
        local = self.matrices.local
        n_received = local.n_halo if direction == "forward" else local.plan.n_sent
        return Exchange(self.runtime, self.backend, self.matrices.routes(direction), n_received,
                        hop.source.width, policy, seed=self.seed, layer=hop.number, source=source)

    def close(self):
        """Take in what is in flight and free the persistent requests."""
        made = (*self.forward, *self.backward, *self.evaluation)
        for aggregation in {id(a): a for a in made if a is not None}.values():
            aggregation.exchange.close()
