"""Weights of classes in the loss: none, balanced by how often each occurs, or as given."""

from __future__ import annotations

import math

import numpy as np

from hpcgcn.errors import ConfigError

LARGEST = 1e6


def read_class_weights(text: str) -> str | tuple[float, ...]:
    """none, balanced, or numbers separated by commas; ValueError if it is nothing of these."""
    if text in ("none", "balanced"):
        return text
    try:
        weights = tuple(float(word) for word in text.split(","))
    except ValueError:
        raise ValueError("expected none, balanced, or a number for each class, as in "
                         "1,2.5,1") from None
    if not all(math.isfinite(weight) and 0 <= weight <= LARGEST for weight in weights):
        raise ValueError(f"expected weights from 0 to {LARGEST:g}")
    return weights


def weights_of_classes(text: str, counts: np.ndarray) -> np.ndarray | None:
    """(n_classes,) float64, or None if all count alike; counts: training nodes of each class.

    balanced: n / (classes that occur * nodes of the class), as scikit-learn's.
    """
    chosen = read_class_weights(text)
    if chosen == "none":
        return None
    if chosen == "balanced":
        n_there = max(np.count_nonzero(counts), 1)
        return np.where(counts > 0, counts.sum() / (n_there * np.maximum(counts, 1)), 1.0)
    weights = np.array(chosen, np.float64)
    if len(weights) != len(counts):
        raise ConfigError(f"class_weights has {len(weights)} numbers, but the graph has "
                          f"{len(counts)} classes: give one for each, or balanced")
    if not (weights * counts).sum() > 0:
        raise ConfigError("class_weights is 0 for every class that has training nodes: give at "
                          "least one of them a positive number")
    return weights
