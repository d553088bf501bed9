"""Accuracy and micro-F1 of the three splits, counted on each rank and added up."""

from __future__ import annotations

import numpy as np

from hpcgcn.errors import DivergedError
from hpcgcn.graph.data import SPLIT_NAMES


def local_counts(logits: np.ndarray, labels: np.ndarray, split: np.ndarray) -> np.ndarray:
    """(3 splits, 3 counts) int64.

    Single-label: right, wrong, 0. Multi-label: true positives, false positives, false negatives.
    """
    counts = np.zeros((3, 3), np.int64)
    for row, code in enumerate(SPLIT_NAMES):
        chosen = split == code
        if labels.ndim == 1:
            chosen &= labels >= 0
            right = int((logits[chosen].argmax(axis=1) == labels[chosen]).sum())
            counts[row, :2] = right, int(chosen.sum()) - right
        else:
            said, true = logits[chosen] > 0, labels[chosen] > 0
            counts[row] = (said & true).sum(), (said & ~true).sum(), (~said & true).sum()
    return counts


def rows_without_answer(logits: np.ndarray) -> int:
    """Rows with NaN or infinity, from which no class can be told."""
    return int(np.count_nonzero(~np.isfinite(logits).all(axis=1)))


def no_answer(n_rows: int) -> DivergedError:
    """The error for a model whose outputs are no numbers."""
    return DivergedError(f"the model's outputs for {n_rows} nodes are NaN or infinite: training "
                         f"diverged; "
                         f"lower lr, or limit the gradient with clip")


def scores(comm, logits: np.ndarray, labels: np.ndarray, split: np.ndarray) -> dict[str, float]:
    """Accuracy or micro-F1 (multi-label) of train, val and test; NaN where a split is empty.

    DivergedError on all ranks if any row has no answer: it would count as the first class.
    """
    mine = np.append(local_counts(logits, labels, split), rows_without_answer(logits))
    everyone = np.zeros_like(mine)
    comm.Allreduce(mine, everyone)
    if everyone[-1]:
        raise no_answer(int(everyone[-1]))
    total, result = everyone[:-1].reshape(3, 3), {}
    for row, name in enumerate(SPLIT_NAMES.values()):
        if labels.ndim == 1:
            right, denominator = total[row, 0], total[row].sum()
        else:
            right = 2 * total[row, 0]
            denominator = right + total[row, 1] + total[row, 2]
        result[name] = float(right / denominator) if denominator else float("nan")
    return result
