"""Arrays indexed by row that steps read and write: a value going forward, a gradient going back.

Activations live here and not in layers, because the blocks of rows of backward are not those of forward.
"""

from __future__ import annotations


class Field:
    """A row array: `value` and `grad` are (n_rows, width); grad is None where no gradient is wanted.

    Several consumers may read a field; in backward each adds its share. The last consumer in forward order comes first
    in backward, so it overwrites and the others add: `reads` keeps the consumers in forward order.
    """

    def __init__(self, name: str, value, grad, width: int):
        self.name, self.value, self.grad, self.width = name, value, grad, width
        self.reads = []

    def read_by(self, consumer):
        """Register a consumer; call in forward order."""
        self.reads.append(consumer)

    def adds(self, consumer) -> bool:
        """Must this consumer add to the gradient (True), or overwrite it?"""
        return consumer is not self.reads[-1]


class Workspace:
    """Allocates fields once. Gradients of layers that are never alive together share storage."""

    GENERATIONS = 3    # layer l's gradients may be needed while l-1 and l-2 are written (see parallel/partition.py)

    def __init__(self, backend, n_rows: int, share_gradients: bool = True):
        self.backend, self.n_rows, self.share = backend, n_rows, share_gradients
        self._storage = {}

    def _shared(self, role: str, layer: int, width: int):
        generation = layer % self.GENERATIONS if self.share else layer
        slot = (role, generation, width)
        if slot not in self._storage:
            self._storage[slot] = self.backend.zeros((self.n_rows, width))
        return self._storage[slot]

    def array(self, width: int, dtype=None):
        """An array of its own."""
        return self.backend.zeros((self.n_rows, width), dtype)

    def scratch(self, role: str, layer: int, width: int):
        """An array that layers three apart share."""
        return self._shared(role, layer, width)

    def field(self, name: str, layer: int, width: int, *, value=None, grad="new", scratch=False) -> Field:
        """A field; `value` or `grad` may be another field's array, grad None if no gradient is wanted."""
        if value is None:
            value = self._shared("value " + name, layer, width) if scratch else self.array(width)
        if isinstance(grad, str):
            grad = self._shared("grad " + name, layer, width)
        return Field(name, value, grad, width)

    def vector(self):
        """A (n_rows,) array."""
        return self.backend.zeros((self.n_rows,))
