"""What kernels of the CUDA backend are given beside arrays, and sums that they leave there."""

from __future__ import annotations

import numpy as np

from hpcgcn import philox
from hpcgcn.backend.cuda_kernels import BLOCK, aligned, boolean, lanes_for

SHARED_BYTES = 49152              # what every device gives a block without asking


class DeviceSum:
    """A sum whose parts are on the device; float() waits for them."""

    def __init__(self, partials):
        self._partials = partials

    def __float__(self) -> float:
        return float(self._partials.get().sum())


def key_arguments(key) -> tuple:
    """A key of random draws, as kernels take it."""
    return tuple(map(np.uint32, key or (0, 0)))


def dropout_arguments(key, threshold: int) -> tuple:
    """Key, threshold and factor of dropout, as kernels take them."""
    scale = philox.dropout_scale(threshold) if threshold else 1.0
    return *key_arguments(key if threshold else None), np.uint32(threshold), np.float32(scale)


def vectors(width: int, *arrays) -> str:
    """As a template argument: do the rows of these arrays start where vectors may?"""
    return boolean(width % 4 == 0 and aligned(*arrays))


def backward_shape(width: int, n_sums: int) -> tuple[int, int, bool]:
    """Threads per row, rows per block, and whether their column sums fit in shared memory."""
    lanes = lanes_for(width, 8)
    rows = BLOCK // lanes
    while rows * lanes > 32 and rows * n_sums * width * 4 > SHARED_BYTES:
        rows //= 2
    return lanes, rows, rows * n_sums * width * 4 <= SHARED_BYTES
