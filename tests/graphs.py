"""Small graphs of every kind that files must hold, and comparing two graphs."""

from dataclasses import replace

import numpy as np

from hpcgcn.graph.csr import csr_from_edges, row_numbers
from hpcgcn.graph.data import Graph, SparseRows


def edges_graph(n_nodes, sources, targets, directed=False, **changes):
    """A graph with the given edges, one feature, one class, and all nodes to train on."""
    indptr, indices = csr_from_edges(n_nodes, sources, targets, undirected=not directed)
    contents = dict(features=np.ones((n_nodes, 1), np.float32), labels=np.zeros(n_nodes, np.int32),
                    split=np.ones((1, n_nodes), np.uint8), n_classes=1, directed=directed)
    return Graph(indptr, indices, **{**contents, **changes})


def random_graph(n_nodes=41, n_edges=120, seed=0, **changes):
    """A random graph with dense features, three classes and one split; isolated nodes are
    likely."""
    rng = np.random.default_rng(seed)
    contents = dict(features=rng.standard_normal((n_nodes, 5)).astype(np.float32),
                    labels=rng.integers(0, 3, n_nodes).astype(np.int32),
                    split=rng.integers(0, 4, (1, n_nodes)).astype(np.uint8), n_classes=3)
    contents["split"][:, 0] = 1
    ends = rng.integers(0, n_nodes, (2, n_edges))
    return edges_graph(n_nodes, *ends, **{**contents, **changes})


def sparse_features(n_nodes=41, n_columns=9, seed=0, values=True):
    """Sparse rows, some of them empty."""
    rng = np.random.default_rng(seed)
    chosen = rng.random((n_nodes, n_columns)) < 0.2
    rows, columns = np.nonzero(chosen)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n_nodes))]).astype(np.int64)
    numbers = rng.standard_normal(len(rows)).astype(np.float32) if values else None
    return SparseRows(indptr, columns.astype(np.int32), numbers, n_columns)


def varieties():
    """Name and graph for each form that contents can take."""
    rng = np.random.default_rng(3)
    n = 41
    some_unlabelled = np.where(np.arange(n) % 5 == 0, -1, rng.integers(0, 3, n)).astype(np.int32)
    return {
        "dense": random_graph(),
        "fp16": random_graph(features=rng.standard_normal((n, 4)).astype(np.float16)),
        "sparse": random_graph(features=sparse_features()),
        "sparse-ones": random_graph(features=sparse_features(values=False)),
        "sparse-empty": random_graph(features=SparseRows(np.zeros(n + 1, np.int64),
                                                         np.zeros(0, np.int32), None, 3)),
        "multilabel": random_graph(labels=rng.integers(0, 2, (n, 3)).astype(np.uint8)),
        "unlabelled": random_graph(labels=some_unlabelled,
                                   split=(some_unlabelled >= 0).astype(np.uint8)[None]),
        "directed": random_graph(directed=True),
        "splits": random_graph(split=rng.integers(0, 4, (10, n)).astype(np.uint8)),
        "text-names": random_graph(node_names=np.array([f"knoten-ä{i}" for i in range(n)])),
        "number-names": random_graph(node_names=rng.permutation(n) * 10 ** 12),
        "extra": random_graph(extra={"class_names": ["a", "b", "ß"], "long": "x" * 100_000},
                              source="somewhere"),
        "weighted": with_weights(random_graph()),
        "weighted-directed": with_weights(random_graph(directed=True)),
        "no-edges": random_graph(n_edges=0),
        "one-node": random_graph(n_nodes=1),
    }


def with_weights(graph: Graph) -> Graph:
    """The same graph with a weight per edge, the same both ways if it is undirected."""
    rows, sums = row_numbers(graph.indptr), graph.indices + row_numbers(graph.indptr)
    weights = (0.25 * (sums % 7) + 0.001 * (graph.directed * rows)).astype(np.float32)
    return replace(graph, edge_weights=weights)


def dense(features):
    """Features as a dense array, whatever their form."""
    return features.to_dense() if isinstance(features, SparseRows) else features


def assert_same(found: Graph, wanted: Graph):
    """Equal contents, equal types of what users see."""
    for name in ("indptr", "indices", "labels", "split"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name), err_msg=name)
        assert getattr(found, name).dtype == getattr(wanted, name).dtype, name
    assert type(found.features) is type(wanted.features)
    np.testing.assert_array_equal(dense(found.features), dense(wanted.features))
    assert dense(found.features).dtype == dense(wanted.features).dtype
    for name in ("n_classes", "directed", "source", "extra"):
        assert getattr(found, name) == getattr(wanted, name)
    assert (found.edge_weights is None) == (wanted.edge_weights is None)
    if wanted.edge_weights is not None:
        np.testing.assert_array_equal(found.edge_weights, wanted.edge_weights)
    assert (found.node_names is None) == (wanted.node_names is None)
    if wanted.node_names is not None:
        names = wanted.node_names
        names = np.char.encode(names, "utf-8") if names.dtype.kind == "U" else names
        np.testing.assert_array_equal(found.node_names, names)
