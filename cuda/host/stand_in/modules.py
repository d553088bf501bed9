"""RawModule: the same .cu text, compiled by g++ through cuda_host.h, with launches checked against
its signatures."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from . import arrays, settings, streams

HEADERS = Path(__file__).resolve().parent.parent
FLAGS = ("-O1", "-g1", "-shared", "-fPIC", "-ffp-contract=off", "-fno-strict-aliasing",
         "-fno-gnu-unique",
         "-fvisibility=hidden", "-Wall", "-Wno-unknown-pragmas", "-Wno-class-memaccess")
MAX_THREADS, MAX_GRID, MAX_SHARED = 1024, (2 ** 31 - 1, 65535, 65535), 49152

WRAPPER = """#include "cuda_host.h"
alignas(16) thread_local float dynamic_shared[SHARED_LIMIT / sizeof(float)];
#line 1 "{name}"
{code}
static const cuda_host::Kernel kernels[] = {{{kernels}}};
#define EXPORT extern "C" __attribute__((visibility("default")))
EXPORT const char *cuda_host_signature(int number) {{ return kernels[number].signature.c_str(); }}
EXPORT const char *cuda_host_launch(int number, const unsigned *grid, const unsigned *block,
                                    unsigned shared_bytes, void **args, int order,
                                    unsigned long long seed) {{
    return cuda_host::launch(kernels[number], grid, block, shared_bytes, args, order, seed);
}}
"""


class CompileException(Exception):
    """The compiler refused the source."""


class LaunchError(Exception):
    """A launch that a GPU would refuse, or a kernel that went wrong while it ran."""


class RawModule:
    """Kernels from CUDA source; compiled at the first get_function, as CuPy does."""

    def __init__(self, *, code=None, options=(), name_expressions=None):
        self.code, self.name_expressions = code, tuple(name_expressions or ())
        self.options = tuple(options)
        unknown = [o for o in self.options if not o.startswith(("-I", "-D", "-std="))]
        if unknown:
            raise ValueError(f"the stand-in does not know the compiler options {unknown}")
        self._library = None

    def get_function(self, name):
        if name not in self.name_expressions:
            raise ValueError(f"{name} is not among the name expressions of this module")
        if self._library is None:
            self._library = _load(build(self.code, self.options, self.name_expressions))
        return RawKernel(name, self._library, self.name_expressions.index(name))


class RawKernel:
    """One kernel: call it with grid, block and arguments."""

    _launches = 0

    def __init__(self, name, library, number):
        self.name, self._library, self._number = name, library, number
        self.signature = library.cuda_host_signature(number).decode().split()

    def __call__(self, grid, block, args, *, shared_mem=0):
        grid, block = self._dimensions(grid), self._dimensions(block)
        self._check_limits(grid, block, shared_mem)
        storage, keep = self._pack(args)
        streams.enqueue(lambda: self._run(grid, block, shared_mem, storage, keep))

    @staticmethod
    def _dimensions(size) -> tuple[int, int, int]:
        return (*(int(s) for s in size), 1, 1)[:3]

    def _check_limits(self, grid, block, shared_mem):
        if not 1 <= int(np.prod(block)) <= MAX_THREADS or min(block) < 1 or block[2] > 64:
            raise LaunchError(f"{self.name}: a block of {block} is not possible (1 to "
                              f"{MAX_THREADS} threads)")
        if any(not 1 <= size <= limit for size, limit in zip(grid, MAX_GRID)):
            raise LaunchError(f"{self.name}: a grid of {grid} is not possible (1 to {MAX_GRID})")
        if shared_mem > MAX_SHARED:
            raise LaunchError(f"{self.name}: {shared_mem} bytes of shared memory, a block has "
                              f"{MAX_SHARED}")

    def _pack(self, args):
        """Eight bytes an argument, each checked against the signature; the arrays, to keep them
        alive."""
        if len(args) != len(self.signature):
            raise LaunchError(f"{self.name}: {len(args)} arguments given, the kernel takes "
                              f"{len(self.signature)}")
        storage, keep = (ctypes.c_uint64 * len(args))(), []
        for position, (argument, code) in enumerate(zip(args, self.signature)):
            where = f"{self.name}: argument {position} ({code})"
            if code.startswith("*"):
                storage[position] = _pointer(argument, code[1:], where)
                keep.append(argument)
            else:
                if not isinstance(argument, np.generic) or argument.dtype.str[1:] != code:
                    raise LaunchError(f"{where} is {argument!r}: pass a NumPy scalar of exactly "
                                      "that type")
                raw = argument.tobytes()
                ctypes.memmove(ctypes.addressof(storage) + 8 * position, raw, len(raw))
        return storage, keep

    def _run(self, grid, block, shared_mem, storage, keep):
        RawKernel._launches += 1
        first = ctypes.addressof(storage)
        addresses = (ctypes.c_void_p * len(storage))(*(first + 8 * k for k in range(len(storage))))
        error = self._library.cuda_host_launch(self._number, (ctypes.c_uint * 3)(*grid),
                                               (ctypes.c_uint * 3)(*block), shared_mem, addresses,
                                               settings.order(), RawKernel._launches)
        if error:
            raise LaunchError(f"{self.name}: {error.decode()}")


def _pointer(argument, code: str, where: str) -> int:
    if isinstance(argument, np.uintp) and argument == 0:
        return 0
    if not isinstance(argument, arrays.ndarray):
        raise LaunchError(f"{where} is a {type(argument).__name__}: pass a device array or a "
                          "null pointer")
    element, _, vector = code.partition("x")
    if argument.dtype.str[1:] != element:
        raise LaunchError(f"{where} is an array of {argument.dtype}")
    if not argument.flags.c_contiguous:
        raise LaunchError(f"{where} is a strided array")
    if vector and (argument.shape[-1] != int(vector) or argument.data.ptr % 16):
        raise LaunchError(f"{where} is not an aligned array of {vector} elements a row")
    return argument.data.ptr


# -- compiling -------------------------------------------------------------------------------------
@cache
def _compiler_version() -> str:
    return subprocess.run(["g++", "--version"], capture_output=True, text=True,
                          check=True).stdout.splitlines()[0]


def build(code: str, options: tuple[str, ...], name_expressions: tuple[str, ...]) -> Path:
    """The shared library for this source, from the cache if it was built before."""
    kernels = ", ".join(f"cuda_host::describe(&{name})" for name in name_expressions)
    source = WRAPPER.format(name="kernels.cu", code=code, kernels=kernels)
    sanitizers = settings.sanitizers()
    flags = (*FLAGS, *options, f"-I{HEADERS}",
             *((f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all") if sanitizers else ()))
    includes = [p.read_text() for p in sorted(HEADERS.glob("*.h"))]
    for option in options:
        if option.startswith("-I"):
            includes += [p.read_text() for p in sorted(Path(option[2:]).glob("*.cuh"))]
    text = "\0".join((source, *flags, *includes, _compiler_version()))
    target = settings.cache_directory() / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.so"
    if not target.exists():
        _compile(source, flags, target)
    return target


def _compile(source: str, flags, target: Path):
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        path, library = Path(scratch) / "module.cpp", Path(scratch) / "module.so"
        path.write_text(source)
        result = subprocess.run(["g++", *flags, str(path), "-o", str(library)], capture_output=True,
                                text=True)
        if result.returncode:
            raise CompileException(result.stderr)
        os.replace(library, target)          # whole or not at all: ranks compile at the same time


def _load(path: Path):
    library = ctypes.CDLL(str(path))
    library.cuda_host_signature.restype = ctypes.c_char_p
    library.cuda_host_launch.restype = ctypes.c_char_p
    library.cuda_host_launch.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p,
                                         ctypes.c_uint,
                                         ctypes.c_void_p, ctypes.c_int, ctypes.c_ulonglong]
    return library
