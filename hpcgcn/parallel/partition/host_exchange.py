"""An exchange whose rows come to a host once: what arrives from other hosts at one rank is passed
on to those of its host that read it, and gradients for it are added up before they leave.

Codec, staleness and smoothing are those of the exchange between neighbours; what stays within the
host is sent as it is, in the epoch in which it is used.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpcgcn.exchange.codec import Rows as MessageRows
from hpcgcn.exchange.exchange import Exchange
from hpcgcn.exchange.policies import plain_policy
from hpcgcn.exchange.types import Policy, Route
from hpcgcn.parallel.partition.halo_plans import HopHalo


def passing_routes(backend, plan: HopHalo, direction: str) -> list[Route]:
    """Within the host: what arrived to those who read it, or their gradients back."""
    shift, routes, given = plan.n_arriving, [], 0

    def rows(n: int, index=None) -> MessageRows:
        ids = np.arange(n, dtype=np.int64)
        return MessageRows(index, backend.from_host(ids), ids)

    for p in plan.passing:
        taken = slice(p.received.start - shift, p.received.stop - shift)
        to_me = rows(taken.stop - taken.start)
        if direction == "forward":
            routes.append(Route(p.rank, rows(len(p.places), backend.from_host(p.places)), None,
                                to_me, taken))
        else:
            returned = slice(given, given + len(p.places))
            routes.append(Route(p.rank, to_me, taken, rows(len(p.places)), returned))
        given += len(p.places)
    return routes


class ByHost:
    """Two exchanges: between neighbours, and within the host. `across` is the one whose settings
    count."""

    def __init__(self, across: Exchange, within: Exchange):
        self.across, self.within = across, within
        self.policy, self.compressor = across.policy, across.compressor

    received: Any = None             # values, where they are put together

    def start(self, x, epoch: int):
        """Send."""
        raise NotImplementedError

    def finish(self):
        """What to use in this epoch."""
        raise NotImplementedError

    def close(self):
        """Take in what is in flight and free the persistent requests."""
        self.across.close()
        self.within.close()


HaloExchange = Exchange | ByHost


class ForwardByHost(ByHost):
    """Values. received: (n_received, width), where all of them are put together."""

    def __init__(self, across: Exchange, within: Exchange, received):
        super().__init__(across, within)
        self.received = received
        self._epoch, self._complete = 0, True

    def start(self, x, epoch: int):
        """Send rows of x to the neighbours."""
        self.across.start(x, epoch)
        self._epoch, self._complete = epoch, False

    def finish(self):
        """The rows to use, (n_received, width). Twice does no harm."""
        arrived = self.across.finish()
        if not self._complete:
            backend, n_arriving = self.across.backend, arrived.shape[0]
            self.within.start(arrived, self._epoch)
            backend.copy(arrived, self.received[:n_arriving])
            backend.copy(self.within.finish(), self.received[n_arriving:])
            self._complete = True
        return self.received


class BackwardByHost(ByHost):
    """Gradients of what was received, (n_received, width)."""

    def __init__(self, across: Exchange, within: Exchange, plan: HopHalo):
        super().__init__(across, within)
        self.n_arriving = plan.n_arriving
        self._places = [across.backend.from_host(p.places) for p in plan.passing]

    def start(self, x, epoch: int):
        """Add what the ranks of this host have for rows that arrived here, and send the sums."""
        arriving, others = x[:self.n_arriving], x[self.n_arriving:]
        self.within.start(others, epoch)
        returned = self.within.finish()
        for places, route in zip(self._places, self.within.routes):
            self.across.backend.scatter_add_rows(returned[route.receive_slice], places, arriving)
        self.across.start(arriving, epoch)

    def finish(self):
        """The gradients of this rank's rows, (n_sent, width)."""
        return self.across.finish()


def by_host(make, backend, plan: HopHalo, direction: str, routes: list[Route], policy: Policy,
            width: int, source) -> ByHost:
    """The exchanges of a hop and direction. make(routes, n_received, policy, source): an Exchange;
    routes, policy: of that between neighbours. source: the array that `start` always gets."""
    within = passing_routes(backend, plan, direction)
    n_given = sum(len(p.places) for p in plan.passing)
    if direction == "forward":
        return ForwardByHost(make(routes, plan.n_arriving, policy, source),
                             make(within, plan.n_received - plan.n_arriving, plain_policy(), None),
                             backend.zeros((plan.n_received, width)))
    return BackwardByHost(make(routes, plan.n_sent, policy, source[:plan.n_arriving]),
                          make(within, n_given, plain_policy(), source[plan.n_arriving:]),
                          plan)
