"""A hop over hosts: rows become columns within the host, the host's ranks each aggregate their
columns of all its rows, and columns become rows again.

What happens between the two transposes is the partition strategy, with hosts for ranks and slices
of columns for rows: every rank runs it with the ranks of other hosts that have the same columns. So
of a halo row each column crosses the network once per host, and codecs, staleness, smoothing and
feedback apply to it as they do on partitions. The transposes are exact: they stay within a host.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from hpcgcn.exchange.exchange import Exchange
from hpcgcn.exchange.policies import plain_policy
from hpcgcn.exchange.types import Policy
from hpcgcn.nn.fields import Field
from hpcgcn.nn.models import Hop, Model
from hpcgcn.parallel.aggregation import Aggregation, Aggregations, Rows, row_blocks
from hpcgcn.parallel.features.layout import Slices
from hpcgcn.parallel.features.transposes import BACKWARD, FORWARD, Transposes
from hpcgcn.parallel.hosts.groups import HostGroups
from hpcgcn.parallel.hosts.host_graph import HostGraph
from hpcgcn.parallel.hosts.layout import HostLayout
from hpcgcn.parallel.partition.aggregations import HaloAggregations

NAMES = "_to_columns", "_to_rows"    # of the transposes, in metrics.csv


@dataclass
class Moves:
    """The transposes of one hop and direction: from rows to columns, and back; one exchange per
    block each."""

    x: Any                           # (n_local, width) rows that are read
    out: Any                         # (n_local, width) rows that are made
    adds: bool                       # to what is in `out`?
    slice_in: Any                    # (n_host, columns of this rank) of x
    slice_out: Any                   # the same of what is made
    gather: dict[int, Exchange]
    scatter: dict[int, Exchange]


class HostAggregation(Aggregation):
    """out (= or +=) A x by way of `columns`, an aggregation of this rank's columns of all rows of
    the host."""

    def __init__(self, layout: HostLayout, columns: Aggregation, moves: Moves, progress,
                 rows: tuple[int, int]):
        """rows: how many of the host's rows it reads and makes: the first ones."""
        self.layout, self.columns, self.moves = layout, columns, moves
        self.read, self.made = map(layout.first_blocks, rows)
        self.x, self.out, self.adds = moves.x, moves.out, moves.adds
        self.slice_in, self.slice_out = moves.slice_in, moves.slice_out
        self.progress, self.n_started = progress, 0
        self.multiply_adds = columns.multiply_adds
        largest = max((stop - start for start, stop in map(layout.local_rows,
                                                           range(layout.n_blocks))), default=0)
        self.whole: Any = (layout.backend.zeros((largest, self.out.shape[1])) if self.adds
                           else None)

    def push(self, rows, context):
        while self._next_is_complete(rows[1]):
            self._gather(self.read[self.n_started], context.epoch)
        self.progress.progress()

    def _next_is_complete(self, stop: int) -> bool:
        """Are all of this rank's rows of the next block here, now that those up to `stop` are?"""
        if self.n_started == len(self.read):
            return False
        start, end = self.layout.local_rows(self.read[self.n_started])
        return start == end or end == stop

    def _gather(self, block: int, epoch: int):
        """Send a block's rows to those who aggregate their columns."""
        layout, rank = self.layout, self.layout.rank
        mine, local = layout.rows(rank, block), layout.local_rows(block)
        columns = layout.columns(rank, self.x.shape[1])
        layout.backend.copy(self.x[slice(*local), columns], self.slice_in[slice(*mine)])
        self.moves.gather[block].start(self.x, epoch)
        self.n_started += 1

    def pull(self, context):
        layout = self.layout
        while self._next_is_complete(0):         # where this rank has no rows at all
            self._gather(self.read[self.n_started], context.epoch)
        self.n_started = 0
        for block in self.read:
            self.moves.gather[block].finish()
            self.columns.push(layout.host_rows(block), context)
        missing, in_flight = deque(self.made), deque[int]()
        for rows in self.columns.pull(context):
            while missing and layout.completes(rows, missing[0]):
                self.moves.scatter[missing[0]].start(self.slice_out, context.epoch)
                in_flight.append(missing.popleft())
                if len(in_flight) > 1:
                    yield from self._complete(in_flight.popleft())
        while in_flight:
            yield from self._complete(in_flight.popleft())

    def _complete(self, block: int):
        """Put the columns of this rank's share of a block together, as they come from all ranks of
        the host; yields pieces that fit the cache."""
        layout, backend = self.layout, self.layout.backend
        exchange = self.moves.scatter[block]
        exchange.finish()
        start, stop = layout.local_rows(block)
        if start == stop:
            return
        target = self.whole[:stop - start] if self.adds else self.out[start:stop]
        width, mine = target.shape[1], layout.rows(layout.rank, block)
        backend.copy(self.slice_out[slice(*mine)], target[:, layout.columns(layout.rank, width)])
        for route, piece in zip(exchange.routes, exchange.buffer.arrays):
            if len(piece):
                backend.copy(piece, target[:, layout.columns(route.peer, width)])
        if self.adds:
            backend.axpby(1.0, self.out[start:stop], 1.0, target, self.out[start:stop])
        yield from row_blocks(backend, start, stop, width)


