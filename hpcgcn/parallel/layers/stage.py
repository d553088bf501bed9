"""A stage at work: its steps and hops on one chunk, and a whole pass over all chunks."""

from __future__ import annotations

from hpcgcn.nn.steps import Moment, cannot_wait, run_backward, run_weigh
from hpcgcn.parallel.base import row_blocks
from hpcgcn.parallel.layers.course import Course
from hpcgcn.parallel.layers.division import StagePlan


class Stage:
    """Runs the segments of a plan. forward[k] and backward[k] belong to the stage's hop k; backward None: no gradient."""

    def __init__(self, plan: StagePlan, graph, forward: list, evaluation: list, backward: list, width: int, progress):
        self.plan, self.graph, self.width, self.progress = plan, graph, width, progress
        self.forward, self.evaluation, self.backward = forward, evaluation, backward
        self.urgent = [cannot_wait(steps) for steps in plan.segments]
        missing = [k for k, hop in enumerate(backward) if hop is None]
        self.lowest = max(missing) + 1 if missing else 0          # segments below need no gradient

    @property
    def n_hops(self) -> int:
        return len(self.plan.hops)

    def _blocks(self, chunk: int):
        return row_blocks(*self.graph.rows(chunk), self.width)

    def run_forward(self, course: Course, moment: Moment, inbound, outbound, exact: bool, on_leaving=None):
        """All chunks through this stage; on_leaving(rows) is called when a chunk is through."""
        hops = self.forward if moment.training else self.evaluation
        inbound.begin(course.arrivals, moment.epoch)
        for tasks in course.tasks:
            inbound.take()
            for chunk, level in tasks:
                for rows in hops[level - 1].pull(chunk, exact) if level else self._blocks(chunk):
                    for step in self.plan.segments[level]:
                        step.forward(rows, moment)
                    self.progress.poke()
                if level < self.n_hops:
                    hops[level].push(chunk, moment)
                    continue
                outbound.send(chunk, moment.epoch)
                if on_leaving:
                    on_leaving(self.graph.rows(chunk))
        outbound.finish()

    def run_backward(self, course: Course, moment: Moment, inbound, outbound, exact: bool, on_entering=None):
        """All chunks back through this stage; depth 0 of the course is the last segment. on_entering(rows): a chunk begins."""
        inbound.begin(course.arrivals, moment.epoch)
        for tasks in course.tasks:
            inbound.take()
            for chunk, depth in tasks:
                level = self.n_hops - depth
                if level < self.lowest:
                    continue
                if depth == 0 and on_entering:
                    on_entering(self.graph.rows(chunk))
                steps, urgent, done = self.plan.segments[level], self.urgent[level], []
                for rows in self.backward[level].pull(chunk, moment, exact) if depth else self._blocks(chunk):
                    run_backward(steps, urgent, rows, moment)
                    self.progress.poke()
                    done.append(rows)
                if level == 0:
                    outbound.send(chunk, moment.epoch)
                for rows in done:                # the stage below waits for the chunk, nobody for this
                    run_weigh(steps, urgent, rows, moment)
                    self.progress.poke()
        outbound.finish()
