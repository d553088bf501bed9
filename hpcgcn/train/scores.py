"""Accuracy and micro-F1 of the three splits, counted on each rank and added up."""

from __future__ import annotations

import numpy as np

from hpcgcn.graph.data import SPLIT_NAMES


def local_counts(logits: np.ndarray, labels: np.ndarray, split: np.ndarray) -> np.ndarray:
    """(3 splits, 3 counts) int64: right, wrong, 0 for single-label; true positives, false positives, false negatives."""
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


def scores(comm, logits: np.ndarray, labels: np.ndarray, split: np.ndarray) -> dict[str, float]:
    """Accuracy (single-label) or micro-F1 (multi-label) of train, val and test; NaN where a split is empty."""
    total = np.zeros((3, 3), np.int64)
    comm.Allreduce(local_counts(logits, labels, split), total)
    result = {}
    for row, name in enumerate(SPLIT_NAMES.values()):
        if labels.ndim == 1:
            right, denominator = total[row, 0], total[row].sum()
        else:
            right, denominator = 2 * total[row, 0], 2 * total[row, 0] + total[row, 1] + total[row, 2]
        result[name] = float(right / denominator) if denominator else float("nan")
    return result
