"""What a model needs of memory, computed from what its steps declare, before anything is allocated.

A plan puts all steps and hops of a model, or of a part of it, on one line of time: forward, loss,
backward. From that follows how long each array lives, which arrays share memory, what is recomputed
in backward instead of saved, and the bytes of it all. Then `bind` gives every array its memory.

When is an array free for another one? A step touches the rows that it is given and no others, so
for an array that only steps touch, the order of events of one row decides: rows may be anywhere on
the line. A hop gathers its input from all rows, so that array lives until the last row has passed
the hop; likewise the gradient of its output going back. How far rows can be apart depends on who
runs the model:

    all rows together   every row passes a hop before the first one passes the next hop
    chunk by chunk      a chunk of rows may pass all hops before the next chunk begins: what a hop
                        gathers lives for the whole pass
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from hpcgcn.nn.fields import Array, Field
from hpcgcn.nn.parameters import Parameter, Parameters
from hpcgcn.nn.steps import Step, eager_weight_gradients
from hpcgcn.nn.timeline import Lifetime, Timeline

KINDS = ("saved for backward", "activations", "gradients", "scratch", "parameters")


@dataclass
class Line:
    """What is planned: segments of steps, a hop between each and the next, what crosses the ends.

    Of received fields the values come from another part of the model and gradients go there; of
    sent fields the values go to another part and gradients come back.
    """

    segments: list[list[Step]]
    hops: list
    logits: Field | None = None      # what the loss reads; None: the loss is not in this part
    kept: list[Field] = field(default_factory=list)      # values that are read after forward
    received: list[Field] = field(default_factory=list)
    sent: list[Field] = field(default_factory=list)

    @property
    def steps(self) -> list[Step]:
        """All steps in the order of the forward pass."""
        return [step for segment in self.segments for step in segment]


@dataclass
class Buffer:
    """Memory that arrays of one shape share, because no two of them live at the same time."""

    shape: tuple[int, ...]
    arrays: list[Array] = field(default_factory=list)
    n_used: int = 0                  # elements that the pass touches, the first ones

    @property
    def size(self) -> int:
        """Number of elements of each array."""
        return self.arrays[0].size

    @property
    def constant(self) -> Array | None:
        """The array that keeps its contents for ever, if this is one's memory."""
        return self.arrays[0] if self.arrays[0].fill is not None else None

    def bind(self, data, backend):
        """Give the arrays their memory, and constants their contents."""
        for array in self.arrays:
            array.bind(data)
            if array.fill is not None:
                backend.copy(array.fill().astype(backend.dtype), data)


class Plan:
    """Lifetimes, shared memory, recomputation and bytes of a model or a part of it."""

    def __init__(self, line: Line, *, by_chunk: bool = False,
                 outlive_epoch: list[Array] | None = None,
                 recompute_rows: Callable[[int], int] | None = None,
                 n_needed: Callable[[int], int] | None = None, trains: bool = True):
        """by_chunk: see above. outlive_epoch: arrays whose contents the next epoch reads.
        recompute_rows(width): rows of the largest block on which backward is run, for activation
        recomputation; None: nothing is recomputed. n_needed(segment): how many rows the steps of a
        segment are run on, the first ones; None: all. trains: or is it a forward pass alone?
        """
        self.line, self.by_chunk = line, by_chunk
        self.recomputed = self._recompute(recompute_rows) if recompute_rows else []
        self.eager = [eager_weight_gradients(steps) for steps in line.segments]
        self.loss_gradient = self._loss_gradient()
        timeline = Timeline(line, self.eager, self.loss_gradient, by_chunk, trains)
        self.lifetimes: list[Lifetime] = timeline.lifetimes(outlive_epoch or [])
        if n_needed is not None:
            self._limit_rows(n_needed)
        self.buffers = share_memory(self.lifetimes)

    # -- decisions ---------------------------------------------------------------------------------
    def _recompute(self, rows: Callable[[int], int]) -> list[Step]:
        """Recompute the inputs of hops that nothing else saves: gradients can take their memory."""
        chosen, rooms = recomputable_inputs(self.line.hops, self.line.steps), {}
        for step in chosen:
            width = step.target.width
            if width not in rooms:
                rooms[width] = Array("recomputed rows", (rows(width), width), per_row=False)
            step.recompute_in(rooms[width])
        return chosen

    def _loss_gradient(self) -> Array | None:
        """Where the loss leaves its gradient.

        Chunk by chunk that is not the logits' own array if a hop gathers from it: a chunk must not
        find there what the loss already knows of chunks that come later.
        """
        if self.line.logits is None:
            return None
        own = self.line.logits.planned_grad
        gathered = any(hop.target.planned_grad is own for hop in self.line.hops)
        if own is not None and self.by_chunk and gathered:
            return Array("loss gradient", own.shape, gradient=True)
        return own

    def _limit_rows(self, n_needed: Callable[[int], int]):
        """Later segments are run on fewer rows: an array is used in those of the first segment that
        touches it."""
        first = first_segments(self.line)
        for life in self.lifetimes:
            if life.array.per_row and life.array.fill is None:
                life.n_used = n_needed(first.get(life.array, 0))

    # -- what it takes -----------------------------------------------------------------------------
    @property
    def parameters(self) -> list[Parameter]:
        """The parameters that the steps and hops use."""
        by_name = {p.spec.name: p for user in (*self.line.steps, *self.line.hops)
                   for p in user.parameters}
        return list(by_name.values())

    @property
    def fused(self) -> dict[Step, tuple[str, ...]]:
        """The steps that do several operations in one pass over the rows, and which."""
        return {step: step.fuses for step in self.line.steps if len(step.fuses) > 1}

    def bytes(self, itemsize: int = 4) -> dict[str, int]:
        """Bytes by kind. Memory shared by several kinds counts once, for the first of KINDS.

        Of parameters all copies count; the graph's features, and what hops need, are not in it.
        """
        kind_of = {life.array: life.kind for life in self.lifetimes}
        total = dict.fromkeys(KINDS, 0)
        for buffer in self.buffers:
            kind = min((kind_of[array] for array in buffer.arrays), key=KINDS.index)
            total[kind] += buffer.n_used * itemsize
        size = sum(parameter.spec.size for parameter in self.parameters)
        total["parameters"] = size * Parameters.COPIES * itemsize
        return total

    def bind(self, backend):
        """Allocate all buffers and give every array its memory."""
        for buffer in self.buffers:
            buffer.bind(backend.zeros(buffer.shape), backend)


