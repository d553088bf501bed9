"""What kernels of the CUDA backend are given beside arrays, and sums that they leave there."""

from __future__ import annotations

from hpcgcn.backend.cuda_kernels import BLOCK, aligned, blocks, boolean, lanes_for, row_shape

SHARED_BYTES = 49152              # what every device gives a block without asking
MAX_LANES = 32                    # threads that share a row


class DeviceSum:
    """A sum whose parts are on the device; float() waits for them."""

    def __init__(self, partials):
        self._partials = partials

    def __float__(self) -> float:
        return float(self._partials.get().sum())


def vectors(width: int, *arrays) -> str:
    """As a template argument: do the rows of these arrays start where vectors may?"""
    return boolean(width % 4 == 0 and aligned(*arrays))


def moved_shape(n: int, width: int, vector: str) -> tuple[tuple[int], tuple[int, int]]:
    """Grid and block of a kernel that moves rows: four columns per thread if they are a vector."""
    return row_shape(n, width, 4 if vector == "true" else 1)


def backward_shape(width: int, n_sums: int) -> tuple[int, int, int]:
    """Threads per row, rows per block, and bytes of shared memory for their column sums; 0: they do
    not fit."""
    lanes = lanes_for(width, 8)
    rows, row_bytes = BLOCK // lanes, n_sums * blocks(width, 8 * lanes) * 8 * lanes * 4
    while rows * lanes > 32 and rows * row_bytes > SHARED_BYTES:
        rows //= 2
    return lanes, rows, rows * row_bytes if rows * row_bytes <= SHARED_BYTES else 0


def backward_kernel(width: int, norm: bool, fits: bool, *arrays) -> str:
    """Which kernel of the backward pass: sums in registers as far as the lanes cover a row."""
    flags = f"{vectors(width, *arrays)}, {boolean(norm)}"
    return (f"epilogue_backward<{flags}>" if width <= 8 * MAX_LANES
            else f"epilogue_backward_wide<{flags}, {boolean(fits)}>")
