"""What matrix products below fp32 do to their inputs: fewer bits of mantissa. Sums are fp32."""

from __future__ import annotations

import numpy as np

from hpcgcn.backend import PRECISIONS
from hpcgcn.errors import BackendError

MANTISSA_BITS = {"tf32": 10, "bf16": 7}


def rounded(x: np.ndarray, precision: str) -> np.ndarray:
    """float32 x as the inputs of a matrix product in this precision, to nearest, ties to even.

    Hardware may round ties away from zero in TF32; infinities and NaN stay.
    """
    if precision == "fp32":
        return x
    dropped = np.uint32(23 - MANTISSA_BITS[precision])
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    last = (bits >> dropped) & np.uint32(1)
    half = np.uint32((1 << (int(dropped) - 1)) - 1)
    kept = (bits + half + last) & ~np.uint32((1 << int(dropped)) - 1)
    return np.where(np.isfinite(x), kept.view(np.float32), x)


def check_precision(precision: str):
    """Refuse a name that is none."""
    if precision not in PRECISIONS:
        raise BackendError(f"no precision '{precision}': choose one of {', '.join(PRECISIONS)}")
