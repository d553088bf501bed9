"""How close the losses of two runs must be that differ in the order of sums alone.

- The losses of the first two epochs are a forward pass from equal parameters and one after a
  single update. They differ by roundings of sums alone, about 1e-8 of the loss; a missing row or a
  wrong mask changes them by 1e-4 or more.
- Later, roundings are amplified. Where the terms of a gradient cancel, its sign is one of rounding,
  and Adam divides by its magnitude: the parameter moves by the learning rate one way or the other.
  Whether that happens within 20 epochs depends on the order of sums, so on the CPU; it may cost
  1e-4 of a loss. In float64 it does not happen.
"""

from __future__ import annotations

import numpy as np

FROM_EQUAL_PARAMETERS, AMPLIFIED, PRECISE = 1e-6, 1e-3, 1e-9


def distance(run: dict, other: dict) -> np.ndarray:
    """The relative distance of two runs' losses in each epoch."""
    assert len(run["losses"]) == len(other["losses"]) > 0
    return np.abs(np.array(run["losses"]) / np.array(other["losses"]) - 1)


def assert_same_losses(run: dict, control: dict, label: str, *, precise: bool = False,
                       equal_until: int = 0):
    """Compare two runs; `precise`: of float64; `equal_until`: the epoch from
    which on they differ at all."""
    apart = distance(run, control)
    allowed = np.full(len(apart), PRECISE if precise else AMPLIFIED)
    allowed[:equal_until + 2] = np.minimum(allowed[:equal_until + 2], FROM_EQUAL_PARAMETERS)
    assert (apart <= allowed).all(), f"{label}: {apart}"