class HostAggregations(Aggregations):
    """Transposes around the partition strategy's aggregations of this rank's columns."""

    def __init__(self, groups: HostGroups, backend, graph: HostGraph, model, policies,
                 plain: Policy, *, seed: int, blocking: bool, precision: str):
        self.layout, self.graph = HostLayout(groups.within, backend, graph), graph
        self.width = model.shape.hidden
        self.slices, self.plain = Slices(backend, graph.host.n_owned), plain
        self.transposes = Transposes(self.layout, seed, NAMES)
        columns = self._model_of_columns(model)

        def of_columns(hop: int, direction: str) -> Policy:
            """More ranks than columns: a rank without any has nothing to code."""
            width = next(other.source.width for other in columns.hops if other.number == hop)
            return policies(hop, direction) if width else plain_policy()

        self.columns = HaloAggregations(groups.across, backend, graph.host, columns, of_columns,
                                        plain, seed=seed, blocking=blocking, precision=precision,
                                        halos=graph.halos)
        self._tell_apart(groups)
        needed, every = graph.host.needed.count, (graph.host.n_owned, graph.host.n_owned)

        def wrapped(inner: Aggregation, moves: Moves, rows: tuple[int, int]) -> HostAggregation:
            return HostAggregation(self.layout, inner, moves, groups.within, rows)

        pairs = list(zip(model.hops, columns.hops))
        there = [self._there(hop, own) for hop, own in pairs]
        back = {k: self._back(*pairs[k]) for k, inner in enumerate(self.columns.backward) if inner}
        self.moves = [*there, *back.values()]
        rows = [(needed(hop.number - 1), needed(hop.number)) for hop in model.hops]
        self.forward = list(map(wrapped, self.columns.forward, there, rows))
        self.evaluation = [wrapped(inner, moves, every)
                           for inner, moves in zip(self.columns.evaluation, there)]
        self.backward = [wrapped(inner, back[k], rows[k][::-1]) if inner else None
                         for k, inner in enumerate(self.columns.backward)]
        self.exchanges = self.columns.exchanges + self.transposes.exchanges
        self.blocks = self._first_blocks(graph.host.n_owned)

    def n_needed(self, block: int) -> int:
        return self._n_local(self.graph.host.needed.count(block))

    def n_in_loss(self) -> int:
        return self._n_local(self.graph.host.needed.n_in_loss)

    def _n_local(self, n_rows: int) -> int:
        """How many of the host's first rows are this rank's."""
        return max((stop for _, stop in self._first_blocks(n_rows)), default=0)

    def needed_blocks(self, block: int) -> list[Rows]:
        return self._first_blocks(self.graph.host.needed.count(block))

    def _first_blocks(self, n_rows: int) -> list[Rows]:
        """This rank's shares of the host's first rows, in pieces that fit the cache."""
        return [rows for block in self.layout.first_blocks(n_rows)
                for rows in row_blocks(self.layout.backend, *self.layout.local_rows(block),
                                       self.width)]

    def _model_of_columns(self, model) -> Model:
        """The same hops with this rank's columns of all rows of the host."""
        hops = []
        for hop in model.hops:
            width = self.layout.slice_width(self.layout.rank, hop.source.width)
            # A hop is gathered from while rows of the next one arrive: two generations in turn.
            arriving = self.slices.get("in", hop.number % 2, width)
            leaving = self.slices.get("out", 0, width)
            source = Field.of("columns", arriving, leaving if hop.source.wants_gradient else None)
            hops.append(Hop(hop.number, source, Field.of("aggregated columns", leaving, arriving)))
            source.read_by(hops[-1])
        return Model(model.shape, model.parameters, [], hops, model.logits, [])

    def _tell_apart(self, groups: HostGroups):
        """Ranks of a host round different columns of the same nodes: each draws its own."""
        for _, _, exchange in self.columns.exchanges:
            for route in exchange.routes:
                route.out_stream += groups.number * (2 * groups.n_hosts + 1)
                route.in_stream += groups.number * (2 * groups.n_hosts + 1)

    def _there(self, hop, own) -> Moves:
        """The transposes of a hop's values; own: the same hop of this rank's columns."""
        return self._moves(hop, FORWARD, hop.source.value, hop.target.value, False,
                           own.source.value, own.target.value)

    def _back(self, hop, own) -> Moves:
        """The same of its gradients."""
        return self._moves(hop, BACKWARD, hop.target.grad, hop.source.grad, hop.source.adds(hop),
                           own.target.grad, own.source.grad)

    def _moves(self, hop, direction: int, x, out, adds: bool, slice_in, slice_out) -> Moves:
        make, plain, blocks = self.transposes, self.plain, range(self.layout.n_blocks)
        return Moves(x, out, adds, slice_in, slice_out,
                     make.gather(hop, x, slice_in, plain, direction, True, blocks),
                     make.scatter(hop, slice_out, out, adds, plain, direction, True, blocks))

    def close(self):
        """Take in what is in flight and free the persistent requests."""
        for moves in self.moves:
            for exchange in (*moves.gather.values(), *moves.scatter.values()):
                exchange.close()
        self.columns.close()
