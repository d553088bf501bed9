"""Feature parallelism: the exchanges that turn rows into columns and back, block by block."""

from __future__ import annotations

from collections.abc import Iterable

from hpcgcn.exchange.exchange import Exchange
from hpcgcn.exchange.types import Policy, Route
from hpcgcn.parallel.features.layout import Layout

FORWARD, BACKWARD = 0, 1


class Transposes:
    """Makes the exchanges of all hops; `exchanges` keeps those of training, named for accounting
    and checkpoints."""

    def __init__(self, layout: Layout, seed: int, names: tuple[str, str] = ("", "_return")):
        """names: what accounting adds to the direction for rows that become columns, and back."""
        self.layout, self.seed, self.names = layout, seed, names
        self.exchanges: list[tuple[int, str, Exchange]] = []

    def gather(self, hop, x, slice_in, policy: Policy, direction: int, training: bool,
               blocks: Iterable[int]) -> dict[int, Exchange]:
        """Rows become columns: my rows of another rank's columns go there; other ranks' rows of my
        columns come. {block: exchange}"""
        return {block: self._gather(hop, block, x, slice_in, policy, direction, training)
                for block in blocks}

    def _gather(self, hop, block, x, slice_in, policy, direction, training) -> Exchange:
        layout, rank, width = self.layout, self.layout.rank, x.shape[1]
        mine, routes, receive_arrays = layout.slice_width(rank, width), [], []
        for peer in layout.peers():
            theirs = layout.slice_width(peer, width)
            outgoing, incoming = layout.message_rows(rank, block,
                                                     theirs), layout.message_rows(peer, block, mine)
            if len(outgoing) or len(incoming):
                first = layout.local_rows(block)[0]
                routes.append(Route(peer, outgoing, slice(first, first + len(outgoing)), incoming,
                                    None, layout.columns(peer, width), theirs, mine,
                                    out_stream=peer + 1, in_stream=rank + 1))
                start = layout.rows(peer, block)[0]
                receive_arrays.append(slice_in[start:start + len(incoming)])
        return self._exchange(hop, 0, routes, receive_arrays, x, width, policy, direction, training)

    def scatter(self, hop, slice_out, out, adds: bool, policy: Policy, direction: int,
                training: bool, blocks: Iterable[int]) -> dict[int, Exchange]:
        """Columns become rows: the inverse. See `received_whole` for where they are received."""
        return {block: self._scatter(hop, block, slice_out, out, adds, policy, direction, training)
                for block in blocks}

    def received_whole(self, adds: bool, policy: Policy) -> bool:
        """Are rows received in the output itself?

        Only if one rank has all columns, and nothing reads the received rows later.
        """
        return len(self.layout.aggregators) == 1 and not adds and policy.exact

    def _scatter(self, hop, block, slice_out, out, adds, policy, direction, training) -> Exchange:
        layout, rank, width = self.layout, self.layout.rank, out.shape[1]
        mine, routes, receive_arrays = layout.slice_width(rank, width), [], []
        for peer in layout.peers():
            theirs = layout.slice_width(peer, width)
            outgoing, incoming = layout.message_rows(peer, block,
                                                     mine), layout.message_rows(rank, block, theirs)
            if len(outgoing) or len(incoming):
                start = layout.rows(peer, block)[0]
                routes.append(Route(peer, outgoing, slice(start, start + len(outgoing)), incoming,
                                    None, None, mine, theirs,
                                    out_stream=-rank - 1, in_stream=-peer - 1))
                in_place = theirs and self.received_whole(adds, policy)
                receive_arrays.append(out[slice(*layout.local_rows(block))] if in_place
                                else layout.backend.zeros((len(incoming), theirs)))
        return self._exchange(hop, 1, routes, receive_arrays, slice_out, width, policy, direction,
                              training)

    def _exchange(self, hop, phase, routes, receive_arrays, source, width, policy, direction,
                  training) -> Exchange:
        layout = self.layout
        exchange = Exchange(layout.runtime, layout.backend, routes, 0, width, policy,
                            seed=self.seed, layer=hop.number,
                            receive_arrays=receive_arrays, source=source)
        if training:
            name = ("forward", "backward")[direction] + self.names[phase]
            self.exchanges.append((hop.number, name, exchange))
        return exchange
