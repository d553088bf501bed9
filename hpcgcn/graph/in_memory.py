"""Graphs that a script hands over: brought to the arrays that the rest expects, and checked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hpcgcn.errors import GraphError
from hpcgcn.graph.checks import validate_graph
from hpcgcn.graph.csr import index_dtype
from hpcgcn.graph.data import Graph, SparseRows


def usable_graph(graph: Graph) -> Graph:
    """The graph with arrays of the expected types, checked as one from a file is.

    Lists do for arrays, one split does without its own axis, SciPy's sparse matrices do for
    features. GraphError if the graph cannot be used.
    """
    found = with_arrays(graph)
    validate_graph(found, need_train=False)
    return found


def with_arrays(graph: Graph) -> Graph:
    """The graph with arrays in place of lists and SciPy matrices; no copies if there are none."""
    indptr = _integers("indptr", graph.indptr, np.int64, (1,))
    features = (graph.features if isinstance(graph.features, SparseRows)
                else _features(graph.features))
    labels = _integers("labels", graph.labels, np.int32, (1, 2))
    if labels.ndim == 2:
        labels = _integers("labels", labels, np.uint8, (2,))
    return replace(graph, indptr=indptr, features=features, labels=labels,
                   indices=_integers("indices", graph.indices, index_dtype(len(indptr) - 1), (1,)),
                   split=np.atleast_2d(_integers("split", graph.split, np.uint8, (1, 2))))


def _integers(name: str, given: Any, dtype, dimensions: tuple[int, ...]) -> np.ndarray:
    """Whole numbers in the given type; what would change on the way is refused."""
    found = _array(name, given, dimensions)
    if found.dtype == dtype:
        return found
    fractions = found.dtype.kind == "f" and (found != np.round(found)).any()
    if found.dtype.kind not in "iubf" or fractions:
        raise GraphError(f"{name} of the graph hold {found.dtype} values: expected whole numbers")
    limits = np.iinfo(dtype)
    if found.size and (found.min() < limits.min or found.max() > limits.max):
        raise GraphError(f"{name} of the graph run from {found.min()} to {found.max()}: expected "
                         f"numbers in {limits.min}..{limits.max}")
    return found.astype(dtype)


def _features(given: Any) -> np.ndarray | SparseRows:
    if hasattr(given, "tocsr"):
        return _sparse_rows(given.tocsr(copy=True))
    found = _array("features", given, (2,))
    if found.dtype.kind not in "iubf":
        raise GraphError(f"features of the graph hold {found.dtype} values: expected numbers")
    return found if found.dtype in (np.float16, np.float32) else found.astype(np.float32)


def _sparse_rows(matrix) -> SparseRows:
    matrix.sum_duplicates()              # sorts the columns of each row as well
    values = None if (matrix.data == 1).all() else matrix.data.astype(np.float32)
    return SparseRows(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), values,
                      matrix.shape[1])


def _array(name: str, given: Any, dimensions: tuple[int, ...]) -> np.ndarray:
    try:
        found = np.asarray(given)
    except ValueError:
        raise GraphError(f"{name} of the graph have rows of different lengths: expected an "
                         f"array") from None
    if found.ndim not in dimensions or found.dtype == object:
        words = " or ".join(f"{n}-dimensional" for n in dimensions)
        kind = f"shape {found.shape}" if found.dtype != object else f"{type(given).__name__}"
        raise GraphError(f"{name} of the graph have {kind}: expected a {words} array of numbers")
    return found
