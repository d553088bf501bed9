"""Device arrays and device memory: NumPy memory that host code cannot touch except by a copy."""

from __future__ import annotations

import ctypes
import weakref

import numpy as np

from . import capture, settings, streams

_LIBC = ctypes.CDLL(None)
_LIBC.free.argtypes = [ctypes.c_void_p]
ALIGNMENT = 256


class OutOfMemoryError(MemoryError):
    """What CuPy raises when the device is full."""


class MemoryPool:
    """Counts what is allocated, and refuses what a device would not hold."""

    def __init__(self):
        self._used = 0
        self._live = {}                      # address -> (bytes, weak reference to the memory)

    def used_bytes(self) -> int:
        return self._used

    def total_bytes(self) -> int:
        return self._used

    def allocate(self, nbytes: int) -> np.ndarray:
        """Fresh bytes, filled with ones: a float32 read before it is written is NaN."""
        capture.refuse_while_recording("an allocation")
        if self._used + nbytes > settings.memory_limit():
            raise OutOfMemoryError(f"out of memory allocating {nbytes} bytes (allocated so far: "
                                   f"{self._used} bytes)")
        # The C library and not NumPy, so that AddressSanitizer knows where each allocation ends.
        pointer = ctypes.c_void_p()
        if _LIBC.posix_memalign(ctypes.byref(pointer), ctypes.c_size_t(ALIGNMENT),
                                ctypes.c_size_t(max(nbytes, 1))):
            raise MemoryError(f"the host has no {nbytes} bytes left")
        address = pointer.value or 0
        ctypes.memset(address, 0xFF, nbytes)
        storage = (ctypes.c_uint8 * nbytes).from_address(address)
        self._used += nbytes
        self._live[address] = nbytes, weakref.ref(storage)
        weakref.finalize(storage, self._release, address, nbytes)
        return np.ctypeslib.as_array(storage) if nbytes else np.empty(0, np.uint8)

    def _release(self, address: int, nbytes: int):
        del self._live[address]
        _LIBC.free(address)
        self._used -= nbytes

    def holding(self, address: int, nbytes: int):
        """The memory in which these bytes lie; an error if they lie in none."""
        for start in list(self._live):           # garbage may be freed in between
            size, memory = self._live.get(start, (-1, None))
            if start <= address and address + nbytes <= start + size:
                return memory()
        raise ValueError(f"{nbytes} bytes at {address:#x} are not in device memory")


POOL = MemoryPool()


class PinnedMemory:
    """Host memory that asynchronous copies may use: only this, and only while someone holds it."""

    def __init__(self):
        self._live = {}                          # address -> (bytes, weak reference to the memory)

    def allocate(self, size: int) -> memoryview:
        raw = np.zeros(size + 64, np.uint8)
        start = -raw.ctypes.data % 64
        held = raw[start:start + size].data      # keeps `raw`
        self._live[raw.ctypes.data + start] = size, weakref.ref(raw)
        return held

    def check(self, address: int, size: int):
        """A function that gives the address when the copy runs; an error here if the memory is not
        pinned, and there if it has been freed by then."""
        for start in list(self._live):
            length, memory = self._live[start]
            if memory() is None:
                del self._live[start]
            elif start <= address and address + size <= start + length:
                return lambda: self._while_held(address, memory)
        raise ValueError(f"an asynchronous copy of {size} bytes at {address:#x}, which is not "
                         "pinned memory")

    @staticmethod
    def _while_held(address: int, memory) -> int:
        if memory() is None:
            raise RuntimeError("the pinned memory of an asynchronous copy was freed before the "
                               "copy")
        return address


PINNED = PinnedMemory()


class MemoryPointer:
    """Where an array is, with the asynchronous copies that CuPy offers on it."""

    def __init__(self, host_view: np.ndarray):
        self._view = host_view

    @property
    def ptr(self) -> int:
        return self._view.ctypes.data

    def copy_to_host_async(self, mem, size, stream=None):
        view, address = self._view, _address(mem)
        there = PINNED.check(address, size)
        streams.enqueue(lambda: ctypes.memmove(there(), view.ctypes.data, size), stream)

    def copy_from_host_async(self, mem, size, stream=None):
        view, address = self._view, _address(mem)
        there = PINNED.check(address, size)
        streams.enqueue(lambda: ctypes.memmove(view.ctypes.data, there(), size), stream)

    def memset_async(self, value, size, stream=None):
        view = self._view
        streams.enqueue(lambda: ctypes.memset(view.ctypes.data, value, size), stream)

    def copy_from_device_async(self, src, size, stream=None):
        view, source = self._view, src._view
        streams.enqueue(lambda: ctypes.memmove(view.ctypes.data, source.ctypes.data, size), stream)


