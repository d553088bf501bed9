"""Scores of the three splits by a metric, counted on each rank and added up: exact on any number of
ranks."""

from __future__ import annotations

import numpy as np

from hpcgcn.config.metric_names import RANKED, chosen_metric
from hpcgcn.errors import DivergedError
from hpcgcn.graph.data import SPLIT_NAMES
from hpcgcn.train.ranking import average_precision, roc_auc


def class_counts(logits: np.ndarray, labels: np.ndarray, split: np.ndarray) -> np.ndarray:
    """(3 splits, n_classes, 3) int64: true positives, false positives, false negatives."""
    n_classes = logits.shape[1]
    counts = np.zeros((3, n_classes, 3), np.int64)
    for row, code in enumerate(SPLIT_NAMES):
        chosen = _scored(labels, split, code)
        if labels.ndim == 1:
            true, said = labels[chosen], logits[chosen].argmax(axis=1)
            right = true == said
            for column, classes in enumerate((true[right], said[~right], true[~right])):
                counts[row, :, column] = np.bincount(classes, minlength=n_classes)
        else:
            said, true = logits[chosen] > 0, labels[chosen] > 0
            for column, cells in enumerate((said & true, said & ~true, ~said & true)):
                counts[row, :, column] = cells.sum(axis=0)
    return counts


def _scored(labels: np.ndarray, split: np.ndarray, code: int) -> np.ndarray:
    """Which rows of a split have a label to be compared with, (n,) bool."""
    return (split == code) & (labels >= 0) if labels.ndim == 1 else split == code


def rows_without_answer(logits: np.ndarray) -> int:
    """Rows with NaN or infinity, from which no class can be told."""
    return int(np.count_nonzero(~np.isfinite(logits).all(axis=1)))


def no_answer(n_rows: int) -> DivergedError:
    """The error for a model whose outputs are no numbers."""
    return DivergedError(f"the model's outputs for {n_rows} nodes are NaN or infinite: training "
                         f"diverged; "
                         f"lower lr, or limit the gradient with clip")


def scores(comm, logits: np.ndarray, labels: np.ndarray, split: np.ndarray,
           metric: str = "auto") -> dict[str, float]:
    """The metric of train, val and test; NaN where a split is empty or has nothing to rank.

    DivergedError on all ranks if any row has no answer: it would count as the first class.
    Collective; a node is on one rank only.
    """
    metric = chosen_metric(metric, labels.ndim == 2, logits.shape[1])
    mine = np.append(class_counts(logits, labels, split), rows_without_answer(logits))
    everyone = np.zeros_like(mine)
    comm.Allreduce(mine, everyone)
    if everyone[-1]:
        raise no_answer(int(everyone[-1]))
    if metric in RANKED:
        return {name: _ranked(comm, metric, logits, labels, _scored(labels, split, code))
                for code, name in SPLIT_NAMES.items()}
    counts = everyone[:-1].reshape(3, -1, 3)
    return {name: _counted(metric, counts[row], labels.ndim == 2)
            for row, name in enumerate(SPLIT_NAMES.values())}


def _counted(metric: str, counts: np.ndarray, multilabel: bool) -> float:
    """Accuracy or an F1 from a split's counts (n_classes, 3)."""
    right, wrong, missed = counts.sum(axis=0).tolist()
    if metric == "accuracy":
        return right / (right + missed) if right + missed else float("nan")
    if metric == "micro-f1":
        total = 2 * right + wrong + missed
        return 2 * right / total if total else float("nan")
    totals = 2 * counts[:, 0] + counts[:, 1] + counts[:, 2]
    # A class that is neither there nor predicted is none of a single-label split's classes.
    of_classes = 2 * counts[:, 0] / np.maximum(totals, 1)
    meant = of_classes if multilabel and totals.any() else of_classes[totals > 0]
    return float(meant.mean()) if len(meant) else float("nan")


def _ranked(comm, metric: str, logits: np.ndarray, labels: np.ndarray,
            chosen: np.ndarray) -> float:
    """ROC AUC or average precision of a split; multi-label: the mean over the classes that some
    nodes have and others have not."""
    measure = roc_auc if metric == "roc-auc" else average_precision
    rows = logits[chosen].astype(np.float64)
    if labels.ndim == 1:
        return measure(comm, rows[:, 1] - rows[:, 0], labels[chosen] == 1)
    of_classes = [measure(comm, rows[:, k], labels[chosen, k] > 0) for k in range(rows.shape[1])]
    known = [value for value in of_classes if value == value]
    return sum(known) / len(known) if known else float("nan")
