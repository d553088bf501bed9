"""Features, normalised as published set-ups do."""

from __future__ import annotations

import numpy as np

from hpcgcn.errors import ConfigError, GraphError
from hpcgcn.files.datasets import pieces
from hpcgcn.graph.data import SparseRows

NORMALISED = ("row", "standard")


def normalise(kind: str, features: np.ndarray | SparseRows,
              train: np.ndarray) -> np.ndarray | SparseRows:
    """row: values of a node add up to 1; standard: columns have mean 0 and deviation 1 over the
    training nodes.

    train: (n,) bool; all nodes count if it marks none.
    """
    if kind == "row":
        return _sparse_rows(features) if isinstance(features, SparseRows) else _dense_rows(features)
    if kind != "standard":
        raise ConfigError(f"--normalise-features {kind}: expected one of {', '.join(NORMALISED)}")
    if isinstance(features, SparseRows):
        raise GraphError("--normalise-features standard would fill every zero of the sparse "
                         "features; expected dense features, or --normalise-features row")
    return _standard(features, train if train.any() else np.ones(len(features), bool))


def _sparse_rows(features: SparseRows) -> SparseRows:
    values = (np.ones(len(features.indices)) if features.values is None
              else features.values.astype(np.float64))
    sums = np.zeros(features.shape[0])
    rows = np.repeat(np.arange(features.shape[0]), np.diff(features.indptr))
    np.add.at(sums, rows, np.abs(values))
    scaled = (values / np.where(sums > 0, sums, 1)[rows]).astype(np.float32)
    return SparseRows(features.indptr, features.indices, scaled, features.n_columns)


def _dense_rows(features: np.ndarray) -> np.ndarray:
    result = np.empty(features.shape, np.float32)
    for rows in pieces(*_extent(features)):
        block = np.asarray(features[rows], np.float64)
        sums = np.abs(block).sum(axis=1, keepdims=True)
        result[rows] = block / np.where(sums > 0, sums, 1)
    return result


def _standard(features: np.ndarray, train: np.ndarray) -> np.ndarray:
    total = square = 0.0
    for rows in pieces(*_extent(features)):
        block = np.asarray(features[rows], np.float64)[train[rows]]
        total, square = total + block.sum(axis=0), square + (block ** 2).sum(axis=0)
    mean = total / train.sum()
    deviation = np.sqrt(np.maximum(square / train.sum() - mean ** 2, 0))
    result = np.empty(features.shape, np.float32)
    for rows in pieces(*_extent(features)):
        result[rows] = (np.asarray(features[rows], np.float64)
                        - mean) / np.where(deviation > 1e-12, deviation, 1)
    return result


def _extent(features: np.ndarray) -> tuple[int, int]:
    """Rows, and bytes per row in float64."""
    return features.shape[0], 8 * features.shape[1]
