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
    features, integers of NumPy for those of Python. GraphError if the graph cannot be used.
    """
    checked = with_arrays(graph)
    validate_graph(checked, need_train=False)
    return checked


def with_arrays(graph: Graph) -> Graph:
    """The graph with arrays in place of lists and SciPy matrices; no copies if there are none."""
    indptr = _integers("indptr", graph.indptr, np.int64, (1,))
    features = _features(graph.features)
    labels = _integers("labels", graph.labels, np.int32, (1, 2))
    if labels.ndim == 2:
        labels = _integers("labels", labels, np.uint8, (2,))
    weights = graph.edge_weights
    for name in ("source", "uuid"):
        given = getattr(graph, name)
        if not isinstance(given, str):
            raise GraphError(f"{name} of the graph is {given!r:.80}: expected a text")
    return replace(graph, indptr=indptr, features=features, labels=labels,
                   n_classes=_count("n_classes", graph.n_classes),
                   directed=_yes_or_no("directed", graph.directed),
                   node_names=None if graph.node_names is None else _names(graph.node_names),
                   edge_weights=None if weights is None else _numbers("edge_weights", weights),
                   indices=_integers("indices", graph.indices, index_dtype(len(indptr) - 1), (1,)),
                   split=np.atleast_2d(_integers("split", graph.split, np.uint8, (1, 2))))


def _integers(name: str, given: Any, dtype, dimensions: tuple[int, ...]) -> np.ndarray:
    """Whole numbers in the given type; what would change on the way is refused."""
    values = _array(name, given, dimensions)
    if values.dtype == dtype:
        return values
    fractions = values.dtype.kind == "f" and (values != np.round(values)).any()
    if values.dtype.kind not in "iubf" or fractions:
        raise GraphError(f"{name} of the graph hold {values.dtype} values: expected whole numbers")
    limits = np.iinfo(dtype)
    if values.size and (values.min() < limits.min or values.max() > limits.max):
        raise GraphError(f"{name} of the graph run from {values.min()} to {values.max()}: expected "
                         f"numbers in {limits.min}..{limits.max}")
    return values.astype(dtype)


def _numbers(name: str, given: Any) -> np.ndarray:
    """A list of numbers as float32."""
    values = _array(name, given, (1,))
    if values.dtype.kind not in "iubf":
        raise GraphError(f"{name} of the graph hold {values.dtype} values: expected numbers")
    return values.astype(np.float32, copy=False)


def _count(name: str, given: Any) -> int:
    """A number of things, which people hold as an integer of NumPy, too: labels.max() + 1."""
    if isinstance(given, (int, np.integer)) and not isinstance(given, bool):
        return int(given)
    raise GraphError(f"{name} of the graph is {given!r:.80}: expected a whole number")


def _yes_or_no(name: str, given: Any) -> bool:
    """Not by the truth of any object: the text "no" is true."""
    if isinstance(given, (bool, np.bool_)):
        return bool(given)
    raise GraphError(f"{name} of the graph is {given!r:.80}: expected True or False")


def _names(given: Any) -> np.ndarray:
    """Names of nodes, texts or whole numbers."""
    values = np.asarray(given)
    if values.ndim != 1 or values.dtype.kind not in "USiu":
        raise GraphError("node_names of the graph must be a list of texts or whole numbers, not "
                         f"{values.dtype} of shape {values.shape}")
    return values


def _features(given: Any) -> np.ndarray | SparseRows:
    if isinstance(given, SparseRows):
        values = given.values
        return SparseRows(_integers("indptr of features", given.indptr, np.int64, (1,)),
                          _integers("indices of features", given.indices, np.int32, (1,)),
                          None if values is None else _numbers("values of features", values),
                          _count("n_columns of features", given.n_columns))
    if hasattr(given, "tocsr"):
        return _sparse_rows(given.tocsr(copy=True))
    values = _array("features", given, (2,))
    if values.dtype.kind not in "iubf":
        raise GraphError(f"features of the graph hold {values.dtype} values: expected numbers")
    return values if values.dtype in (np.float16, np.float32) else values.astype(np.float32)


def _sparse_rows(matrix) -> SparseRows:
    if matrix.dtype.kind not in "iubf":
        raise GraphError(f"features of the graph hold {matrix.dtype} values: expected numbers")
    matrix.sum_duplicates()              # sorts the columns of each row as well
    values = None if (matrix.data == 1).all() else matrix.data.astype(np.float32)
    return SparseRows(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), values,
                      matrix.shape[1])


def _array(name: str, given: Any, dimensions: tuple[int, ...]) -> np.ndarray:
    try:
        values = np.asarray(given)
    except ValueError:
        raise GraphError(f"{name} of the graph have rows of different lengths: expected an "
                         f"array") from None
    if values.ndim not in dimensions or values.dtype == object:
        words = " or ".join(f"{n}-dimensional" for n in dimensions)
        kind = f"shape {values.shape}" if values.dtype != object else f"{type(given).__name__}"
        raise GraphError(f"{name} of the graph have {kind}: expected a {words} array of numbers")
    return values
