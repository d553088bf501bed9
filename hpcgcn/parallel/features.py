"""Aggregation by feature slices, update by node slices: volume that does not grow with the ranks (MixGCN).

Every rank aggregates some columns of ALL nodes with the whole adjacency, and updates all columns of SOME nodes. A hop is
three moves: rows become columns (gather), the sparse product on the slice, columns become rows (scatter). Both
transposes are cut into blocks of rows, so that a block travels while the next one is computed.

Roles: a rank may own no rows (it only aggregates) or no columns (it only updates): MixGCN's mixture of accelerators.
"""

from __future__ import annotations

import numpy as np

from hpcgcn.exchange.codecs import Rows as MessageRows
from hpcgcn.exchange.exchange import Exchange, Policy, Route
from hpcgcn.mpi.progress import Progress
from hpcgcn.parallel.base import Aggregation, Strategy, gathers_gradient, scales

TRAINING_TAG, EVALUATION_TAG = 4000, 18000
FORWARD, BACKWARD = 0, 1


class Layout:
    """Who owns which rows and which columns, and how rows are cut into blocks; equal on all ranks."""

    def __init__(self, comm, backend, offsets: np.ndarray, aggregators: list[int], n_blocks: int):
        self.comm, self.backend, self.offsets, self.n_blocks = comm, backend, offsets, n_blocks
        self.rank, self.size = comm.rank, comm.size
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

    def columns(self, rank: int, width: int) -> slice:
        """Columns that a rank aggregates: as equal as whole columns can be, none for a rank that only updates."""
        if rank not in self.aggregators:
            return slice(0, 0)
        k, n = self.aggregators.index(rank), len(self.aggregators)
        return slice(width * k // n, width * (k + 1) // n)

    def slice_width(self, rank: int, width: int) -> int:
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
        self.backend, self.n_nodes, self._arrays = backend, n_nodes, {}

    def get(self, role: str, generation: int, width: int):
        slot = (role, generation, width)
        if slot not in self._arrays:
            self._arrays[slot] = self.backend.zeros((self.n_nodes, width))
        return self._arrays[slot]


class TransposedAggregation(Aggregation):
    """out (= or +=) A x: gather columns, multiply, scatter rows; block by block."""

    def __init__(self, layout: Layout, matrix, x, out, adds: bool, gather: list[Exchange], scatter: list[Exchange],
                 slice_in, slice_out, progress: Progress):
        self.layout, self.matrix, self.x, self.out, self.adds = layout, matrix, x, out, adds
        self.gather, self.scatter, self.slice_in, self.slice_out = gather, scatter, slice_in, slice_out
        self.progress, self.pushed = progress, 0
        self.multiply_adds = matrix.nnz * slice_in.shape[1]
        self.whole = layout.backend.zeros((max(layout.local_rows(k)[1] - layout.local_rows(k)[0]
                                               for k in range(layout.n_blocks)), out.shape[1])) if adds else None

    def push(self, rows, moment):
        """Blocks come in order; a rank without rows pushes empty ones, which is how it starts to receive."""
        block, layout = self.pushed, self.layout
        self.pushed = (block + 1) % layout.n_blocks
        start, stop = layout.rows(layout.rank, block)
        columns = layout.columns(layout.rank, self.x.shape[1])
        layout.backend.copy(self.x[rows[0]:rows[1], columns], self.slice_in[start:stop])
        self.gather[block].start(self.x, moment.epoch)
        self.progress.poke()

    def pull(self, moment):
        layout = self.layout
        for exchange in self.gather:
            exchange.finish()
        for block in range(layout.n_blocks):
            for rank in range(layout.size):
                layout.backend.spmm(self.matrix, self.slice_in, self.slice_out, rows=layout.rows(rank, block))
                self.progress.poke()
            self.scatter[block].start(self.slice_out, moment.epoch)
            if block:
                yield self._complete(block - 1)
        yield self._complete(layout.n_blocks - 1)

    def _complete(self, block: int):
        """Put the columns of a block together, as they come from all ranks."""
        layout, backend, exchange = self.layout, self.layout.backend, self.scatter[block]
        exchange.finish()
        start, stop = layout.local_rows(block)
        target = self.out[start:stop] if self.whole is None else self.whole[:stop - start]
        width, mine = target.shape[1], layout.rows(layout.rank, block)
        backend.copy(self.slice_out[mine[0]:mine[1]], target[:, layout.columns(layout.rank, width)])
        for route, piece in zip(exchange.routes, exchange.landings):
            if len(piece):               # more ranks than columns: some own none
                backend.copy(piece, target[:, layout.columns(route.peer, width)])
        if self.whole is not None:
            backend.axpby(1.0, self.out[start:stop], 1.0, target, self.out[start:stop])
        return start, stop


class FeatureStrategy(Strategy):
    """Two transposes a hop and direction. `aggregators` are the ranks that own columns (default: all)."""

    def __init__(self, comm, backend, whole, model, policies, plain: Policy, *, seed: int, n_blocks: int,
                 aggregators: list[int] | None = None):
        self.comm, self.backend, self.seed = comm, backend, seed
        self.layout = Layout(comm, backend, whole.offsets, aggregators or list(range(comm.size)), n_blocks)
        self.slices = Slices(backend, whole.n_nodes)
        self.progress = Progress(comm)
        self.exchanges = []
        if aggregators:
            self.role = "sparse" if comm.rank in aggregators else "dense"
        rows, columns, _ = scales(model.shape.normalisation, whole.degree, whole.degree[:0], backend.dtype)
        matrix = backend.csr(whole.matrix.indptr, whole.matrix.indices, whole.n_nodes, None, rows, columns)
        matrix_t = backend.csr(whole.matrix_t.indptr, whole.matrix_t.indices, whole.n_nodes, None, columns, rows)
        self.forward, self.backward, self.evaluation = [], [], []
        for hop in model.hops:
            policy = policies(hop.number, "forward")
            self.forward.append(self._aggregation(hop, matrix, hop.source.value, hop.target.value, False, policy, FORWARD))
            back = gathers_gradient(hop)
            self.backward.append(self._aggregation(hop, matrix_t, hop.target.grad, hop.source.grad, hop.source.adds(hop),
                                                   policies(hop.number, "backward"), BACKWARD) if back else None)
            exact = policy.codec.exact and policy.staleness == 0
            self.evaluation.append(self.forward[-1] if exact else self._aggregation(
                hop, matrix, hop.source.value, hop.target.value, False, plain, FORWARD, training=False))
        self.blocks = [self.layout.local_rows(k) for k in range(n_blocks)]

    def _aggregation(self, hop, matrix, x, out, adds, policy: Policy, direction: int, training=True) -> TransposedAggregation:
        width = x.shape[1]
        mine = self.layout.slice_width(self.comm.rank, width)
        # Stale rows must outlive the epoch: such hops do not share their input slice.
        generation = hop.number if policy.staleness else hop.number % 2
        slice_in = self.slices.get(f"in {direction} {training} {policy.staleness}", generation, mine)
        slice_out = self.slices.get("out", 0, mine)
        blocks = range(self.layout.n_blocks)
        gather = [self._gather(hop, k, width, policy, direction, training, slice_in) for k in blocks]
        scatter = [self._scatter(hop, k, width, policy, direction, training) for k in blocks]
        return TransposedAggregation(self.layout, matrix, x, out, adds, gather, scatter, slice_in, slice_out, self.progress)

    def _gather(self, hop, block, width, policy, direction, training, slice_in) -> Exchange:
        """Rows become columns: my rows of another rank's columns go there; other ranks' rows of my columns come."""
        layout, rank = self.layout, self.comm.rank
        mine, routes, landings = layout.slice_width(rank, width), [], []
        for peer in layout.peers():
            theirs = layout.slice_width(peer, width)
            outgoing, incoming = layout.message_rows(rank, block, theirs), layout.message_rows(peer, block, mine)
            if len(outgoing) or len(incoming):
                first = layout.local_rows(block)[0]
                routes.append(Route(peer, outgoing, slice(first, first + len(outgoing)), incoming, None,
                                    layout.columns(peer, width), theirs, mine, out_lane=peer + 1, in_lane=rank + 1))
                start = layout.rows(peer, block)[0]
                landings.append(slice_in[start:start + len(incoming)])
        return self._exchange(hop, block, 0, routes, landings, width, policy, direction, training)

    def _scatter(self, hop, block, width, policy, direction, training) -> Exchange:
        """Columns become rows: the inverse."""
        layout, rank = self.layout, self.comm.rank
        mine, routes, landings = layout.slice_width(rank, width), [], []
        for peer in layout.peers():
            theirs = layout.slice_width(peer, width)
            outgoing, incoming = layout.message_rows(peer, block, mine), layout.message_rows(rank, block, theirs)
            if len(outgoing) or len(incoming):
                start = layout.rows(peer, block)[0]
                routes.append(Route(peer, outgoing, slice(start, start + len(outgoing)), incoming, None, None, mine, theirs,
                                    out_lane=-rank - 1, in_lane=-peer - 1))
                landings.append(self.backend.zeros((len(incoming), theirs)))
        return self._exchange(hop, block, 1, routes, landings, width, policy, direction, training)

    def _exchange(self, hop, block, phase, routes, landings, width, policy, direction, training) -> Exchange:
        base = TRAINING_TAG if training else EVALUATION_TAG
        tag = base + ((hop.number * 2 + direction) * 2 + phase) * self.layout.n_blocks + block
        exchange = Exchange(self.comm, self.backend, routes, 0, width, policy, seed=self.seed, layer=hop.number, tag=tag,
                            landings=landings)
        if training:
            name = ("forward", "backward")[direction] + ("", "_return")[phase]
            self.exchanges.append((hop.number, name, exchange))
        return exchange

    def close(self):
        """Take in what is in flight and free the persistent requests."""
        for aggregation in {id(a): a for a in self.forward + self.backward + self.evaluation if a}.values():
            for exchange in aggregation.gather + aggregation.scatter:
                exchange.close()
