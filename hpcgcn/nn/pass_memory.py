"""Memory of passes that never run at the same time: training and evaluation of one model.

A training pass touches the rows that the loss needs, of many arrays; evaluation touches all rows,
of the few arrays that a forward pass alone has at one time. Both plans lie in the same memory, one
over the other, and arrays move from one to the other between passes. Nothing that a pass leaves is
lost by that: what the next epoch reads, exchanges hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hpcgcn.nn.fields import Array
from hpcgcn.nn.plan import Buffer, Plan, whole_line

STEP = 64                            # elements: every array begins at a multiple of 256 bytes


class PassMemory:
    """One piece of memory that the passes of a model use in turn."""

    def __init__(self, backend, model, n_needed: Callable[[int], int] | None):
        """n_needed(block): how many rows training runs a block of the model on, the first ones;
        None: no array may move, and all passes have the plan of training on all rows."""
        self.backend, self.model, self.n_needed = backend, model, n_needed
        self._memory: Any = None         # of the backend, (n,)
        self.places = 0                  # how often the memory was made anew
        self._current: Plan | None = None
        self._plans: dict[tuple[bool, bool], Plan] = {}
        if n_needed is None:
            self.use_training()

    def use_training(self):
        """The next pass trains."""
        self._use(self._plan(True, self.n_needed is None))

    def use_evaluation(self, embeddings: bool):
        """The next pass evaluates; embeddings: can they be read after it?"""
        self._use(self._plan(self.n_needed is None, embeddings or self.n_needed is None))

    @property
    def nbytes(self) -> int:
        """Bytes that all passes share."""
        return 0 if self._memory is None else self._memory.nbytes

    def _plan(self, trains: bool, embeddings: bool) -> Plan:
        key = trains, embeddings
        if key not in self._plans:
            self._plans[key] = Plan(whole_line(self.model, embeddings), trains=trains,
                                    n_needed=self.n_needed if trains else None)
        return self._plans[key]

    def _use(self, plan: Plan):
        """From now on arrays are where this plan has them; their contents are lost."""
        if plan is self._current:
            return
        for array in _arrays(self._current) if self._current else ():
            if array.fill is None:
                array.bind(None)
        places = _places([buffer for buffer in plan.buffers if not buffer.constant])
        n_elements = max((start + buffer.size for buffer, start in places), default=0)
        if self._memory is None or len(self._memory) < n_elements:
            self._memory = None          # before more is asked for
            self._memory = self.backend.zeros((n_elements,))
            self.places += 1
        for buffer, start in places:
            buffer.bind(self._memory[start:start + buffer.size].reshape(buffer.shape),
                        self.backend)
        for buffer in plan.buffers:
            if buffer.constant and not buffer.constant.bound:
                buffer.bind(self.backend.zeros(buffer.shape), self.backend)
        self._current = plan


def _arrays(plan: Plan) -> list[Array]:
    return [array for buffer in plan.buffers for array in buffer.arrays]


def _places(buffers: list[Buffer]) -> list[tuple[Buffer, int]]:
    """Where each begins. Behind the rows that are used comes the next buffer, so that arrays whose
    rows are not all used lie over what follows. The largest are last: little is behind them."""
    places, start = [], 0
    for buffer in sorted(buffers, key=lambda buffer: buffer.n_used):
        places.append((buffer, start))
        start += -(-buffer.n_used // STEP) * STEP
    return places