def _address(mem) -> int:
    return (mem.value or 0) if isinstance(mem, ctypes.c_void_p) else int(mem)


class ndarray:                           # CuPy's name
    """A device array.

    `_view` is for the machinery alone: the device's memory seen from the host.
    """

    def __init__(self, view: np.ndarray):
        self._view = view

    shape = property(lambda self: self._view.shape)
    dtype = property(lambda self: self._view.dtype)
    ndim = property(lambda self: self._view.ndim)
    size = property(lambda self: self._view.size)
    nbytes = property(lambda self: self._view.nbytes)
    itemsize = property(lambda self: self._view.itemsize)
    flags = property(lambda self: self._view.flags)
    strides = property(lambda self: self._view.strides)
    data = property(lambda self: MemoryPointer(self._view))

    def __len__(self) -> int:
        return len(self._view)

    def __getitem__(self, key):
        if not all(isinstance(k, slice) or k is Ellipsis
                   for k in (key if isinstance(key, tuple) else (key,))):
            raise TypeError(f"the stand-in takes slices as indices, not {key!r}")
        return ndarray(self._view[key])

    def view(self, dtype):
        return ndarray(self._view.view(dtype))

    def reshape(self, *shape):
        reshaped = self._view.reshape(*shape)
        if not np.shares_memory(reshaped, self._view) and self.size:
            raise ValueError("reshape of a strided device array would copy")
        return ndarray(reshaped)

    def set(self, arr, stream=None):
        """A copy from pageable memory. It may read its source when it runs, not before: a source
        that is gone by then is an error, one that has changed gives what it is then."""
        capture.refuse_while_recording("a copy from pageable memory")
        if not isinstance(arr, np.ndarray):
            raise TypeError(f"set() wants a NumPy array, not {type(arr).__name__}")
        if arr.shape != self.shape or arr.dtype != self.dtype:
            raise ValueError(f"set() of {arr.dtype} {arr.shape} into {self.dtype} {self.shape}")
        view, source = self._view, weakref.ref(arr)

        def run():
            held = source()
            if held is None:
                raise RuntimeError("the source of an asynchronous copy was freed before the copy")
            np.copyto(view, held)
        streams.enqueue(run, stream)

    def get(self, stream=None, order="C", out=None, blocking=True):
        out = np.empty(self.shape, self.dtype) if out is None else out
        if out.shape != self.shape or out.dtype != self.dtype:
            raise ValueError(f"get() of {self.dtype} {self.shape} into {out.dtype} {out.shape}")
        capture.refuse_while_recording("a copy to pageable memory")
        view, stream = self._view, stream or streams.get_current_stream()
        streams.enqueue(lambda: np.copyto(out, view), stream)
        if blocking:
            stream.synchronize()
        return out

    @property
    def __cuda_array_interface__(self) -> dict:
        if not settings.mpi_is_aware():
            raise AttributeError("a device array was given to a library that does not know devices")
        return {"shape": self.shape, "typestr": self.dtype.str,
                "data": (self._view.ctypes.data, False), "version": 2}

    def _refuse(self, *_, **__):
        raise TypeError("Implicit conversion to a NumPy array is not allowed: copy it with get()")

    __array__ = __iter__ = __float__ = __int__ = __bool__ = __eq__ = __lt__ = __gt__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __matmul__ = __array_ufunc__ = (
        _refuse)
    __array_function__ = __setitem__ = _refuse
    __hash__ = None         # type: ignore[assignment]      # how Python says: cannot be hashed


def empty(shape, dtype=float):
    shape, dtype = (shape if isinstance(shape, tuple) else (shape,)), np.dtype(dtype)
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return ndarray(POOL.allocate(nbytes).view(dtype).reshape(shape))


def zeros(shape, dtype=float):
    array = empty(shape, dtype)
    view = array._view
    streams.enqueue(lambda: view.fill(0))
    return array


def asarray(a):
    if isinstance(a, ndarray):
        return a
    array, snapshot = empty(a.shape, a.dtype), np.array(a)       # CuPy stages it by itself
    view = array._view
    streams.enqueue(lambda: np.copyto(view, snapshot))
    return array


def alloc_pinned_memory(size: int) -> memoryview:
    """Host memory that asynchronous copies read and write when they run, not before."""
    return PINNED.allocate(size)
