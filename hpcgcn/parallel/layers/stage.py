"""A stage at work: its steps and hops on one chunk, and a whole pass over all chunks."""

from __future__ import annotations

from hpcgcn.nn.steps import PassContext, eager_weight_gradients, run_backward, run_weight_gradients
from hpcgcn.parallel.aggregation import row_blocks
from hpcgcn.parallel.layers.chunk_schedule import ChunkSchedule
from hpcgcn.parallel.layers.division import StagePlan


class Stage:
    """Runs the segments of a plan. forward[k] and backward[k] belong to the stage's hop k; backward
    None: no gradient."""

    def __init__(self, plan: StagePlan, graph, forward: list, evaluation: list, backward: list,
                 width: int, progress):
        self.plan, self.graph, self.width, self.progress = plan, graph, width, progress
        self.forward, self.evaluation, self.backward = forward, evaluation, backward
        self.eager = [eager_weight_gradients(steps) for steps in plan.segments]
        missing = [k for k, hop in enumerate(backward) if hop is None]
        self.lowest = max(missing) + 1 if missing else 0          # segments below need no gradient

    @property
    def n_hops(self) -> int:
        """Number of hops of this stage."""
        return len(self.plan.hops)

    def _blocks(self, chunk: int):
        start, stop = self.graph.rows(chunk)
        return row_blocks(self.graph.backend, start, stop, self.width)

    def run_forward(self, schedule: ChunkSchedule, context: PassContext, inbound, outbound,
                    exact: bool, on_leaving=None):
        """All chunks through this stage; on_leaving(rows) is called when a chunk is through."""
        hops = self.forward if context.training else self.evaluation
        inbound.begin(schedule.arrivals, context.epoch)
        for tasks in schedule.tasks:
            inbound.take()
            for chunk, level in tasks:
                for rows in hops[level - 1].pull(chunk, exact) if level else self._blocks(chunk):
                    for step in self.plan.segments[level]:
                        step.forward(rows, context)
                    self.progress.progress()
                if level < self.n_hops:
                    hops[level].push(chunk, context)
                    continue
                outbound.send(chunk, context.epoch)
                if on_leaving:
                    on_leaving(self.graph.rows(chunk))
        outbound.finish()

    def run_backward(self, schedule: ChunkSchedule, context: PassContext, inbound, outbound,
                     exact: bool, on_entering=None):
        """All chunks back through this stage; depth 0 of the schedule is the last segment.
        on_entering(rows): a chunk begins."""
        inbound.begin(schedule.arrivals, context.epoch)
        for tasks in schedule.tasks:
            inbound.take()
            for chunk, depth in tasks:
                level = self.n_hops - depth
                if level < self.lowest:
                    continue
                if depth == 0 and on_entering:
                    on_entering(self.graph.rows(chunk))
                steps, eager, done = self.plan.segments[level], self.eager[level], []
                for rows in self.backward[level].pull(chunk, context,
                                                      exact) if depth else self._blocks(chunk):
                    run_backward(steps, eager, rows, context)
                    self.progress.progress()
                    done.append(rows)
                if level == 0:
                    outbound.send(chunk, context.epoch)
                for rows in done:  # the stage below waits for the chunk, nobody for this
                    run_weight_gradients(steps, eager, rows, context)
                    self.progress.progress()
        outbound.finish()
