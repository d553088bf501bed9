"""The backends that the one suite of operations runs over.

A new one is one more line in BACKENDS.
"""

from __future__ import annotations

import functools
import os
import shutil

import numpy as np
import pytest

from hpcgcn.backend.base import Backend
from hpcgcn.backend.reference import ReferenceBackend


@functools.cache            # finding BLAS to set its threads takes longer than most tests
def native(isa: str) -> Backend:
    """The native backend at one instruction set level, or a skip that says why it cannot run
    here."""
    from hpcgcn.backend import native as module
    usable, reason = module.available()
    if not usable:
        pytest.skip(reason)
    if isa not in module.levels():
        pytest.skip(f"this CPU has no {isa}")
    return module.NativeBackend(threads=2, isa=isa)


def cuda() -> Backend:
    """The CUDA backend on its stand-in: ENVIRONMENT chooses that, and the order in which threads
    run."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ to compile CUDA sources for the CPU")
    from hpcgcn.backend.cuda import CudaBackend
    return CudaBackend()


def cuda_ptx() -> Backend:
    """The CUDA backend on the PTX that NVRTC makes of its kernels, run by the machine in
    cuda/host/ptx."""
    pytest.importorskip("cupy_backends.cuda.libs.nvrtc",
                        reason="no NVRTC: pip install 'hpcgcn[cuda-test]'")
    from hpcgcn.backend.cuda import CudaBackend
    return CudaBackend()


def cuda_gpu() -> Backend:
    """The CUDA backend on a real device; without one the tests fail, since they were asked for."""
    from hpcgcn.backend.cuda import CudaBackend
    return CudaBackend()


def stand_in(order: str) -> dict[str, str]:
    """The environment of a test of the CUDA backend."""
    return {"HPCGCN_CUDA_STAND_IN": "1", "HPCGCN_CUDA_STAND_IN_ORDER": order}


# The PTX of four architectures; arrays that start where vectors may, and arrays that do not.
PTX = {"cuda-ptx70": 70, "cuda-ptx80": 80, "cuda-ptx80-aligned": 80, "cuda-ptx90-aligned": 90,
       "cuda-ptx100-aligned": 100}

BACKENDS = {
    "reference-float32": lambda: ReferenceBackend(np.float32),
    "reference-float64": lambda: ReferenceBackend(np.float64),
    "native-plain": lambda: native("plain"),
    "native-avx2": lambda: native("avx2"),
    "native-avx512": lambda: native("avx512"),
    "cuda-descending": cuda,
    "cuda-aligned": cuda,
    "cuda-ascending": cuda,
    "cuda-shuffled": cuda,
    **dict.fromkeys(PTX, cuda_ptx),
    "cuda-gpu": cuda_gpu,
}
ENVIRONMENT = {
    "cuda-descending": stand_in("descending"),
    "cuda-aligned": stand_in("descending"),
    "cuda-ascending": stand_in("ascending"),
    "cuda-shuffled": stand_in("shuffled"),
    **{name: {"HPCGCN_CUDA_STAND_IN": "1", "HPCGCN_CUDA_STAND_IN_KERNELS": f"ptx-{architecture}"}
       for name, architecture in PTX.items()},
    "cuda-gpu": {"HPCGCN_CUDA_STAND_IN": "0"},
}
# whole vectors, so that arrays start where vector loads may
GUARD_ITEMS = {name: 64 for name in ("cuda-aligned", *PTX) if name.endswith("aligned")}

# The widths at which a backend can go wrong in a way of its own; 41 is common to all.
WIDTHS = {
    "reference": (41,),                             # NumPy: no vectors, no tails
    # one column, a rest, whole vectors, both, a whole tile, several
    "native": (1, 7, 16, 41, 128, 602),
    # nothing is aligned: a lane, odd widths, more than a block's lanes
    "cuda-descending": (1, 41, 602),
    "cuda-aligned": (16, 41, 128, 602),             # vector loads of four and of two, and none
    "cuda-ascending": (7, 41),  # another order of threads: less and more than a warp
    "cuda-shuffled": (7, 41),
    "cuda-ptx80": (1, 7, 16, 41, 128, 602),
    "cuda-ptx": (7, 41, 128),                       # the other architectures, in part
    "cuda-gpu": (1, 7, 16, 41, 128, 602),
}


def widths(backend: str) -> tuple[int, ...]:
    """The widths to try on a backend."""
    return next(found for name, found in WIDTHS.items() if backend.startswith(name))


def backends(thread_orders: bool = False, instruction_sets: bool = True) -> list[str]:
    """The backends that a test runs on.

    The order in which CUDA threads run matters only to kernels with barriers or shuffles
    (`thread_orders`), the instruction set only to operations that are compiled for each of them. A
    real GPU is tried if HPCGCN_TEST_GPU=1.
    """
    left_out = set() if thread_orders else {"cuda-ascending", "cuda-shuffled"}
    left_out |= set() if instruction_sets else {"native-avx2", "native-avx512", "cuda-aligned",
                                                *(set(PTX) - {"cuda-ptx80"})}
    left_out |= set() if os.environ.get("HPCGCN_TEST_GPU") == "1" else {"cuda-gpu"}
    return [name for name in BACKENDS if name not in left_out]


# an odd number of items, so that arrays are aligned to no more than an item
CANARY_ITEMS, CANARY_BYTE = 13, 0xA5


class Arena:
    """Arrays on a backend with canaries on both sides; `check` finds stray writes to any of
    them."""

    def __init__(self, backend: Backend, guard_items: int = CANARY_ITEMS):
        self.backend = backend
        self.guard_items = guard_items
        self.whole = []

    def put(self, values, dtype=None):
        """A copy of `values` on the backend; floats become the backend's type unless a dtype is
        given."""
        values = np.asarray(values)
        if dtype is None:
            dtype = self.backend.dtype if values.dtype.kind == "f" else values.dtype
        flat = np.ascontiguousarray(values, dtype).ravel()
        guard = np.full(self.guard_items * flat.itemsize, CANARY_BYTE, np.uint8).view(flat.dtype)
        whole = self.backend.from_host(np.concatenate([guard, flat, guard]))
        self.whole.append(whole)
        return whole[self.guard_items:self.guard_items + flat.size].reshape(values.shape)

    def get(self, array) -> np.ndarray:
        """A copy of a backend array on the host."""
        return np.array(self.backend.to_host(array))

    def garbage(self, shape, dtype=None):
        """An output array full of NaN (or of the largest integer), for what must be overwritten."""
        dtype = np.dtype(dtype or self.backend.dtype)
        return self.put(np.full(shape, np.nan if dtype.kind == "f" else np.iinfo(dtype).max, dtype),
                        dtype)

    def csr(self, csr, ends=None, **scales):
        """A handle from (indptr, indices, n_columns); scales are host arrays, of the backend's
        type."""
        indptr, indices, n_columns = csr
        scales = {name: None if value is None else np.asarray(value, self.backend.dtype)
                  for name, value in scales.items()}
        return self.backend.csr(indptr, indices, n_columns, row_ends=ends, **scales)

    def check(self):
        """Fail if anything was written outside the arrays that were put here."""
        for whole in self.whole:
            host = np.array(self.backend.to_host(whole))
            for guard in (host[:self.guard_items], host[-self.guard_items:]):
                assert (guard.view(np.uint8)
                        == CANARY_BYTE).all(), "a kernel wrote outside its array"


def close(actual, expected, bound=None, terms=1):
    """Assert |actual - expected| <= (terms + 8) roundings of `bound`, the sum of the terms'
    magnitudes.

    The roundings are those of actual's type: a sum of n numbers in any order errs by at most n of
    them.
    """
    bound = np.abs(expected) if bound is None else bound
    epsilon = np.finfo(actual.dtype).eps
    tiny = np.finfo(actual.dtype).tiny
    allowed = np.broadcast_to((terms + 8) * epsilon * np.asarray(bound) + tiny, np.shape(actual))
    np.testing.assert_array_less(np.abs(actual - expected), allowed)
