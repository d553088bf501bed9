"""Feature parallelism: the exchanges that turn rows into columns and back, block by block."""

from __future__ import annotations

from hpcgcn.exchange.exchange import Exchange, Policy, Route
from hpcgcn.parallel.slices import Layout

FORWARD, BACKWARD = 0, 1
FIRST_TAG = 4000


class Transposes:
    """Makes the exchanges of all hops; `exchanges` keeps those of training, named for accounting and checkpoints."""

    def __init__(self, layout: Layout, seed: int):
        self.layout, self.seed, self.exchanges = layout, seed, []

    def gather(self, hop, width: int, policy: Policy, direction: int, training: bool, slice_in) -> list[Exchange]:
        """Rows become columns: my rows of another rank's columns go there; other ranks' rows of my columns come."""
        return [self._gather(hop, block, width, policy, direction, training, slice_in)
                for block in range(self.layout.n_blocks)]

    def _gather(self, hop, block, width, policy, direction, training, slice_in) -> Exchange:
        layout, rank = self.layout, self.layout.rank
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

    def scatter(self, hop, width: int, policy: Policy, direction: int, training: bool) -> list[Exchange]:
        """Columns become rows: the inverse."""
        return [self._scatter(hop, block, width, policy, direction, training) for block in range(self.layout.n_blocks)]

    def _scatter(self, hop, block, width, policy, direction, training) -> Exchange:
        layout, rank = self.layout, self.layout.rank
        mine, routes, landings = layout.slice_width(rank, width), [], []
        for peer in layout.peers():
            theirs = layout.slice_width(peer, width)
            outgoing, incoming = layout.message_rows(peer, block, mine), layout.message_rows(rank, block, theirs)
            if len(outgoing) or len(incoming):
                start = layout.rows(peer, block)[0]
                routes.append(Route(peer, outgoing, slice(start, start + len(outgoing)), incoming, None, None, mine, theirs,
                                    out_lane=-rank - 1, in_lane=-peer - 1))
                landings.append(layout.backend.zeros((len(incoming), theirs)))
        return self._exchange(hop, block, 1, routes, landings, width, policy, direction, training)

    def _exchange(self, hop, block, phase, routes, landings, width, policy, direction, training) -> Exchange:
        layout = self.layout
        number = ((hop.number * 2 + direction) * 2 + phase) * 2 + (not training)
        exchange = Exchange(layout.comm, layout.backend, routes, 0, width, policy, seed=self.seed, layer=hop.number,
                            tag=FIRST_TAG + number * layout.n_blocks + block, landings=landings)
        if training:
            name = ("forward", "backward")[direction] + ("", "_return")[phase]
            self.exchanges.append((hop.number, name, exchange))
        return exchange
