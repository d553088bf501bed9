"""How many bits each row of a message gets, such that the sums it ends up in lose least.

Rounding a row of range R to b bits adds an error of variance R^2 e(b) to each of its elements, up
to a common factor, with e(b) = 1 / (2^b - 1)^2 for stochastic rounding and 1 / 4^b for cells. In
the receiver's sums it counts w^2 times, w^2 the sum of its squared coefficients there. So
sum (w R)^2 e(b) is to be least, within the bytes that rows may take. e is convex: at the least
value there is a price, and a row has the next width exactly if its error falls by more per byte.
The price is found by bisection over the sorted (w R)^2, exactly; no search over assignments.
"""

from __future__ import annotations

import numpy as np

QUANTISED = (1, 2, 4, 8)


def row_bytes(width: int) -> list[int]:
    """Bytes of a row's elements with 1, 2, 4 and 8 bits each."""
    return [-(-width * bits // 8) for bits in QUANTISED]


def row_errors(nearest: bool) -> list[float]:
    """e(b) for 1, 2, 4 and 8 bits."""
    return [4.0 ** -bits if nearest else 1.0 / (2 ** bits - 1) ** 2 for bits in QUANTISED]


def choose_widths(importance: np.ndarray, width: int, budget: int, nearest: bool) -> np.ndarray:
    """(n,) uint8: which of QUANTISED each row has; importance: (w R)^2 of each, not negative.

    The rows' elements take at most `budget` bytes, which must do for 1 bit.
    """
    sizes, errors = row_bytes(width), row_errors(nearest)
    first = max(k for k, size in enumerate(sizes) if size == sizes[0])   # more bits, no more bytes
    left = budget - len(importance) * sizes[0]
    costs = np.diff(sizes[first:])
    gains = -np.diff(errors[first:]) / costs                     # per byte, falling
    ordered = np.sort(importance)

    def spent(price: float) -> int:
        above = len(ordered) - np.searchsorted(ordered, price / gains, side="right")
        return int(above @ costs)

    dearest = float(ordered[-1] * gains[0]) if len(costs) else 0.0
    price = _least_price(spent, left, 2 * dearest)       # at twice that, surely nothing is spent
    chosen = np.full(len(importance), first, np.uint8)
    for gain in gains:
        chosen += importance > price / gain
    left -= spent(price)
    below = np.nextafter(price, 0.0)
    for k, (gain, cost) in enumerate(zip(gains, costs), first):  # rows that are worth the price
        tied = np.flatnonzero((chosen == k) & (importance > below / gain))
        tied = tied[:left // cost]
        chosen[tied] += 1
        left -= len(tied) * int(cost)
    return chosen


def _least_price(spent, left: int, most: float) -> float:
    """The least number at which no more than `left` is spent; bisected over all floats."""
    if spent(0.0) <= left:
        return 0.0
    low, high = 0, int(np.float64(most).view(np.int64))          # floats are ordered as integers
    while high - low > 1:
        middle = (low + high) // 2
        if spent(float(np.int64(middle).view(np.float64))) <= left:
            high = middle
        else:
            low = middle
    return float(np.int64(high).view(np.float64))
