"""A stage at work: its steps and hops on one chunk, and a whole pass over all chunks."""

from __future__ import annotations

from hpcgcn.nn.fields import Field
from hpcgcn.nn.steps import PassContext, eager_weight_gradients, run_backward, run_weight_gradients
from hpcgcn.parallel.aggregation import row_blocks
from hpcgcn.parallel.layers.chunk_schedule import ChunkSchedule
from hpcgcn.parallel.layers.division import StagePlan
from hpcgcn.trace.recorder import PassMarks


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
        self.shared_gradients = self._shared_gradients()
        self.marks = PassMarks(progress.trace, plan.first_hop - 1 + len(plan.hops))

    @property
    def n_hops(self) -> int:
        """Number of hops of this stage."""
        return len(self.plan.hops)

    def block(self, level: int) -> int:
        """The block of the whole model that a segment belongs to."""
        return self.plan.first_hop - 1 + level

    def _rows(self, chunk: int, level: int, training: bool = True) -> tuple[int, int]:
        """The rows of a chunk that a segment is run on."""
        return self.graph.rows(chunk, self.block(level) if training else None)

    def _blocks(self, chunk: int, level: int, training: bool = True):
        start, stop = self._rows(chunk, level, training)
        return row_blocks(self.graph.backend, start, stop, self.width)

    def run_forward(self, schedule: ChunkSchedule, context: PassContext, inbound, outbound,
                    exact: bool, on_leaving=None):
        """All chunks through this stage; on_leaving(rows) is called when a chunk is through."""
        hops = self.forward if context.training else self.evaluation
        inbound.begin(schedule.arrivals, context.epoch)
        for hop in hops if not exact else ():
            hop.begin()
        for tasks in schedule.tasks:
            inbound.take()
            for chunk, level in tasks:
                complete = (hops[level - 1].pull(chunk, context, exact) if level
                            else self._blocks(chunk, level, context.training))
                for rows in self.marks.forward(self.block(level), complete):
                    for step in self.plan.segments[level]:
                        step.forward(rows, context)
                    self.progress.progress()
                if level < self.n_hops:
                    hops[level].push(chunk, context)
                    continue
                outbound.send(chunk, context.epoch)
                if on_leaving:
                    self.marks.loss()
                    on_leaving(self._rows(chunk, level, context.training))
        outbound.finish()

    def run_backward(self, schedule: ChunkSchedule, context: PassContext, inbound, outbound,
                     exact: bool, on_entering=None):
        """All chunks back through this stage; depth 0 of the schedule is the last segment.
        on_entering(rows): a chunk begins."""
        inbound.begin(schedule.arrivals, context.epoch)
        for hop in self.backward[self.lowest:] if not exact else ():
            hop.begin()
        for tasks in schedule.tasks:
            inbound.take()
            for chunk, depth in tasks:
                level = self.n_hops - depth
                if level < self.lowest:
                    continue
                if depth == 0 and on_entering:
                    on_entering(self._rows(chunk, level))
                steps, eager, done = self.plan.segments[level], self.eager[level], []
                complete = (self.backward[level].pull(chunk, context, exact) if depth
                            else self._blocks(chunk, level))
                for rows in self.marks.backward(self.block(level), complete):
                    run_backward(steps, eager, rows, context)
                    self.progress.progress()
                    done.append(rows)
                self._clear(chunk, level)
                if level > self.lowest:
                    self.backward[level - 1].push(chunk)
                if level == 0:
                    outbound.send(chunk, context.epoch)
                self.marks.weights(self.block(level))
                for rows in done:  # the stage below waits for the chunk, nobody for this
                    run_weight_gradients(steps, eager, rows, context)
                    self.progress.progress()
        outbound.finish()

    # -- gradients of rows that later segments are not run on --------------------------------------
    def _shared_gradients(self) -> list[list[tuple[Field, int]]]:
        """For each segment the gradients that it overwrites (or, the last one, that come from the
        next stage) and that earlier ones add to or send on, with the first segment that does."""
        plan, last = self.plan, self.n_hops
        readers: dict[int, list[int]] = {}
        fields = {id(field): field for field in (*plan.received, *plan.sent)}
        consumers = [(level, step.reads) for level, steps in enumerate(plan.segments)
                     for step in steps]
        consumers += [(level, [hop.source]) for level, hop in enumerate(plan.hops)]
        for level, read in consumers:
            for field in read:
                fields[id(field)] = field
                readers.setdefault(id(field), []).append(level)
        sent, received = ({id(field) for field in side} for side in (plan.sent, plan.received))
        shared: list[list[tuple[Field, int]]] = [[] for _ in plan.segments]
        for key, field in fields.items():
            levels = readers.get(key, []) + [last] * (key in sent) + [0] * (key in received)
            if field.wants_gradient and min(levels) < max(levels):
                shared[max(levels)].append((field, min(levels)))
        return shared

    def _clear(self, chunk: int, level: int):
        """Zero what a segment has not overwritten and earlier ones read."""
        for field, lowest in self.shared_gradients[level]:
            rows = field.grad[self._rows(chunk, level)[1]:self._rows(chunk, lowest)[1]]
            if len(rows):
                self.graph.backend.clear(rows)
