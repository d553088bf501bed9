"""Arrays of a stage. The whole model is planned on every rank; only what the stage's own items use is made."""

from __future__ import annotations

from hpcgcn.nn.fields import Field, Workspace
from hpcgcn.nn.models import Hop
from hpcgcn.nn.steps import Epilogue
from hpcgcn.parallel.base import gathers_gradient, largest_block


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

    def make(self, items: list, fields: list[Field], recompute: bool = False):
        """Allocate the arrays of these items and fields.

        A chunk's gradients are alive in adjacent layers only, so layers three apart share them. Not so what hops gather from
        other chunks: their inputs going forward, the gradients of their outputs going back. With `recompute` these two are one
        array where the input can be made again in backward.
        """
        gathered = {id(array) for hop in items if isinstance(hop, Hop) for array in (hop.source.value, hop.target.grad)}
        remade = remade_inputs(items) if recompute else []
        inputs = {id(hop.target.grad): hop.source.value for hop, _ in remade}
        made, by_slot = {}, {}

        def real(array):
            if not isinstance(array, PlannedArray):
                return array
            array = inputs.get(id(array), array)
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
        make_room(self.backend, remade)


def remade_inputs(items: list) -> list[tuple[Hop, Epilogue | None]]:
    """The hops whose input nobody needs in backward but, perhaps, the step that wrote it and can make it again (or None)."""
    steps = [item for item in items if not isinstance(item, Hop)]
    found = []
    for hop in (item for item in items if isinstance(item, Hop) and gathers_gradient(item)):
        readers = [step for step in steps if any(field.value is hop.source.value for field in step.kept())]
        if not readers:
            found.append((hop, None))
        elif len(readers) == 1 and isinstance(readers[0], Epilogue) and readers[0].maker in steps:
            found.append((hop, readers[0]))
    return found


def make_room(backend, remade: list[tuple[Hop, Epilogue | None]]):
    """One block of rows serves all steps that make their output again: it is used up at once."""
    steps = [step for _, step in remade if step]
    rooms = {width: backend.zeros((largest_block(width), width)) for width in {step.target.width for step in steps}}
    for step in steps:
        step.again = rooms[step.target.width]
