"""Graphs from edges, features and labels in memory, whatever kind of array they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpcgcn.errors import GraphError
from hpcgcn.graph.checks import edge_problems
from hpcgcn.graph.csr import csr_from_keys, edge_keys, reversed_keys, row_numbers, sort_distinct
from hpcgcn.graph.data import TEST, TRAIN, UNUSED, VAL, Graph, SparseRows
from hpcgcn.graph.in_memory import usable_graph
from hpcgcn.graph.made_features import make_features

_WORDS = {"train": TRAIN, "val": VAL, "valid": VAL, "validation": VAL, "test": TEST, "": UNUSED,
          "none": UNUSED, "unused": UNUSED}
MASKS = ("train_mask", "val_mask", "test_mask")


def graph_of_edges(sources: Any, targets: Any, features: Any = None, labels: Any = None,
                   split: Any = None, *, n_nodes: int | None = None, edge_weights: Any = None,
                   undirected: bool = False, node_names: Any = None) -> Graph:
    """A checked graph of the edges source -> target, in any order; self loops are dropped, and an
    edge that is there twice counts once.

    features: (n, f) dense or SciPy's sparse; None: made from the degrees. labels: (n,), -1 or NaN
    for none, or (n, c) of 0 and 1. split: (n,) of train, val, test or their codes 1, 2, 3; None:
    no node is in any. undirected: add every edge the other way.
    """
    pairs = [_node_numbers(name, given) for name, given in (("sources", sources),
                                                            ("targets", targets))]
    if len(pairs[0]) != len(pairs[1]):
        raise GraphError(f"{len(pairs[0])} sources and {len(pairs[1])} targets: expected as many")
    n_nodes = _n_nodes(n_nodes, pairs, features, labels)
    indptr, indices, weights = _csr(n_nodes, pairs[0], pairs[1], edge_weights, undirected)
    numbers, n_classes, extra = _labels(labels, n_nodes)
    graph = Graph(indptr, indices,
                  make_features("degree", indptr) if features is None else _plain(features),
                  numbers, _split(split, n_nodes), n_classes, False, _names(node_names),
                  extra=extra, edge_weights=weights)
    graph.directed = next(edge_problems(indptr, indices, n_nodes, symmetric=True, weights=weights),
                          None) is not None
    return usable_graph(graph)


def _plain(value: Any) -> Any:
    """An array of a tensor or a table; what is no tensor stays as it is."""
    if hasattr(value, "detach"):
        if str(getattr(value, "layout", "torch.strided")) != "torch.strided":
            raise GraphError("a sparse tensor: expected a dense one, as from .to_dense()")
        return value.detach().cpu().numpy()
    return value


def _node_numbers(name: str, given: Any) -> np.ndarray:
    values = np.asarray(_plain(given))
    if values.ndim != 1 or (values.size and values.dtype.kind not in "iu"):
        raise GraphError(f"{name} are {values.dtype} of shape {values.shape}: expected a list of "
                         "node numbers")
    return values.astype(np.int64)


def _n_nodes(given: int | None, pairs: list[np.ndarray], features: Any, labels: Any) -> int:
    largest = max(int(numbers.max(initial=-1)) for numbers in pairs)
    lengths = [value.shape[0] if hasattr(value, "shape") else len(value)
               for value in (features, labels) if value is not None]
    n_nodes = given if given is not None else lengths[0] if lengths else largest + 1
    smallest = min(int(numbers.min(initial=0)) for numbers in pairs)
    if n_nodes < 1 or largest >= n_nodes or smallest < 0:
        raise GraphError(f"edges are between nodes up to {largest}: expected numbers in "
                         f"0..{n_nodes - 1}, a row of features and a label for each node")
    return n_nodes


def _csr(n_nodes: int, sources: np.ndarray, targets: np.ndarray, edge_weights: Any,
         undirected: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    proper = sources != targets
    keys = edge_keys(n_nodes, targets[proper], sources[proper])
    weights = None if edge_weights is None else np.asarray(_plain(edge_weights))
    if weights is None:
        if undirected:
            keys = np.concatenate([keys, reversed_keys(n_nodes, keys)])
        return *csr_from_keys(n_nodes, keys), None
    weights = weights[:, 0] if weights.ndim == 2 and weights.shape[1] == 1 else weights
    if weights.shape != sources.shape or weights.dtype.kind not in "iubf":
        raise GraphError(f"edge weights are {weights.dtype} of shape {weights.shape}: expected a "
                         f"number for each of the {len(sources)} edges")
    weights = weights[proper].astype(np.float32)
    if undirected:
        keys = np.concatenate([keys, reversed_keys(n_nodes, keys)])
        weights = np.concatenate([weights, weights])
    order = np.argsort(keys, kind="stable")
    keys, weights = keys[order], weights[order]
    again = np.flatnonzero(keys[1:] == keys[:-1])
    unlike = again[weights[again] != weights[again + 1]]
    if len(unlike):
        target, source = divmod(int(keys[unlike[0]]), n_nodes)
        raise GraphError(f"the edge from {source} to {target} has two weights: expected one for "
                         "each edge")
    first = np.ones(len(keys), bool)
    first[again + 1] = False
    indptr, indices = csr_from_keys(n_nodes, sort_distinct(keys))
    return indptr, indices, None if (weights == 1).all() else weights[first]


def _labels(labels: Any, n_nodes: int) -> tuple[np.ndarray, int, dict]:
    """(labels, n_classes, further facts); names of classes are numbered by their letters."""
    if labels is None:
        return np.full(n_nodes, -1, np.int32), 1, {}
    values = np.asarray(_plain(labels))
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if len(values) != n_nodes:
        raise GraphError(f"{len(values)} labels for {n_nodes} nodes: expected one for each")
    if values.dtype.kind in "OUST":
        words = ["" if word is None or word != word else str(word) for word in values.tolist()]
        names = sorted({word for word in words if word})
        number = {name: k for k, name in enumerate(names)} | {"": -1}
        return (np.array([number[word] for word in words], np.int32), max(len(names), 1),
                {"class_names": names})
    if values.ndim == 2:
        return values, values.shape[1], {}
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), -1, values)
    return values, max(int(values.max(initial=0)) + 1, 1), {}


def _split(split: Any, n_nodes: int) -> np.ndarray:
    if split is None:
        return np.zeros((1, n_nodes), np.uint8)
    values = np.asarray(_plain(split))
    if values.dtype.kind in "OUST":
        words = ["" if word is None or word != word else str(word).lower()
                 for word in values.tolist()]
        wrong = next((word for word in words if word not in _WORDS), None)
        if wrong is not None:
            raise GraphError(f"the split {wrong[:40]!r}: expected train, val, test or nothing")
        return np.array([[_WORDS[word] for word in words]], np.uint8)
    return values


def _names(names: Any) -> np.ndarray | None:
    if names is None:
        return None
    if all(isinstance(name, (int, np.integer)) for name in names):
        return np.array(list(names), np.int64)
    return np.array([str(name).encode() for name in names])


def split_of_masks(masks: dict[str, Any], n_nodes: int) -> np.ndarray | None:
    """(n_splits, n) codes of train_mask, val_mask and test_mask of (n,) or (n, n_splits)."""
    arrays = {code: np.atleast_2d(np.asarray(_plain(masks[name])).astype(bool).T)
              for code, name in enumerate(MASKS, 1) if masks.get(name) is not None}
    if not arrays:
        return None
    split = np.zeros((max(map(len, arrays.values())), n_nodes), np.uint8)
    for code, mask in arrays.items():
        if mask.shape[1] != n_nodes or len(mask) not in (1, len(split)):
            raise GraphError(f"{MASKS[code - 1]} has the shape {mask.T.shape}: expected a value "
                             f"for each of the {n_nodes} nodes")
        if (split[np.broadcast_to(mask, split.shape)] > 0).any():
            raise GraphError("a node is in two of train_mask, val_mask and test_mask: expected one")
        split[np.broadcast_to(mask, split.shape)] = code
    return split


def masks_of(graph: Graph) -> dict[str, np.ndarray]:
    """train_mask, val_mask and test_mask, (n,) or (n, n_splits)."""
    split = graph.split[0] if len(graph.split) == 1 else graph.split.T
    return {name: np.ascontiguousarray(split == code) for code, name in enumerate(MASKS, 1)}


def dense(features: np.ndarray | SparseRows) -> np.ndarray:
    """Features as a dense array."""
    return features.to_dense() if isinstance(features, SparseRows) else np.array(features)


def ends_of(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """(sources, targets) of all edges, int64."""
    return graph.indices.astype(np.int64), row_numbers(graph.indptr)
