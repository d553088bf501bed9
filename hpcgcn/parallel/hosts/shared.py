"""One copy per host of the arrays of an object: in a window that its ranks share."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np

ALIGNMENT = 64                       # bytes: a cache line, so that vector loads need not straddle


def share_object(comm, thing, own) -> tuple[Any, Any]:
    """(the object of rank 0 for all ranks, what keeps its memory alive). Collective.

    Its contiguous arrays are moved to one MPI shared-memory window; everything else is copied.
    comm: of ranks that share memory. own: what each rank has in place of rank 0's `own`. Nobody may
    write to the arrays.
    """
    from mpi4py import MPI
    buffers: list[pickle.PickleBuffer] = []
    written = io.BytesIO()
    if comm.rank == 0:
        _Pickler(own, written, buffers).dump(thing)
    parts = [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]
    pickled, sizes = comm.bcast((written.getvalue(), [len(part) for part in parts]))
    starts = np.cumsum([0] + [-(-size // ALIGNMENT) * ALIGNMENT for size in sizes])
    n_bytes = int(starts[-1]) + ALIGNMENT
    window = MPI.Win.Allocate_shared(n_bytes if comm.rank == 0 else 0, 1, comm=comm)
    memory = np.frombuffer(window.Shared_query(0)[0],        # type: ignore[call-overload]
                           np.uint8, count=n_bytes)
    first = -memory.ctypes.data % ALIGNMENT
    places = [memory[first + at:first + at + size] for at, size in zip(starts, sizes)]
    window.Fence()
    for place, part in zip(places, parts):
        place[:] = part
    window.Fence()
    return _Unpickler(own, io.BytesIO(pickled), places).load(), window


class _Pickler(pickle.Pickler):
    """Leaves out the arrays, and `own`."""

    def __init__(self, own, file, buffers: list):
        super().__init__(file, protocol=5, buffer_callback=buffers.append)
        self.own = own

    def persistent_id(self, thing):
        return "own" if thing is self.own else None


class _Unpickler(pickle.Unpickler):
    """Takes them from where this rank has them."""

    def __init__(self, own, file, places: list):
        super().__init__(file, buffers=places)
        self.own = own

    def persistent_load(self, name):
        return self.own
