"""When a model's arrays are touched: every step and hop of a training pass at its place in time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hpcgcn.nn.fields import Array


@dataclass
class Lifetime:
    """From when to when an array is needed, both included."""

    array: Array
    first: int
    last: int
    saved: bool = False              # does backward read what forward left in it?
    n_used: int | None = None        # rows that the pass touches, the first ones; None: all

    @property
    def n_elements(self) -> int:
        """Elements that the pass touches."""
        shape = self.array.shape
        return self.array.size if self.n_used is None else math.prod((self.n_used, *shape[1:]))

    @property
    def kind(self) -> str:
        """What its bytes count as: see plan.KINDS."""
        if self.saved and self.array.fill is None:
            return "saved for backward"
        if self.array.gradient:
            return "gradients"
        return "activations" if self.array.per_row and self.array.fill is None else "scratch"


class Timeline:
    """The events of one pass, in the order in which a row sees them."""

    START = 0

    def __init__(self, line, eager: list[set], loss_gradient: Array | None, by_chunk: bool,
                 trains: bool = True):
        """trains: or is it a forward pass alone?"""
        self.line, self.eager = line, eager
        self.loss_gradient, self.by_chunk = loss_gradient, by_chunk
        self.now = self.START
        self._lives: dict[Array, Lifetime] = {}
        self._forward()
        if trains:
            self._loss()
            self._backward()
        elif line.logits is not None:
            self._touch(line.logits.planned_value)

    def lifetimes(self, outlive_epoch: list[Array]) -> list[Lifetime]:
        """Of all arrays that need memory.

        Those that outlive the epoch, and those that are not touched row by row, live all the time.
        """
        for array, life in self._lives.items():
            if array in outlive_epoch or not array.per_row or array.fill is not None:
                life.first, life.last = self.START, self.now
        return list(self._lives.values())

    def _touch(self, *arrays: Array | None, saved: bool = False, at: int | None = None):
        """These arrays are needed at this time."""
        at = self.now if at is None else at
        for array in arrays:
            if array is None or array.is_given:
                continue
            life = self._lives.setdefault(array, Lifetime(array, at, at))
            life.first, life.last = min(life.first, at), max(life.last, at)
            life.saved |= saved

    def _tick(self) -> int:
        self.now += 1
        return self.now

    # -- forward -----------------------------------------------------------------------------------
    def _forward(self):
        line = self.line
        self._touch(*(f.planned_value for f in line.received))
        for k, steps in enumerate(line.segments):
            self._tick()
            if k:
                hop = line.hops[k - 1]
                self._touch(hop.source.planned_value, hop.target.planned_value, *hop.saves)
            for step in steps:
                self._tick()
                self._touch(*(f.planned_value for f in step.reads), step.target.planned_value,
                            *step.saves, *step.scratch)
            self._tick()
            if k:                        # gathered until the last row is through
                self._touch(line.hops[k - 1].source.planned_value, *line.hops[k - 1].saves)
            if k < len(line.hops):       # made of rows as they come
                self._touch(*line.hops[k].saves)
        self._tick()
        self._touch(*(f.planned_value for f in (*line.kept, *line.sent)))

    def _loss(self):
        """Chunk by chunk the loss of one chunk is computed while others are still on their way."""
        self._tick()
        if self.line.logits is not None:
            self._touch(self.line.logits.planned_value, self.loss_gradient)
        if self.by_chunk:
            gathered = [array for hop in self.line.hops
                        for array in (hop.source.planned_value, *hop.saves)]
            self._touch(*gathered)
            self._touch(*gathered, at=self.START)

    # -- backward ----------------------------------------------------------------------------------
    def _backward(self):
        line, begin = self.line, self._tick()
        self._touch(*(f.planned_grad for f in line.sent))
        self._tick()
        if line.logits is not None:
            self._touch(self.loss_gradient, line.logits.planned_grad)
        for k in reversed(range(len(line.segments))):
            self._segment_backward(k)
            if k < len(line.hops):       # gathered until the last row is through
                self._touch(line.hops[k].target.planned_grad)
                self._touch(*line.hops[k].saves, saved=True)
            if k and not line.hops[k - 1].source.wants_gradient:
                break
            if k:
                self._tick()
                hop = line.hops[k - 1]
                self._touch(hop.target.planned_grad, hop.source.planned_grad)
                self._touch(*hop.saves, saved=True)
        self._tick()
        self._touch(*(f.planned_grad for f in line.received))
        if line.logits is not None:      # what a pass is for can be read after it
            self._touch(line.logits.planned_value)
        if self.by_chunk:
            gathered = [array for hop in line.hops if hop.source.wants_gradient
                        for array in (hop.target.planned_grad, *hop.saves)]
            self._touch(*gathered)
            self._touch(*gathered, at=begin)

    def _segment_backward(self, k: int):
        steps, eager = self.line.segments[k], self.eager[k]
        for step in reversed(steps):
            self._tick()
            self._touch(*(f.planned_grad for f in (*step.reads, step.target)), *step.scratch)
            self._touch(*step.saves, saved=True)
        self._tick()
        for step in steps:
            if step.has_weight_gradients and step not in eager:
                self._touch(step.target.planned_grad)
                self._touch(*step.saves, saved=True)
