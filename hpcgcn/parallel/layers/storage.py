"""Arrays of a stage. The whole model is planned on every rank; only what the stage's own items use is made."""

from __future__ import annotations

from hpcgcn.nn.fields import Field, Workspace
from hpcgcn.nn.models import Hop


class PlannedArray:
    """Stands for an array until it is known which stage needs it. Arrays with equal slots may share storage."""

    def __init__(self, shape: tuple, dtype=None, slot=None):
        self.shape, self.dtype, self.slot = shape, dtype, slot


class PlannedWorkspace(Workspace):
    """Plans arrays instead of allocating them; `make` allocates those of some items."""

    def __init__(self, backend, n_rows: int):
        super().__init__(backend, n_rows, share_gradients=False)

    def _shared(self, role: str, layer: int, width: int):
        key = (role, layer, width)
        if key not in self._storage:
            self._storage[key] = PlannedArray((self.n_rows, width), slot=(role, layer % self.GENERATIONS, width))
        return self._storage[key]

    def array(self, width: int, dtype=None):
        return PlannedArray((self.n_rows, width), dtype)

    def vector(self):
        return PlannedArray((self.n_rows,))

    def make(self, items: list, fields: list[Field]):
        """Allocate the arrays of these items and fields.

        A chunk's gradients are alive in adjacent layers only, so layers three apart share them. Not so what hops gather from
        other chunks: their inputs going forward, the gradients of their outputs going back.
        """
        gathered = {id(array) for hop in items if isinstance(hop, Hop) for array in (hop.source.value, hop.target.grad)}
        made, by_slot = {}, {}

        def real(array):
            if not isinstance(array, PlannedArray):
                return array
            if id(array) not in made:
                slot = None if id(array) in gathered else array.slot
                if slot is None or slot not in by_slot:
                    by_slot[slot] = self.backend.zeros(array.shape, array.dtype)
                made[id(array)] = (by_slot[slot], array)     # the planned one stays alive: its id must not be used again
            return made[id(array)][0]

        for field in {id(f): f for holder in items for f in vars(holder).values() if isinstance(f, Field)}.values():
            field.value, field.grad = real(field.value), real(field.grad)
        for field in fields:
            field.value, field.grad = real(field.value), real(field.grad)
        for holder in items:
            for name, value in vars(holder).items():
                if isinstance(value, PlannedArray):
                    setattr(holder, name, real(value))
