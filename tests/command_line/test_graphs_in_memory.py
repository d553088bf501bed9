"""Graphs that a script hands to train_model: taken as people hold them, and always checked."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
from graphs import random_graph
from mpi4py import MPI

from hpcgcn import Graph, SparseRows, train_model
from hpcgcn.errors import ConfigError, GraphError
from hpcgcn.graph.in_memory import usable_graph, with_arrays


@pytest.fixture
def losses(tmp_path):
    def train(source):
        found = []
        train_model(source, {"epochs": 3, "hidden": 8, "output": str(tmp_path)}, MPI.COMM_SELF,
                    callback=lambda report: found.append(report.loss))
        return found
    return train


def as_lists(graph: Graph) -> Graph:
    return replace(graph, indptr=graph.indptr.tolist(), indices=graph.indices.tolist(),
                   features=graph.features.tolist(), labels=graph.labels.tolist(),
                   split=graph.split[0].tolist())


def test_lists_and_a_single_split_train_as_arrays_do(losses):
    graph = random_graph()
    assert losses(as_lists(graph)) == losses(graph)


@pytest.mark.parametrize("kind", ["csr_matrix", "coo_array", "csc_matrix"])
def test_sparse_features_of_scipy_are_sparse_rows(losses, kind):
    graph = random_graph()
    graph.features[graph.features < 0] = 0
    given = replace(graph, features=getattr(scipy.sparse, kind)(graph.features))
    np.testing.assert_array_equal(with_arrays(given).features.to_dense(), graph.features)
    assert np.isfinite(losses(given)).all()
    assert with_arrays(replace(graph,
                               features=scipy.sparse.eye(graph.n_nodes))).features.values is None


def test_arrays_of_the_right_type_are_not_copied():
    graph = random_graph()
    found = usable_graph(graph)
    for name in ("indptr", "indices", "features", "labels", "split"):
        assert np.shares_memory(getattr(found, name), getattr(graph, name)), name


def one_way(graph: Graph) -> Graph:
    rows = np.repeat(np.arange(graph.n_nodes), np.diff(graph.indptr))
    kept = rows < graph.indices
    counts = np.bincount(rows[kept], minlength=graph.n_nodes)
    return replace(graph, indptr=np.concatenate([[0], np.cumsum(counts)]),
                   indices=graph.indices[kept])


def with_values(name, values):
    return lambda graph: replace(graph, **{name: values})


BAD = {
    "neighbour ids must be in": lambda g: replace(g, indices=np.where(g.indices == 0, 10 ** 6,
                                                                      g.indices)),
    "some edges are there one way only": one_way,
    "hold NaN or infinity": lambda g: replace(g, features=np.full_like(g.features, np.nan)),
    "labels must be in": lambda g: replace(g, labels=np.full(g.n_nodes, 99)),
    "features are for 3 nodes": with_values("features", [[1.0], [2.0], [3.0]]),
    "features of the graph hold <U1 values: expected numbers": lambda g: replace(
        g, features=[["a"]] * g.n_nodes),
    "features of the graph have shape": lambda g: replace(g, features=np.ones(g.n_nodes)),
    "rows of different lengths": with_values("features", [[1.0], [2.0, 3.0]]),
    "labels of the graph hold float64 values: expected whole numbers": lambda g: replace(
        g, labels=np.full(g.n_nodes, 0.5)),
    "split of the graph run from": lambda g: replace(g, split=np.full(g.n_nodes, -1)),
    "split 0 has the code 7": lambda g: replace(g, split=np.full(g.n_nodes, 7)),
    "labels of the graph have NoneType": with_values("labels", None),
    "n_classes of the graph is '3': expected a whole number": with_values("n_classes", "3"),
    "n_classes of the graph is 3.0: expected a whole number": with_values("n_classes", 3.0),
    "directed of the graph is 'no': expected True or False": with_values("directed", "no"),
    "uuid of the graph is 5: expected a text": with_values("uuid", 5),
    "source of the graph is None: expected a text": with_values("source", None),
    "node_names are for 2 nodes": with_values("node_names", ["a", "b"]),
    "node_names of the graph must be a list of texts": with_values("node_names", [0.5]),
    "features of the graph hold complex128 values": lambda g: replace(
        g, features=scipy.sparse.eye(g.n_nodes, dtype=complex)),
    "indices of features of the graph hold <U1": with_values(
        "features", SparseRows([0, 1], ["a"], None, 3)),
    "sparse features have the column 99": lambda g: replace(
        g, features=SparseRows(list(range(g.n_nodes + 1)), [99] * g.n_nodes, None, 8)),
}


@pytest.mark.parametrize("words", BAD)
def test_what_cannot_be_used_is_refused_with_the_reason(words, losses, tmp_path):
    with pytest.raises(GraphError, match=words):
        losses(BAD[words](random_graph()))
    assert list(tmp_path.iterdir()) == [], "a refused graph leaves no run"


def test_integers_of_numpy_and_lists_of_names_do(losses):
    graph = random_graph()
    given = replace(graph, n_classes=np.int64(graph.n_classes), directed=np.False_,
                    node_names=[f"node {n}" for n in range(graph.n_nodes)])
    assert losses(given) == losses(graph)


def test_sparse_rows_of_lists_train_as_those_of_arrays(losses):
    graph = random_graph()
    rows = SparseRows(np.arange(graph.n_nodes + 1), np.arange(graph.n_nodes, dtype=np.int32) % 5,
                      None, 5)
    lists = SparseRows(rows.indptr.tolist(), rows.indices.tolist(), None, np.int64(5))
    assert losses(replace(graph, features=lists)) == losses(replace(graph, features=rows))


def test_a_directed_graph_may_have_edges_one_way(losses):
    assert np.isfinite(losses(replace(one_way(random_graph()), directed=True))).all()


@pytest.mark.parametrize("source", [None, 3, {"x": 1}, np.zeros(3)])
def test_what_is_no_graph_is_refused(source):
    with pytest.raises(ConfigError,
                       match="expected the path of a graph or partition file, or a Graph"):
        train_model(source, {}, MPI.COMM_SELF)


def test_settings_that_are_no_settings_are_refused():
    with pytest.raises(ConfigError, match="settings cannot be a str: expected a Config or"):
        train_model(random_graph(), "run.toml", MPI.COMM_SELF)
