"""A stage of a pipeline of layers as an engine: the same calls as engine.py's, for parallel = 'layers'."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hpcgcn.exchange.policies import plain_policy
from hpcgcn.graph.data import Part, SparseRows
from hpcgcn.graph.local import build_local
from hpcgcn.nn.fields import Array
from hpcgcn.nn.models import Inputs, Shape, build_model
from hpcgcn.nn.parameters import Parameters
from hpcgcn.nn.steps import PassContext
from hpcgcn.parallel.layers.costs import measure_units
from hpcgcn.parallel.layers.chunk_schedule import chunk_order, free_schedule, historical_entries, waiting_schedules
from hpcgcn.parallel.layers.division import StagePlan, balance, check_stages, find_cuts, stage_plan
from hpcgcn.parallel.layers.grid import Grid
from hpcgcn.parallel.layers.matrices import ChunkedGraph
from hpcgcn.parallel.layers.storage import plan_stage
from hpcgcn.parallel.layers.strategy import PipelineStrategy
from hpcgcn.train.engine import Engine, Labels


@dataclass(frozen=True)
class PipelineSettings:
    """How chunks see each other."""

    history: bool = True             # False: exact, chunks wait for what they read
    hold: int = 23                   # epochs for which a snapshot is used
    shuffle: bool = True             # another order of chunks each epoch
    zero_gradients: bool = True      # gradients of chunks to come count nothing, those across chunks twice; False: last epoch's
    recompute: bool = True           # make activations again in backward where that frees an array

    @property
    def recomputes(self) -> bool:
        """Last epoch's gradients outlive the forward pass: where they are used, no activation can have their place."""
        return self.recompute and (self.zero_gradients or not self.history)

    @classmethod
    def of(cls, config) -> "PipelineSettings":
        return cls(config.history == "snapshot", config.history_hold, config.shuffle_chunks, config.history_gradients == "zero",
                   config.recompute)


