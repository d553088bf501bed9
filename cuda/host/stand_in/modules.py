"""RawModule: kernels from a compiled file, with launches checked against their signatures.

The file is a shared library that g++ made of the .cu text, or PTX; nvrtc.py makes both.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
import weakref
from functools import cache
from pathlib import Path

import numpy as np

from . import arrays, capture, settings, streams

TAKES_COLUMNS = ("copy_columns", "_host_copy_columns", "_Z12copy_columns")  # with their pitches
MAX_THREADS, MAX_GRID, MAX_SHARED = 1024, (2 ** 31 - 1, 65535, 65535), 49152


class LaunchError(Exception):
    """A launch that a GPU would refuse, or a kernel that went wrong while it ran."""


class RawModule:
    """Kernels of a compiled file. Of CuPy's arguments only `path` is offered: CuPy adds flags of
    its own to what it compiles."""

    def __init__(self, *, path):
        self.file_path = path

    def get_function(self, name):
        if Path(self.file_path).read_bytes()[:4] != b"\x7fELF":
            return PtxKernel(name, self.file_path)
        library = _load(self.file_path)
        number = library.cuda_host_find(name.encode())
        if number < 0:
            raise ValueError(f"{name} is not in {self.file_path}")
        return RawKernel(name, library, number)


class RawKernel:
    """One kernel: call it with grid, block and arguments."""

    _launches = 0

    def __init__(self, name, library, number):
        self.name, self._library, self._number = name, library, number
        self.signature = library.cuda_host_signature(number).decode().split()

    def __call__(self, grid, block, args, *, shared_mem=0):
        grid, block = self._dimensions(grid), self._dimensions(block)
        self._check_limits(grid, block, shared_mem)
        storage, given = self._pack(args)
        keep: list = list(map(_Recorded, given)) if capture.recording() else given
        streams.enqueue(lambda: self._run(grid, block, shared_mem, storage, extents(keep)))

    @staticmethod
    def _dimensions(size) -> tuple[int, int, int]:
        x, y, z = (*(int(s) for s in size), 1, 1)[:3]
        return x, y, z

    def _check_limits(self, grid, block, shared_mem):
        if not 1 <= int(np.prod(block)) <= MAX_THREADS or min(block) < 1 or block[2] > 64:
            raise LaunchError(f"{self.name}: a block of {block} is not possible (1 to "
                              f"{MAX_THREADS} threads)")
        if any(not 1 <= size <= limit for size, limit in zip(grid, MAX_GRID)):
            raise LaunchError(f"{self.name}: a grid of {grid} is not possible (1 to {MAX_GRID})")
        if shared_mem > MAX_SHARED:
            raise LaunchError(f"{self.name}: {shared_mem} bytes of shared memory, a block has "
                              f"{MAX_SHARED}")

    @staticmethod
    def _is_pointer(argument, code: str) -> bool:
        return code.startswith("*")

    @staticmethod
    def _fits(argument, code: str) -> bool:
        return isinstance(argument, np.generic) and argument.dtype.str[1:] == code

    def _pack(self, args):
        """Eight bytes an argument, each checked against the signature; the arrays, to keep them
        alive."""
        if len(args) != len(self.signature):
            raise LaunchError(f"{self.name}: {len(args)} arguments given, the kernel takes "
                              f"{len(self.signature)}")
        storage, keep = (ctypes.c_uint64 * len(args))(), []
        for position, (argument, code) in enumerate(zip(args, self.signature)):
            where = f"{self.name}: argument {position} ({code})"
            if self._is_pointer(argument, code):
                storage[position] = _pointer(argument, code, where)
                keep.append(argument)
            else:
                if not self._fits(argument, code):
                    raise LaunchError(f"{where} is {argument!r}: pass a NumPy scalar of exactly "
                                      "that type")
                raw = argument.tobytes()
                ctypes.memmove(ctypes.addressof(storage) + 8 * position, raw, len(raw))
        return storage, keep

    def _run(self, grid, block, shared_mem, storage, extents):
        RawKernel._launches += 1
        first = ctypes.addressof(storage)
        addresses = (ctypes.c_void_p * len(storage))(*(first + 8 * k for k in range(len(storage))))
        error = self._library.cuda_host_launch(self._number, (ctypes.c_uint * 3)(*grid),
                                               (ctypes.c_uint * 3)(*block), shared_mem, addresses,
                                               settings.order(), RawKernel._launches)
        if error:
            raise LaunchError(f"{self.name}: {error.decode()}")


class _Recorded:
    """An array that a graph refers to and does not keep."""

    def __init__(self, array):
        self.place = _place(array)
        self._memory = weakref.ref(arrays.POOL.holding(*self.place)) if self.place[1] else None

    @property
    def there(self) -> bool:
        return self._memory is None or self._memory() is not None


def _place(array) -> tuple[int, int]:
    """Address and bytes, with what lies between rows that are a pitch apart."""
    if not isinstance(array, arrays.ndarray):
        return 0, 0
    if array.flags.c_contiguous or not array.size:
        return array.data.ptr, array.nbytes
    return array.data.ptr, array.strides[0] * (len(array) - 1) + array.shape[1] * array.itemsize


def extents(arguments) -> list[tuple[int, int]]:
    """Address and bytes of the arrays of a launch, which must still be there."""
    if not all(argument.there for argument in arguments if isinstance(argument, _Recorded)):
        raise LaunchError("a graph uses device memory that has been freed")
    places = (argument.place if isinstance(argument, _Recorded) else _place(argument)
              for argument in arguments)
    return [place for place in places if place[1]]


class PtxKernel(RawKernel):
    """The same for a kernel of a PTX file, run by the machine in ../ptx.

    PTX knows the sizes of parameters and which are floats, no more.
    """

    def __init__(self, name, path):
        self.name, self._kernel = name, _ptx().kernel(path, name)
        self.signature = self._kernel.signature

    @staticmethod
    def _is_pointer(argument, code: str) -> bool:
        return code == "u8" and isinstance(argument, (arrays.ndarray, np.uintp))

    @staticmethod
    def _fits(argument, code: str) -> bool:
        given = argument.dtype.str[1:] if isinstance(argument, np.generic) else ""
        return given.replace("i", "u") == code

    def _run(self, grid, block, shared_mem, storage, extents):
        RawKernel._launches += 1
        try:
            _ptx().run(self._kernel, grid, block, shared_mem, bytes(storage), extents)
        except _ptx().PTXError as error:
            raise LaunchError(f"{self.name}: {error}") from error


@cache
def _ptx():
    """The PTX machine, loaded from the folder beside this one as a package of its own."""
    name = "hpcgcn_ptx_machine"
    folder = Path(__file__).resolve().parent.parent / "ptx"
    spec = importlib.util.spec_from_file_location(name, folder / "__init__.py",
                                                  submodule_search_locations=[str(folder)])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _pointer(argument, code: str, where: str) -> int:
    """code: `*` and the type pointed to, or a type without one if that is not known."""
    if isinstance(argument, np.uintp) and argument == 0:
        return 0
    if not isinstance(argument, arrays.ndarray):
        raise LaunchError(f"{where} is a {type(argument).__name__}: pass a device array or a "
                          "null pointer")
    element, _, vector = code[1:].partition("x")
    if code[0] == "*" and argument.dtype.str[1:] != element:
        raise LaunchError(f"{where} is an array of {argument.dtype}")
    if not argument.flags.c_contiguous and not where.startswith(TAKES_COLUMNS):
        raise LaunchError(f"{where} is a strided array")
    if vector and (argument.shape[-1] != int(vector) or argument.data.ptr % 16):
        raise LaunchError(f"{where} is not an aligned array of {vector} elements a row")
    return argument.data.ptr


@cache
def _load(path: str):
    library = ctypes.CDLL(path)
    library.cuda_host_signature.restype = ctypes.c_char_p
    library.cuda_host_launch.restype = ctypes.c_char_p
    library.cuda_host_launch.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p,
                                         ctypes.c_uint,
                                         ctypes.c_void_p, ctypes.c_int, ctypes.c_ulonglong]
    return library
