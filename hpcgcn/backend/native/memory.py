"""Arrays that start on a cache line. NumPy already asks for huge pages where an array is large."""

from __future__ import annotations

import math

import numpy as np

ALIGNMENT = 64


def aligned_empty(shape, dtype) -> np.ndarray:
    """An uninitialised C-contiguous array whose first element is aligned to 64 bytes."""
    return _aligned(np.empty, shape, dtype)


def aligned_zeros(shape, dtype) -> np.ndarray:
    """An array of zeros, aligned likewise; the system makes its pages when they are first
    touched."""
    return _aligned(np.zeros, shape, dtype)


def _aligned(allocate, shape, dtype) -> np.ndarray:
    dtype, shape = np.dtype(dtype), tuple(np.atleast_1d(shape).tolist())
    nbytes = math.prod(shape) * dtype.itemsize
    raw = allocate(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start:start + nbytes].view(dtype).reshape(shape)
