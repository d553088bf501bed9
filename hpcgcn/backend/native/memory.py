"""Arrays that start on a cache line. NumPy already asks for huge pages where an array is large."""

from __future__ import annotations

import math

import numpy as np

ALIGNMENT = 64


def _aligned(raw: np.ndarray, nbytes: int) -> np.ndarray:
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start:start + nbytes]


def aligned_empty(shape, dtype) -> np.ndarray:
    """An uninitialised C-contiguous array whose first element is aligned to 64 bytes."""
    dtype, shape = np.dtype(dtype), (shape if isinstance(shape, tuple) else tuple(np.atleast_1d(shape).tolist()))
    nbytes = math.prod(shape) * dtype.itemsize
    return _aligned(np.empty(nbytes + ALIGNMENT, np.uint8), nbytes).view(dtype).reshape(shape)


def aligned_zeros(shape, dtype) -> np.ndarray:
    """An array of zeros, aligned likewise."""
    array = aligned_empty(shape, dtype)
    array.fill(0)
    return array
