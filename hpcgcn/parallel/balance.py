"""How evenly work is divided."""

from __future__ import annotations


def max_over_mean(counts: list[int]) -> float:
    """How uneven: 1 if all are equal."""
    return max(counts) * len(counts) / sum(counts) if sum(counts) else 1.0
