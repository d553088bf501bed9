"""A stage of a pipeline of layers over its chunks: the same calls as those of any engine."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import SupportsFloat

import numpy as np

from hpcgcn.graph.data import Part, SparseRows
from hpcgcn.nn.fields import Array
from hpcgcn.nn.models import Inputs, Shape, build_model
from hpcgcn.nn.parameters import Parameters
from hpcgcn.nn.steps import PassContext
from hpcgcn.parallel.engine import aggregate_once, warn_of_unread_weights
from hpcgcn.parallel.layers.chunk_schedule import (
    chunk_order,
    free_schedule,
    historical_entries,
    waiting_schedules,
)
from hpcgcn.parallel.layers.costs import measure_units
from hpcgcn.parallel.layers.division import StagePlan, balance, check_stages, find_cuts, stage_plan
from hpcgcn.parallel.layers.matrices import ChunkedGraph
from hpcgcn.parallel.layers.rank import PipelineRank
from hpcgcn.parallel.layers.storage import plan_stage
from hpcgcn.parallel.local_graph import build_local
from hpcgcn.parallel.needed import NeededRows, count_hops
from hpcgcn.parallel.rows import Labels, local_inputs, local_labels
from hpcgcn.parallel.strategy import exact_policies

ENDS = "ends"                        # in choices.json: how the model was divided into stages


def _is_division(stage_ends, n_stages: int, n_units: int) -> bool:
    """Do the ends of stages, which a file may hold, cut this many units into this many stages?"""
    return (isinstance(stage_ends, list) and len(stage_ends) == n_stages
            and stage_ends[-1] == n_units and stage_ends == sorted(set(stage_ends)))


class PipelineEngine:
    """This rank's stage of a model over its partition of the nodes."""

    def __init__(self, strategy, backend, part: Part, shape: Shape, parameters: Parameters, *,
                 precompute: bool, make_policies=None):
        self.strategy, self.backend, self.shape, self.parameters = (strategy, backend, shape,
                                                                    parameters)
        self.grid = grid = strategy.grid
        self.comm, self.seed = grid.partitions.comm, strategy.config.seed
        self.settings = settings = strategy.settings
        if make_policies and grid.world.rank == 0:
            warn_of_unread_weights(part, shape)
        chunks = np.array([0, part.n_owned]) if part.chunks is None else part.chunks
        n_hops = (count_hops(shape, sparse=isinstance(part.features, SparseRows),
                             precomputed=precompute) if make_policies else None)
        self.local = build_local(self.comm, part, shape.self_loops, n_hops,
                                 all_rows=not strategy.config.needed_rows, chunks=chunks)
        self.graph = ChunkedGraph(backend, grid.partitions, self.local, chunks,
                                  shape.normalisation,
                                  settings.doubles_gradients)
        self.labels = self._labels(part)
        inputs = self._inputs(part, precompute)
        self.model = build_model(backend, shape, parameters, self.local.n_owned, inputs)
        plans = self._divide(inputs)
        plan = plans[grid.stage]
        self.plan = plan_stage(backend, plan, settings.recomputes,
                               settings.keeps_history and not settings.zeroes_gradients,
                               self.model.logits if grid.last else None)
        parameters.allocate({p.spec.name for p in self.plan.parameters})
        self.plan.bind(backend)
        self.policies = make_policies(self) if make_policies else None
        training, plain = exact_policies(self.policies)
        self.aggregations = PipelineRank(grid, backend, self.graph, self.model, plan, training,
                                         plain, settings, self.seed, grid.world)
        loss_gradient = self.plan.loss_gradient              # on the last stage
        self.loss_gradient = None if loss_gradient is None else loss_gradient.data
        if self.aggregations.history and strategy.config.first_epoch == "sync":
            self.aggregations.history.start_anew()       # the first epoch waits, and is exact
        self._prepare_schedules([len(p.hops) for p in plans])
        # Entries that were read, by the age in epochs of the rows that they read.
        self.reads_by_age: Counter[int | str] = Counter()

    # -- set-up ----------------------------------------------------------------------------------
    def _labels(self, part: Part) -> Labels:
        """Only the last stage has logits to compare with labels."""
        labels = local_labels(self.comm, self.backend, part, self.local.order,
                              self.strategy.config.class_weights)
        if self.grid.last:
            return labels
        return replace(labels, host=labels.host[:0], split=labels.split[:0])

    def _inputs(self, part: Part, precompute: bool) -> Inputs:
        """Features are on the first stage; the others plan the first layer like all others."""
        ids = self.backend.from_host(self.local.ids)
        if self.grid.first:
            return local_inputs(self.backend, part, self.local.order, ids,
                                self._aggregate_once if precompute else None)
        if isinstance(part.features, SparseRows) and not precompute:
            return Inputs(ids, sparse=part.features)
        planned = [Array.elsewhere("input", (self.local.n_owned, part.n_features))
                   for _ in range(2)]
        return Inputs(ids, dense=planned[0], aggregated=planned[1] if precompute else None)

    def _aggregate_once(self, rows):
        """Among the ranks of the first stage, as if the graph were only partitioned."""
        everywhere = NeededRows(np.zeros(self.local.n_owned, np.int32), 0, all_rows=True)
        local = replace(self.local, needed=everywhere,
                        boundary=np.full(self.local.n_owned, self.grid.n_partitions > 1))
        return aggregate_once(self.strategy.within_stage, self.backend, local, self.shape,
                              self.parameters, rows)

    def _divide(self, inputs: Inputs) -> list[StagePlan]:
        """Cut the model into stages of about equal cost; the first rank measures for all."""
        cuts, n_stages = find_cuts(self.model), self.grid.n_stages
        check_stages(n_stages, len(cuts) + 1, self.shape.model)
        stage_ends = self.strategy.choices.get(ENDS)
        if not _is_division(stage_ends, n_stages, len(cuts) + 1):
            world = self.grid.world
            costs = (measure_units(self.backend, self.shape, inputs, self.graph, self.seed,
                                   self.settings.recomputes) if world.rank == 0 else None)
            stage_ends = self.strategy.choices[ENDS] = balance(world.comm.bcast(costs), n_stages)
        return [stage_plan(self.model, cuts, stage_ends, stage) for stage in range(n_stages)]

    def _prepare_schedules(self, hops_of_stages: list[int]):
        """What an exact pass does; with history the schedule depends on the epoch's order."""
        order, stage = list(range(self.graph.n_chunks)), self.grid.stage
        self.exact_forward = waiting_schedules(order, hops_of_stages, self.graph.reads)[stage]
        backward = waiting_schedules(order, hops_of_stages[::-1], self.graph.reads.T)
        self.exact_backward = backward[self.grid.n_stages - 1 - stage]

    # -- passes ------------------------------------------------------------------------------------
    def train_pass(self, epoch: int) -> float:
        """All chunks forward, all chunks back.

        Returns this rank's sum of the losses: 0 but on the last stage.
        """
        context, strategy = PassContext(self.seed, epoch, True), self.aggregations
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
        strategy.backward_pass(backward, context, exact,
                               self._hand_over_loss if self.grid.last else None)
        return sum(map(float, losses))

    def order(self, epoch: int) -> list[int]:
        """The order of the chunks in an epoch."""
        return chunk_order(self.seed, epoch, self.graph.n_chunks, self.settings.shuffle_chunks)

    def _hand_over_loss(self, rows):
        """A chunk's turn in backward has come."""
        if self.loss_gradient is not None and self.loss_gradient is not self.model.logits.grad:
            self.backend.copy(self.loss_gradient[slice(*rows)],
                              self.model.logits.grad[slice(*rows)])

    def _chunk_loss(self, rows) -> SupportsFloat:
        return self.labels.loss(self.backend, self.model.logits.value, self.loss_gradient,
                                slice(*rows))

    def evaluate(self):
        """Exact logits of the local rows on the last stage, none elsewhere."""
        self.aggregations.evaluation_pass(self.exact_forward, PassContext(self.seed, 0, False))
        return (self.model.logits.value if self.grid.last
                else self.backend.zeros((0, self.shape.n_classes)))

    def close(self):
        """Free what MPI holds."""
        self.aggregations.close()

    # -- accounting --------------------------------------------------------------------------------
    def _count_reads(self, epoch: int, order: list[int], exact: bool):
        entries, n_hops = int(self.graph.entries.sum()), len(self.model.hops)
        late = 0 if exact else historical_entries(order, self.graph.entries)
        self.history_share = late / entries if entries else 0.0
        self.reads_by_age["current"] += (entries - late) * n_hops
        if late and self.aggregations.history:
            self.reads_by_age[self.aggregations.history.age(epoch)] += late * n_hops

    def facts(self) -> dict:
        """What the summary tells about the pipeline."""
        n_stages, n_chunks = self.grid.n_stages, self.graph.n_chunks
        total = sum(self.reads_by_age.values())
        return {"stages": n_stages, "partitions_per_stage": self.grid.n_partitions,
                "chunks": n_chunks * self.grid.n_partitions,
                "hops_of_stages": self.grid.stages.comm.allgather(self.aggregations.stage.n_hops),
                "units_end": self.strategy.choices[ENDS],
                "bubble_predicted": (n_stages - 1) / (n_chunks + n_stages - 1),
                "reads_by_age": {str(age): n / total for age, n in self.reads_by_age.items()}
                if total else {}}
