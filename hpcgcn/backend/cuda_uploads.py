"""Copies from host memory to the device: through two pinned buffers, a chunk at a time.

An asynchronous copy out of ordinary memory may read it later than the call returns, when its owner
has changed or freed it. What is in a pinned buffer stays there until the copy's event is done. Two
buffers of fixed size also keep pinned memory small: CuPy's pool would keep as much as the largest
array takes, rounded up to a power of two.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from hpcgcn.backend.base import HostCopy

CHUNK_BYTES = 8 << 20


class Uploads:
    """The two buffers of a device."""

    def __init__(self, cupy):
        self._cupy, self._turn = cupy, 0
        self._buffers: list[tuple[np.ndarray, Any]] = []

    def __del__(self):
        # The buffers may not go to someone else while the last copies out of them are to come.
        if not sys.is_finalizing():
            for _, event in self._buffers:
                event.synchronize()

    def copy(self, source: np.ndarray, target, stream):
        """target = source, both contiguous and of one type; the source may change at once."""
        from_bytes = source.reshape(-1).view(np.uint8)
        to_bytes = target.reshape(-1).view(np.uint8)
        for start in range(0, len(from_bytes), CHUNK_BYTES):
            part = from_bytes[start:start + CHUNK_BYTES]
            pinned, event = self._next()
            pinned[:len(part)] = part
            to_bytes[start:start + len(part)].data.copy_from_host_async(pinned.ctypes.data,
                                                                        len(part), stream)
            event.record(stream)

    def _next(self):
        """The buffer whose turn it is, free again, and the event of its next copy."""
        if len(self._buffers) < 2:
            memory = self._cupy.cuda.alloc_pinned_memory(CHUNK_BYTES)
            self._buffers.append((np.frombuffer(memory, np.uint8, CHUNK_BYTES),
                                  self._cupy.cuda.Event(disable_timing=True)))
            return self._buffers[-1]
        self._turn = 1 - self._turn
        pinned, event = self._buffers[self._turn]
        event.synchronize()
        return pinned, event


class PinnedCopy(HostCopy):
    """A device array with a pinned copy of its own, which lives as long as it: no chunks, and the
    host waits only for reading."""

    def __init__(self, backend, array):
        super().__init__(backend, array)
        memory = backend.cupy.cuda.alloc_pinned_memory(max(array.nbytes, 1))
        self._host = np.frombuffer(memory, array.dtype, array.size).reshape(array.shape)

    def __del__(self):
        # Nobody else may get the pinned memory while a copy out of it is to come.
        if not sys.is_finalizing():
            self.backend.compute.synchronize()

    def read(self) -> np.ndarray:
        compute = self.backend.compute
        if self.array.nbytes:
            self.array.data.copy_to_host_async(self._host.ctypes.data, self.array.nbytes, compute)
            compute.synchronize()
        return self._host

    def write(self):
        if self.array.nbytes:                    # the next read comes after it in the stream
            self.array.data.copy_from_host_async(self._host.ctypes.data, self.array.nbytes,
                                                 self.backend.compute)
