"""Arrays that are planned before they exist, and fields: pairs of them, indexed by row.

A field has a value going forward and a gradient going back. Activations live in fields and not in
layers, because the blocks of rows of backward are not those of forward.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


class Array:
    """A dense array of a model: its shape is known from the start, its memory comes from a plan.

    `per_row`: steps touch the rows that they are given and no others. `fill`: a function that gives
    the contents of a constant. `given`: an array of the caller's, for which a plan has no memory.
    """

    def __init__(self, name: str, shape: tuple[int, ...], *, gradient: bool = False,
                 per_row: bool = True, fill: Callable[[], np.ndarray] | None = None, given=None):
        self.name, self.shape, self.gradient = name, tuple(shape), gradient
        self.per_row, self.fill = per_row, fill
        self.is_given, self._data = given is not None, given

    @classmethod
    def of(cls, name: str, data) -> Array:
        """An array that exists already, as one of a plan."""
        return data if isinstance(data, cls) else cls(name, data.shape, given=data)

    @classmethod
    def elsewhere(cls, name: str, shape: tuple[int, ...]) -> Array:
        """An array of the caller's that is not here: another rank has it, or it is not made yet."""
        array = cls(name, shape)
        array.is_given = True
        return array

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape))

    @property
    def bound(self) -> bool:
        """Does it have memory?"""
        return self._data is not None

    @property
    def data(self):
        """The backend's array."""
        if self._data is None:
            raise RuntimeError(f"the array {self.name} {self.shape} is planned, but has no memory")
        return self._data

    def bind(self, data):
        """Give it memory: an array of the backend of the same shape."""
        self._data = data


class Field:
    """A row array: `value` and `grad` are (n_rows, width); grad is None where none is wanted.

    Several consumers may read a field; in backward each adds its share. The last consumer in
    forward order comes first in backward, so it overwrites and the others add: `reads` keeps the
    consumers in forward order. Fields may have arrays in common: a step that works in place says
    so by that.
    """

    def __init__(self, name: str, value: Array, grad: Array | None):
        self.name, self.width = name, value.shape[1]
        self.planned_value, self.planned_grad = value, grad
        self.reads: list = []

    @classmethod
    def of(cls, name: str, value, grad=None) -> Field:
        """A field over arrays of the backend that exist already."""
        gradient = None if grad is None else Array.of(f"d{name}", grad)
        return cls(name, Array.of(name, value), gradient)

    @property
    def value(self):
        """The backend's array of values."""
        return self.planned_value.data

    @property
    def grad(self):
        """The backend's array of gradients, or None."""
        return None if self.planned_grad is None else self.planned_grad.data

    @property
    def wants_gradient(self) -> bool:
        """Does backward compute its gradient?"""
        return self.planned_grad is not None

    def read_by(self, consumer):
        """Register a consumer; call in forward order."""
        self.reads.append(consumer)

    def adds(self, consumer) -> bool:
        """Must this consumer add to the gradient (True), or overwrite it?"""
        return consumer is not self.reads[-1]
