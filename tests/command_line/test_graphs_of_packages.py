"""Graphs of NumPy, SciPy, pandas, networkx, PyG and DGL: into a Graph in one call, and back."""

import numpy as np
import pytest
import scipy.sparse
from small_graphs import dense_adjacency, dense_features, small_graph

from hpcgcn import Graph, train_model
from hpcgcn.errors import GraphError
from hpcgcn.graph.csr import row_numbers

FORMS = {"undirected": {}, "directed": {"directed": True}, "weighted": {"weighted": True},
         "weighted-directed": {"weighted": True, "directed": True}}


def there_and_back_scipy(graph):
    return Graph.from_scipy(graph.to_scipy(), graph.features, graph.labels, graph.split)


def there_and_back_numpy(graph):
    return Graph.from_numpy(graph.indices, row_numbers(graph.indptr), graph.features, graph.labels,
                            graph.split, edge_weights=graph.edge_weights)


def there_and_back_pandas(graph):
    pytest.importorskip("pandas", reason="pandas is not installed")
    return Graph.from_pandas(*graph.to_pandas())


def there_and_back_networkx(graph):
    pytest.importorskip("networkx", reason="networkx is not installed")
    return Graph.from_networkx(graph.to_networkx())


def there_and_back_pyg(graph):
    pytest.importorskip("torch_geometric", reason="PyG is not installed")
    return Graph.from_pyg(graph.to_pyg())


def there_and_back_dgl(graph):
    pytest.importorskip("dgl", reason="DGL is not installed, or not for this PyTorch",
                        exc_type=Exception)
    return Graph.from_dgl(graph.to_dgl())


WAYS = {"numpy": there_and_back_numpy, "scipy": there_and_back_scipy,
        "pandas": there_and_back_pandas, "networkx": there_and_back_networkx,
        "pyg": there_and_back_pyg, "dgl": there_and_back_dgl}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", WAYS)
def test_a_graph_comes_back_as_it_was(way, form):
    graph = small_graph(**FORMS[form])
    returned = WAYS[way](graph)
    np.testing.assert_array_equal(dense_adjacency(returned), dense_adjacency(graph))
    np.testing.assert_array_equal(dense_features(returned), dense_features(graph))
    np.testing.assert_array_equal(returned.labels, graph.labels)
    np.testing.assert_array_equal(returned.split, graph.split)
    assert (returned.directed, returned.n_classes) == (graph.directed, graph.n_classes)
    assert (returned.edge_weights is None) == (graph.edge_weights is None)


@pytest.mark.parametrize("way", ["scipy", "numpy", "pyg", "dgl"])
def test_several_classes_and_sparse_features_come_back(way):
    graph = small_graph(multilabel=True, sparse=True)
    returned = WAYS[way](graph)
    np.testing.assert_array_equal(dense_features(returned), dense_features(graph))
    np.testing.assert_array_equal(returned.labels, graph.labels)


def test_pyg_sees_the_edges_in_the_same_direction():
    """Its layers aggregate from row 0 of edge_index to row 1."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_geometric", reason="PyG is not installed")
    from torch_geometric.nn import SimpleConv
    graph = small_graph(directed=True)
    data = graph.to_pyg()
    made = SimpleConv(aggr="sum")(data.x.double(), data.edge_index)
    wanted = dense_adjacency(graph) @ dense_features(graph)
    np.testing.assert_allclose(torch.Tensor.numpy(made), wanted, atol=1e-12)


def test_a_graph_of_networkx_trains(tmp_path):
    networkx = pytest.importorskip("networkx")
    club = networkx.karate_club_graph()
    for node in club:
        club.nodes[node]["split"] = ("train", "val", "test")[node % 3]
    graph = Graph.from_networkx(club, label="club")
    assert graph.extra["class_names"] == ["Mr. Hi", "Officer"] and graph.edge_weights is not None
    result = train_model(graph, {"epochs": 3, "hidden": 4, "output": str(tmp_path), "quiet": True})
    assert result.summary["epochs"] == 3


def test_ids_of_tables_are_kept_and_edges_added_the_other_way():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    edges = pandas.DataFrame({"a": ["x", "y"], "b": ["y", "z"]})
    nodes = pandas.DataFrame({"id": ["z", "y", "x"], "kind": ["p", "q", None], "v": [1, 2, 3]})
    graph = Graph.from_pandas(edges, nodes, source="a", target="b", label="kind", undirected=True)
    assert graph.node_names.tolist() == [b"z", b"y", b"x"] and not graph.directed
    assert graph.labels.tolist() == [0, 1, -1] and graph.n_edges == 4
    assert dense_features(graph).tolist() == [[1], [2], [3]]
    assert Graph.from_pandas(edges, source="a", target="b").n_nodes == 3


def test_what_does_not_fit_is_refused_with_the_reason():
    x = np.zeros((3, 2), np.float32)
    cases = {
        "0..2": lambda: Graph.from_numpy([0], [3], x),
        "as many": lambda: Graph.from_numpy([0, 1], [1], x),
        "node numbers": lambda: Graph.from_numpy([0.5], [1], x),
        "labels for 3": lambda: Graph.from_numpy([0], [1], x, [0, 1]),
        "the split 'tran'": lambda: Graph.from_numpy([0], [1], x, split=["tran", "", ""]),
        "two weights": lambda: Graph.from_numpy([0, 0], [1, 1], x, edge_weights=[1, 2]),
        "each of the 1 edges": lambda: Graph.from_numpy([0], [1], x, edge_weights=[1, 2]),
        "square": lambda: Graph.from_scipy(scipy.sparse.csr_matrix((2, 3))),
        "edge_index": lambda: Graph.from_pyg(object()),
        "NaN": lambda: Graph.from_numpy([0], [1], x * np.nan),
    }
    for words, case in cases.items():
        with pytest.raises(GraphError, match=words):
            case()


def test_attributes_and_columns_that_are_missing_are_named():
    pandas, networkx = pytest.importorskip("pandas"), pytest.importorskip("networkx")
    edges = pandas.DataFrame({"source": [0], "target": [1]})
    nodes = pandas.DataFrame({"id": [0, 1], "name": ["a", "b"]})
    with pytest.raises(GraphError, match="'name'.*features="):
        Graph.from_pandas(edges, nodes)
    with pytest.raises(GraphError, match="no column 'from'"):
        Graph.from_pandas(edges, nodes, source="from")
    with pytest.raises(GraphError, match="not among the 2"):
        Graph.from_pandas(pandas.DataFrame({"source": [0], "target": [7]}), nodes, features=[])
    given = networkx.path_graph(3)
    given.nodes[0]["x"] = [1.0]
    with pytest.raises(GraphError, match="node '1' has no attribute 'x'"):
        Graph.from_networkx(given)
    with pytest.raises(GraphError, match="multigraph"):
        Graph.from_networkx(networkx.MultiGraph([(0, 1), (0, 1)]))