class PipelineEngine(Engine):
    """This rank's stage and way. `comm` is the communicator of its ways; `ends` a division made before (see balance)."""

    def __init__(self, grid: Grid, backend, part: Part, shape: Shape, parameters: Parameters, *, seed: int,
                 settings: PipelineSettings, precompute: bool, ends: list[int] | None = None, make_policies=None):
        self.grid, self.backend, self.shape, self.parameters = grid, backend, shape, parameters
        self.runtime, self.comm = grid.ways, grid.ways.comm
        self.seed, self.settings = seed, settings
        # The input is aggregated once by these strategies (Engine._aggregate_once).
        self.parallel, self.precision, self.blocking = ("single" if grid.n_ways == 1 else "partition"), "fp32", False
        self.local = build_local(grid.ways.comm, part, shape.self_loops, keep_order=True)
        self.graph = ChunkedGraph(backend, grid.ways, self.local, part.chunks, shape.normalisation,
                                  settings.history and settings.zero_gradients)
        self.labels = self._labels(part)
        self.ids = backend.from_host(self.local.ids)
        inputs = self._inputs(part, precompute) if grid.first else self._no_inputs(part, precompute)
        self.model = build_model(backend, shape, parameters, self.local.n_owned, inputs)
        self.ends, plans = self._divide(inputs, ends)
        plan = plans[grid.stage]
        self.plan = plan_stage(plan, settings.recomputes, settings.history and not settings.zero_gradients,
                               self.model.logits if grid.last else None)
        parameters.allocate({p.spec.name for p in self.plan.parameters})
        self.plan.bind(backend)
        self.policies = make_policies(self) if make_policies else None
        plain = plain_policy()
        policies = self.policies or (lambda hop, direction: plain)
        self.strategy = PipelineStrategy(grid, backend, self.graph, self.model, plan, policies, plain, settings, seed,
                                         grid.world)
        self.loss_gradient = self.plan.loss_gradient.data if grid.last else None
        self._prepare_schedules([len(p.hops) for p in plans])
        self.reads_by_age = {}           # entries that were read, by the age of what they found in epochs

    # -- set-up -------------------------------------------------------------------------------------------------------
    def _labels(self, part: Part) -> Labels:
        """Only the last stage has logits to compare with labels."""
        labels = super()._labels(part)
        return labels if self.grid.last else replace(labels, host=labels.host[:0], split=labels.split[:0])

    def _no_inputs(self, part: Part, precompute: bool) -> Inputs:
        """Later stages plan the first layer like all others, but have no features."""
        if isinstance(part.features, SparseRows) and not precompute:
            return Inputs(self.ids, sparse=part.features)
        planned = [Array.elsewhere("input", (self.local.n_owned, part.n_features)) for _ in range(2)]
        return Inputs(self.ids, dense=planned[0], aggregated=planned[1] if precompute else None)

    def _divide(self, inputs: Inputs, ends: list[int] | None) -> tuple[list[int], list[StagePlan]]:
        """Cut the model into stages of about equal measured cost; the first rank measures for all."""
        cuts, n_stages = find_cuts(self.model), self.grid.n_stages
        check_stages(n_stages, len(cuts) + 1, self.shape.model)
        if ends is None or len(ends) != n_stages or ends[-1] != len(cuts) + 1:
            world = self.grid.world
            costs = (measure_units(self.backend, self.shape, inputs, self.graph, self.seed, self.settings.recomputes)
                     if world.rank == 0 else None)
            ends = balance(world.comm.bcast(costs), n_stages)
        return ends, [stage_plan(self.model, cuts, ends, stage) for stage in range(n_stages)]

    def _prepare_schedules(self, hops_of_stages: list[int]):
        """What an exact pass does; with history the schedule depends on the epoch's order."""
        order, stage = list(range(self.graph.n_chunks)), self.grid.stage
        self.exact_forward = waiting_schedules(order, hops_of_stages, self.graph.reads)[stage]
        backward = waiting_schedules(order, hops_of_stages[::-1], self.graph.reads.T)
        self.exact_backward = backward[self.grid.n_stages - 1 - stage]

    # -- passes -------------------------------------------------------------------------------------------------------
    def train_pass(self, epoch: int) -> float:
        """All chunks forward, all chunks back. Returns this rank's sum of the losses: 0 but on the last stage."""
        context, strategy = PassContext(self.seed, epoch, True), self.strategy
        history = strategy.history
        exact = history is None or history.anew
        n_hops, order = strategy.stage.n_hops, self.order(epoch)
        forward = self.exact_forward if exact else free_schedule(order, n_hops)
        backward = self.exact_backward if exact else free_schedule(order[::-1], n_hops)
        self._count_reads(epoch, order, exact)
        self.parameters.zero_grad()
        if history:
            history.begin_forward()
        losses = []
        add_loss = (lambda rows: losses.append(self._chunk_loss(rows))) if self.grid.last else None
        strategy.forward_pass(forward, context, exact, add_loss)
        if history:
            history.end_forward(epoch)
            history.begin_backward()
        strategy.backward_pass(backward, context, exact, self._hand_over_loss if self.grid.last else None)
        return sum(losses)

    def order(self, epoch: int) -> list[int]:
        return chunk_order(self.seed, epoch, self.graph.n_chunks, self.settings.shuffle)

    def _hand_over_loss(self, rows):
        """A chunk's turn in backward has come."""
        if self.loss_gradient is not self.model.logits.grad:
            self.backend.copy(self.loss_gradient[slice(*rows)], self.model.logits.grad[slice(*rows)])

    def _chunk_loss(self, rows) -> float:
        block, labels, logits = slice(*rows), self.labels, self.model.logits
        scale = 1.0 / max(labels.n_train, 1)
        if labels.multilabel:
            return self.backend.sigmoid_cross_entropy(logits.value[block], labels.train[block], labels.row_used[block], scale,
                                                      self.loss_gradient[block])
        return self.backend.softmax_cross_entropy(logits.value[block], labels.train[block], scale, self.loss_gradient[block])

    def evaluate(self):
        """Exact logits of the local rows on the last stage, none elsewhere."""
        self.strategy.evaluation_pass(self.exact_forward, PassContext(self.seed, 0, False))
        return self.model.logits.value if self.grid.last else self.backend.zeros((0, self.shape.n_classes))

    # -- accounting ---------------------------------------------------------------------------------------------------
    def _count_reads(self, epoch: int, order: list[int], exact: bool):
        entries, n_hops = int(self.graph.entries.sum()), len(self.model.hops)
        late = 0 if exact else historical_entries(order, self.graph.entries)
        self.history_share = late / entries if entries else 0.0
        for key, n in (("current", entries - late), *([(self.strategy.history.age(epoch), late)] if late else [])):
            self.reads_by_age[key] = self.reads_by_age.get(key, 0) + n * n_hops

    def facts(self) -> dict:
        """What the summary tells about the pipeline."""
        n_stages, n_chunks = self.grid.n_stages, self.graph.n_chunks
        total = sum(self.reads_by_age.values())
        return {"stages": n_stages, "ways": self.grid.n_ways, "chunks": n_chunks * self.grid.n_ways,
                "hops_of_stages": self.grid.stages.comm.allgather(self.strategy.stage.n_hops), "units_end": self.ends,
                "bubble_predicted": (n_stages - 1) / (n_chunks + n_stages - 1),
                "reads_by_age": {str(age): n / total for age, n in self.reads_by_age.items()} if total else {}}
