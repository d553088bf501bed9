"""One rank of the pipeline: its stage, the links to its neighbours, the halo exchanges among
partitions, and history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from hpcgcn.exchange.exchange import Exchange
from hpcgcn.exchange.types import Policy
from hpcgcn.nn.models import Model
from hpcgcn.parallel.aggregation import Aggregations, gathers_gradient
from hpcgcn.parallel.attention import AttentionProducts
from hpcgcn.parallel.layers.attention import (
    AttentionBackwardHop,
    AttentionForwardHop,
    HaloLogits,
)
from hpcgcn.parallel.layers.division import StagePlan
from hpcgcn.parallel.layers.grid import Grid
from hpcgcn.parallel.layers.history import History
from hpcgcn.parallel.layers.hops import BackwardHop, ChunkHalo, ForwardHop
from hpcgcn.parallel.layers.links import NoLink, StageLink
from hpcgcn.parallel.layers.matrices import ChunkedGraph
from hpcgcn.parallel.layers.stage import Stage

# Random streams keep the directions apart; None: evaluation, which is exact.
STREAMS = {"forward": 10_000, "backward": 20_000, None: 0}


class PipelineRank(Aggregations):
    """`policies(hop, direction)` gives a hop's halo exchange its Policy; a stage link has that of
    the first hop behind it."""

    def __init__(self, grid: Grid, backend, graph: ChunkedGraph, model: Model, plan: StagePlan,
                 policies, plain: Policy, settings, seed: int, progress):
        self.grid, self.backend, self.graph, self.model, self.plan = (grid, backend, graph, model,
                                                                      plan)
        self.policies, self.plain, self.settings, self.seed = policies, plain, settings, seed
        self.role = f"stage {grid.stage + 1}" if grid.n_stages > 1 else "both"
        self.exchanges: list[tuple[int, str, Exchange]] = []
        self.halos: list[ChunkHalo] = []
        self.links: list[StageLink] = []
        self._make_hops(progress)
        self._make_links()

    # -- set-up ------------------------------------------------------------------------------------
    def _make_hops(self, progress):
        forward: list[ForwardHop] = []
        evaluation: list[ForwardHop] = []
        backward: list[BackwardHop | None] = []
        settings, self.ids = self.settings, self.backend.from_host(self.graph.local.ids)
        self.history = (History(self.graph, settings.history_hold, not settings.zeroes_gradients)
                        if settings.keeps_history else None)
        for hop in self.plan.hops:
            halo = self.backend.zeros((self.graph.local.n_halo,
                                       hop.source.width)) if self.grid.n_partitions > 1 else None
            training = self._halo(hop, "forward", self.policies(hop.number, "forward"))
            there, back = self._kinds(hop, halo)
            forward.append(there(self.graph, hop, halo, training, progress, training=True))
            exact = training
            if training is not None and not (training.exchanges[0].policy.exact
                                             and self.graph.needs_all(hop.number - 1)):
                exact = self._halo(hop, "forward", self.plain, training=False)
            evaluation.append(there(self.graph, hop, halo, exact, progress, training=False))
            backward.append(None)
            if gathers_gradient(hop):
                returned = self._halo(hop, "backward", self.policies(hop.number, "backward"))
                backward[-1] = back(self.graph, hop, returned, progress)
            if self.history:
                self.history.add(hop, halo)
        self.stage = Stage(self.plan, self.graph, forward, evaluation, backward,
                           self.model.shape.hidden, progress)

    def _kinds(self, hop, halo) -> tuple[Callable[..., ForwardHop], Callable[..., BackwardHop]]:
        """What makes a hop's aggregations; halo: where rows of other partitions arrive."""
        if not hop.attention:
            return ForwardHop, BackwardHop
        products = AttentionProducts(self.backend, hop, self.ids)
        logits = HaloLogits(self.graph, products, halo) if halo is not None else None
        return (partial(AttentionForwardHop, products=products, halo_logits=logits),
                partial(AttentionBackwardHop, products=products, halo_logits=logits))

    def _halo(self, hop, direction: str, policy: Policy, training: bool = True) -> ChunkHalo | None:
        if self.grid.n_partitions == 1:
            return None
        halo = ChunkHalo(self.graph, hop.source.width, policy, direction, self.seed, hop.number,
                         training)
        self.halos.append(halo)
        if training:
            self.exchanges += [(hop.number, direction, exchange) for exchange in halo.exchanges]
        return halo

    def _make_links(self):
        plan = self.plan
        self.come, self.go = self._pair(plan.received, -1,
                                        plan.first_hop), self._pair(plan.sent, 1, plan.next_hop)
        self.evaluation_links = (self._exact_link(plan.received, -1, plan.first_hop, self.come[0]),
                                 self._exact_link(plan.sent, 1, plan.next_hop, self.go[0]))

    def _exact_link(self, fields: list, side: int, hop: int, training):
        """Training's own link if that is exact, or another one."""
        if not fields or (self.policies(hop, "forward").exact and self._sends_all(hop)):
            return training
        return self._link([f.value for f in fields], side, hop, None)

    def _sends_all(self, hop: int) -> bool:
        """Do links before a hop send all rows of this partition?"""
        return bool(self.graph.local.needed.mask(hop - 1).all())

    def _pair(self, fields: list, side: int, hop: int) -> tuple:
        """(values, gradients) that cross one side of the stage."""
        return (self._link([f.value for f in fields], side, hop, "forward"),
                self._link([f.grad for f in fields], side, hop, "backward"))

    def _link(self, arrays: list, side: int, hop: int, direction: str | None):
        if not arrays:
            return NoLink()
        policy = self.plain if direction is None else _prompt(self.policies(hop, direction))
        # What a hop reads, and the gradients of that.
        chunks = [self.graph.rows(chunk, None if direction is None else hop - 1)
                  for chunk in range(self.graph.n_chunks)]
        link = StageLink(self.grid.world, self.backend, self.grid.neighbour(side), arrays,
                         self.graph.local.ids, chunks, policy, seed=self.seed, layer=hop,
                         stream=STREAMS[direction])
        self.links.append(link)
        if direction:
            self.exchanges += [(hop, f"stage_{direction}", exchange) for exchange in link.exchanges]
        return link

    # -- passes ------------------------------------------------------------------------------------
    def forward_pass(self, schedule, context, exact: bool, on_leaving):
        """All chunks through this rank's stage."""
        self.stage.run_forward(schedule, context, self.come[0], self.go[0], exact, on_leaving)

    def backward_pass(self, schedule, context, exact: bool, on_entering):
        """All chunks back through this rank's stage."""
        self.stage.run_backward(schedule, context, self.go[1], self.come[1], exact, on_entering)

    def evaluation_pass(self, schedule, context):
        """All chunks through this rank's stage, exactly."""
        self.stage.run_forward(schedule, context, *self.evaluation_links, exact=True)

    # -- accounting and checkpoints ----------------------------------------------------------------
    def work(self) -> list[tuple[int, str, int]]:
        return []                    # products are per chunk, and counted all together

    def multiply_adds(self) -> int:
        """Of the sparse products of an epoch."""
        return sum(self.graph.n_entries(hop.number) * hop.source.width
                   * (1 + gathers_gradient(hop)) for hop in self.plan.hops)

    def named_exchanges(self) -> dict[str, Any]:
        """All that the next epoch may depend on, by name."""
        named: dict[str, Any] = {"history": self.history} if self.history else {}
        counts: Counter[str] = Counter()
        for hop, direction, exchange in self.exchanges:
            stem = f"{hop}.{direction}"
            named[f"{stem}.{counts[stem]}"] = exchange
            counts[stem] += 1
        return named

    def close(self):
        """Take in what is in flight and free the persistent requests."""
        for link in self.links:
            link.close()
        for halo in self.halos:
            for exchange in halo.exchanges:
                exchange.close()


def _prompt(policy: Policy) -> Policy:
    """The same code without staleness: the next stage needs a chunk now."""
    return replace(policy, staleness=0, refresh_every=0, smoothing=0.0, measured=False)
