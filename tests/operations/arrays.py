"""The numbers, graphs and stored rows that the tests of operations compute with."""

from __future__ import annotations

import numpy as np

from hpcgcn.backend.reference import from_bf16, to_bf16

STORED = {"fp32": None, "fp16": np.float16, "bf16": np.uint16}


def numbers(*shape, seed=0):
    """Standard normal numbers in float64 that fp32 holds exactly."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(np.float64)


def big_ids(n):
    """Node ids on both sides of 2^32."""
    return (np.arange(n, dtype=np.int64) - n // 2) * 3 + 2 ** 32


def stored(values, kind):
    """Values in a storage type, and what they then are in float64."""
    if kind == "bf16":
        return to_bf16(values), from_bf16(to_bf16(values)).astype(np.float64)
    held = values.astype(STORED[kind] or values.dtype)
    return held, held.astype(np.float64)


def graph(n_rows=37, n_columns=29, seed=0):
    """A small CSR with empty rows, one very long row, and repeated and unsorted indices."""
    rng = np.random.default_rng(seed)
    degrees = rng.integers(0, 9, n_rows)
    degrees[:1], degrees[n_rows // 2:n_rows // 2 + 1], degrees[-1:] = 0, 200, 0
    if n_columns == 0:
        degrees[:] = 0
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    indices = rng.integers(0, max(n_columns, 1), indptr[-1]).astype(np.int32)
    return indptr, indices, n_columns


def scales_of(csr, names, seed=1):
    """The scales named, as host arrays."""
    indptr, indices, n_columns = csr
    sizes = {"weights": len(indices), "row_scale": len(indptr) - 1, "column_scale": n_columns}
    return {name: numbers(sizes[name], seed=seed + i) for i, name in enumerate(names)}


def dense(csr, weights=None, row_scale=None, column_scale=None):
    """The matrix in float64, and the same of the magnitudes."""
    indptr, indices, n_columns = csr
    n_rows = len(indptr) - 1
    values = np.ones(len(indices)) if weights is None else weights
    rows = np.repeat(np.arange(n_rows), np.diff(indptr))
    matrix, magnitude = np.zeros((2, n_rows, n_columns))
    scale = np.outer(np.ones(n_rows) if row_scale is None else row_scale,
                     np.ones(n_columns) if column_scale is None else column_scale)
    np.add.at(matrix, (rows, indices), values)
    np.add.at(magnitude, (rows, indices), np.abs(values))
    return matrix * scale, magnitude * np.abs(scale)
