"""ROC AUC and average precision over all ranks, exactly: by counting, never by sampling or binning.

Every rank counts, for each of its own positives, how many scores of all ranks lie above and at it.
Sorted scores go round in blocks of a bounded size, so no rank ever holds those of the others. The
counts are integers and added up as integers: the result is the same to the last bit however nodes
are divided among ranks. Gathering all scores on one rank would be as exact, but would need memory
for all of them there, and leave the other ranks idle.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

BLOCK = 1 << 18                      # scores per message: 2 MiB
_HALF = 1 << 26                      # a precision is added up as two integers of 26 bits


def roc_auc(comm, scores: np.ndarray, positive: np.ndarray) -> float:
    """The probability that a positive has a higher score than a negative; a tie counts one half.

    NaN if all ranks together have no positives or no negatives. Collective.
    """
    mine, others = np.sort(scores[positive]), np.sort(scores[~positive])
    n_positive, n_negative = _totals(comm, len(mine), len(others))
    if not n_positive or not n_negative:
        return float("nan")
    twice = 0                            # pairs in order, and half of the ties, times two
    for block in _blocks_of_all(comm, others):
        twice += int(np.searchsorted(block, mine, "left").sum())
        twice += int(np.searchsorted(block, mine, "right").sum())
    return comm.allreduce(twice) / (2 * n_positive * n_negative)


def average_precision(comm, scores: np.ndarray, positive: np.ndarray) -> float:
    """The mean over positives of the precision among all scores not below theirs.

    NaN if all ranks together have no positives or no negatives. Collective.
    """
    mine, others = np.sort(scores[positive]), np.sort(scores[~positive])
    n_positive, n_negative = _totals(comm, len(mine), len(others))
    if not n_positive or not n_negative:
        return float("nan")
    right, wrong = (_not_below(comm, of_all, mine) for of_all in (mine, others))
    precision = (right / np.maximum(right + wrong, 1)) * _HALF
    high = np.floor(precision)
    low = np.rint((precision - high) * _HALF)
    highs, lows = _totals(comm, int(high.sum()), int(low.sum()))
    return (highs * _HALF + lows) / (n_positive * _HALF * _HALF)


def _totals(comm, *numbers: int) -> list[int]:
    """Sums over the ranks, of integers of any size."""
    return [sum(column) for column in zip(*comm.allgather(numbers))]


def _not_below(comm, of_all: np.ndarray, mine: np.ndarray) -> np.ndarray:
    """For each of `mine`: how many of all ranks' `of_all` (sorted on each) are not below it."""
    count = np.zeros(len(mine), np.int64)
    for block in _blocks_of_all(comm, of_all):
        count += len(block) - np.searchsorted(block, mine, "left")
    return count


def _blocks_of_all(comm, mine: np.ndarray) -> Iterator[np.ndarray]:
    """Blocks of the sorted float64 numbers of every rank in turn, on all ranks."""
    for root, length in enumerate(comm.allgather(len(mine))):
        for first in range(0, length, BLOCK):
            size = min(BLOCK, length - first)
            block = mine[first:first + size] if comm.rank == root else np.empty(size)
            block = np.ascontiguousarray(block)
            comm.Bcast(block, root=root)
            yield block