def share_memory(lifetimes: list[Lifetime]) -> list[Buffer]:
    """As few buffers as lifetimes allow.

    Taken in the order of their beginning, arrays of one shape need no more buffers than live at
    the same time. Of those that are free, an array takes the one that fits what it uses best.
    """
    pools: dict[tuple, Pool] = {}
    for life in sorted(lifetimes, key=lambda life: life.first):
        pools.setdefault(life.array.shape, Pool()).place(life)
    return [buffer for pool in pools.values() for buffer in pool.buffers]


class Pool:
    """The buffers of one shape, while arrays are given their places."""

    def __init__(self):
        self.buffers: list[Buffer] = []
        self._taken: list[tuple[int, int]] = []      # a heap of (until when, number)
        self._free: list[tuple[int, int]] = []       # (since when, number)

    def place(self, life: Lifetime):
        """Give an array its buffer; those that begin earlier come earlier."""
        while self._taken and self._taken[0][0] < life.first:
            self._free.append(heapq.heappop(self._taken))
        if self._free:
            chosen = min(self._free, key=lambda free: self._misfit(free, life.n_elements))
            self._free.remove(chosen)
            number = chosen[1]
        else:
            number = len(self.buffers)
            self.buffers.append(Buffer(life.array.shape))
        buffer = self.buffers[number]
        buffer.arrays.append(life.array)
        buffer.n_used = max(buffer.n_used, life.n_elements)
        heapq.heappush(self._taken, (life.last, number))

    def _misfit(self, free: tuple[int, int], n_elements: int) -> tuple:
        """How badly a free buffer fits; of equals the one that was free first is taken."""
        spare = self.buffers[free[1]].n_used - n_elements
        return spare < 0, abs(spare), free


def recomputable_inputs(hops: list, steps: list[Step]) -> list[Step]:
    """The steps that wrote a hop's input and can recompute it, where no other step saves it."""
    savers: dict[Array, list[Step]] = {}
    for step in steps:
        for array in step.saves:
            savers.setdefault(array, []).append(step)
    here, chosen = set(steps), []
    for hop in hops:
        value = hop.source.planned_value
        chosen += [step for step in savers.get(value, [])
                  if len(savers[value]) == 1 and hop.source.wants_gradient
                  and step.recompute_from in here and step.target.planned_value is value]
    return chosen


def first_segments(line: Line) -> dict[Array, int]:
    """The first segment that touches each array; a hop's input belongs to the segment before it,
    its output to the one behind."""
    touched: list[tuple[Array | None, int]] = []
    for k, steps in enumerate(line.segments):
        for step in steps:
            arrays: list[Array | None] = [*step.saves, *step.scratch]
            for item in (*step.reads, step.target):
                arrays += [item.planned_value, item.planned_grad]
            touched += [(array, k) for array in arrays]
    for k, hop in enumerate(line.hops):
        touched += [(array, k) for array in
                    (hop.source.planned_value, hop.source.planned_grad, *hop.saves)]
        touched += [(array, k + 1) for array in
                    (hop.target.planned_value, hop.target.planned_grad)]
    first: dict[Array, int] = {}
    for array, k in touched:
        if array is not None:
            first[array] = min(k, first.get(array, k))
    return first


def whole_line(model, embeddings: bool = True) -> Line:
    """A whole model, on one rank; embeddings: can they be read after a pass?"""
    return Line(model.blocks, model.hops, model.logits, model.embeddings if embeddings else [])


def element_wise_between(model) -> dict[int, Step]:
    """Element-wise steps that are all there is between two hops, by the number of the first hop.

    They can be fused with the hops, on any part of the width.
    """
    between = {}
    for hop, following in zip(model.hops, model.hops[1:]):
        steps = model.blocks[hop.number]
        if (len(steps) == 1 and steps[0].element_wise and hop.target.reads == steps
                and steps[0].target.reads == [following]):
            between[hop.number] = steps[0]
    return between
