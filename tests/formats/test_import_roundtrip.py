"""A graph written in any format and read back is the same graph; streaming gives what sorting in
memory gives."""

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from graphs import dense, random_graph, with_weights
from hypothesis import HealthCheck, given, settings, strategies as st

from hpcgcn.cli import main
from hpcgcn.formats.edges import EdgeSpool
from hpcgcn.formats.finish import Choices, finished
from hpcgcn.formats.splits import SplitRule
from hpcgcn.formats.table import WRITERS, read_draft, write_as
from hpcgcn.graph.csr import csr_from_edges
from hpcgcn.graph.data import TEST, TRAIN, VAL, Graph, SparseRows
from hpcgcn.graph.store import read_graph, write_graph

_FEW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
_FLOATS = st.floats(-1e6, 1e6, width=32)


@st.composite
def graphs(draw, directed=None, multilabel=None, n_splits=None, sparse=None, named=None):
    """Any small graph; every class is used by some node, so that files without class counts tell
    them."""
    n = draw(st.integers(2, 12))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=30))
    directed = draw(st.booleans()) if directed is None else directed
    sources, targets = np.array(pairs, np.int64).reshape(-1, 2).T
    indptr, indices = csr_from_edges(n, sources, targets, undirected=not directed)
    if directed:
        turned = csr_from_edges(n, np.repeat(np.arange(n), np.diff(indptr)), indices,
                                undirected=False)
        directed = not (np.array_equal(turned[0], indptr) and np.array_equal(turned[1], indices))
    width = draw(st.integers(1, 4))
    values = np.array(draw(st.lists(_FLOATS, min_size=n * width, max_size=n * width)),
                      np.float32).reshape(n, width)
    features = values + np.float32(0)        # one kind of zero: text has no other
    if draw(st.booleans()) if sparse is None else sparse:
        features = _sparse(features)
    if draw(st.booleans()) if multilabel is None else multilabel:
        n_classes = 3
        labels = np.array(draw(st.lists(st.integers(0, 1), min_size=3 * n, max_size=3 * n)),
                          np.uint8).reshape(n, 3)
        usable = np.ones(n, bool)
    else:
        n_classes = 2
        labels = np.array(draw(st.lists(st.integers(-1, 1), min_size=n, max_size=n)), np.int32)
        labels[0] = 1
        usable = labels >= 0
    count = draw(st.integers(1, 3)) if n_splits is None else n_splits
    split = np.array(draw(st.lists(st.integers(0, 3), min_size=count * n, max_size=count * n)),
                     np.uint8).reshape(count, n)
    split[:, ~usable] = 0
    names = None
    if draw(st.booleans()) if named is None else named:
        letters = st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n",
                                        exclude_categories=("C", "Z")), min_size=1)
        plain = letters.filter(lambda name: not name.startswith(("#", "%", "\ufeff"))
                               and name == name.strip())
        names = np.array([name.encode()
                          for name in draw(st.lists(plain, min_size=n, max_size=n, unique=True))])
    return Graph(indptr, indices, features, labels, split, n_classes, directed, names)


def _sparse(features):
    rows, columns = np.nonzero(features)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(features)))]).astype(
        np.int64)
    values = features[rows, columns]
    return SparseRows(indptr, columns.astype(np.int32), None if (values == 1).all() else values,
                      features.shape[1])


def there_and_back(format_name, graph, detects=True):
    """The graph after a round trip through the format, found out from the files alone if it can
    be."""
    ending = {"pyg": ".pt", "dgl": ".dgl"}.get(format_name,
                                               ".npz" if format_name.startswith("npz") else "")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "graph" + ending)
        write_as(format_name, path, graph)
        assert os.listdir(folder) == ["graph" + ending], "nothing but the result is left"
        reader = format_name.split("-")[0] if format_name.startswith("npz") else format_name
        found, draft = read_draft([path], None if detects else reader)
        assert found == reader
        with finished(draft, Choices(), folder) as (read, _):
            return read


def assert_same(found, wanted, split=True, names=True):
    for name in ("indptr", "indices", "labels") + (("split",) if split else ()):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name), err_msg=name)
    np.testing.assert_array_equal(dense(found.features), dense(wanted.features))
    assert found.n_classes == wanted.n_classes and found.directed == wanted.directed
    if names and wanted.node_names is not None:
        as_text = [n.decode() if isinstance(n, bytes) else str(n)
                   for n in found.node_names.tolist()]
        assert as_text == [n.decode() for n in wanted.node_names.tolist()]


@_FEW
@given(graphs())
def test_npz(graph):
    found = there_and_back("npz", graph)
    assert_same(found, graph)
    few = (isinstance(graph.features, SparseRows)
           and len(graph.features.indices) <= 0.2 * graph.n_nodes * graph.n_features)
    assert isinstance(found.features,
                      SparseRows) == few, "sparse features stay sparse while they are"


@_FEW
@given(graphs(directed=False, multilabel=False))
def test_npz_heterophilous(graph):
    assert_same(there_and_back("npz-heterophilous", graph), graph, names=False)


@_FEW
@given(graphs(multilabel=False, n_splits=1))
def test_npz_gnn_benchmark(graph):
    assert_same(there_and_back("npz-gnn-benchmark", graph), graph, split=False, names=False)


@_FEW
@given(graphs(n_splits=1).filter(lambda graph: graph.n_edges > 0))
def test_ogb(graph):
    assert_same(there_and_back("ogb", graph), graph, names=False)


@_FEW
@given(graphs(n_splits=1))
def test_graphsaint(graph):
    assert_same(there_and_back("graphsaint", graph), graph, names=False)


@_FEW
@given(graphs(n_splits=1, multilabel=False))
def test_dgl_reddit(graph):
    assert_same(there_and_back("dgl-reddit", graph), graph)


@_FEW
@given(graphs().filter(lambda graph: graph.n_edges > 0))
def test_csv(graph):
    assert_same(there_and_back("csv", graph), graph)


@_FEW
@given(graphs())
def test_mtx(graph):
    assert_same(there_and_back("mtx", graph), graph, names=False)


@_FEW
@given(graphs(directed=False, multilabel=False, n_splits=1, named=False), st.integers(0, 4),
       st.integers(1, 4))
def test_planetoid(graph, n_train, n_test):
    n = graph.n_nodes
    n_train, n_test = min(n_train, n - 1), min(n_test, n - 1)
    graph.split[:] = VAL
    graph.split[:, n - n_test:] = TEST
    graph.split[:, :min(n_train, n - n_test)] = TRAIN
    graph.labels = np.abs(graph.labels)
    graph.labels[-1] = 1
    assert_same(there_and_back("planetoid", graph), graph)


@_FEW
@given(graphs())
def test_pyg(graph):
    pytest.importorskip("torch_geometric", reason="PyG is not installed")
    assert_same(there_and_back("pyg", graph), graph, names=False)


@_FEW
@given(graphs(n_splits=1))
def test_dgl(graph):
    pytest.importorskip("dgl", reason="DGL is not installed")
    assert_same(there_and_back("dgl", graph), graph, names=False)


def test_every_format_that_is_written_is_tested_here():
    for name in WRITERS:
        assert f"test_{name.replace('-', '_')}" in globals(), name


@pytest.mark.parametrize("format_name", ["csv", "mtx"])
@pytest.mark.parametrize("classes", [["tea", "", "milk"], [1, "", 0]])
def test_columns_of_other_names_are_found_without_being_told(tmp_path, monkeypatch, format_name,
                                                             classes):
    monkeypatch.chdir(tmp_path)
    Path("e.csv").write_text("von,nach\nanna,bob\nbob,carl\n")
    rows = "carl,{},train,1,7,-1\nanna,{},,2,7,-2\nbob,{},val,3,7,-3\n".format(*classes)
    Path("n.csv").write_text("person,kind,use,label,id,age\n" + rows)
    assert main("import csv e.csv n.csv --edge-columns von,nach --id-column person "
                "--label-column kind --split-column use -o g.h5".split()) == 0
    assert main(["export", "g.h5", "--format", format_name, "-o", "there"]) == 0
    assert main(["import", "there", "-o", "back.h5"]) == 0
    wanted, found = read_graph("g.h5"), read_graph("back.h5")
    assert_same(found, wanted, names=format_name == "csv")
    assert found.extra.get("class_names") == wanted.extra.get("class_names")
    assert wanted.extra["feature_names"] == ["label", "id", "age"]
    assert found.extra["feature_names"] == ["feature label", "feature id", "age"]


_NAMED = {"node_names": np.arange(41),
          "extra": {"class_names": ["a", "b", "c"], "feature_names": list("vwxyz")}}


@pytest.mark.parametrize("format_name, changes, lost", [
    ("csv", _NAMED, None), ("mtx", _NAMED, "ids"), ("npz", _NAMED, "class names, feature names"),
    ("npz", {}, None), ("npz-gnn-benchmark", {}, "splits"),
    ("npz-gnn-benchmark", _NAMED, "splits, ids, class names, feature names"),
    ("npz-heterophilous", _NAMED, "ids, class names, feature names"),
    ("ogb", _NAMED, "ids, class names, feature names"),
    ("dgl-reddit", _NAMED, "class names, feature names"), ("graphsaint", {}, None)])
def test_what_a_format_does_not_hold_is_said(tmp_path, capsys, format_name, changes, lost):
    write_graph(tmp_path / "g.h5", random_graph(**changes))
    assert main(["export", str(tmp_path / "g.h5"), "--format", format_name, "-o",
                 str(tmp_path / "there")]) == 0
    assert capsys.readouterr().err == (f"  note: {format_name} holds no {lost}: not written\n"
                                       if lost else "")


def test_a_form_that_a_format_cannot_hold_is_refused(tmp_path):
    from hpcgcn.errors import GraphError
    several = random_graph(split=np.ones((2, 41), np.uint8))
    for name in ("ogb", "graphsaint", "dgl-reddit", "planetoid"):
        with pytest.raises(GraphError, match="choose"):
            write_as(name, str(tmp_path / name), several)
    assert list(tmp_path.iterdir()) == []


@_FEW
@given(st.integers(1, 40), st.integers(0, 300), st.booleans(), st.integers(0, 1000),
       st.integers(4, 64))
def test_runs_on_disk_give_the_same_rows(n_nodes, n_edges, undirected, seed, run_keys):
    rng = np.random.default_rng(seed)
    sources, targets = rng.integers(0, n_nodes, (2, n_edges))
    with tempfile.TemporaryDirectory() as folder:
        spool = EdgeSpool(folder, undirected, run_keys)
        for start in range(0, n_edges, 37):
            spool.add(sources[start:start + 37], targets[start:start + 37])
        indptr, indices, _, repeated = spool.build(n_nodes)
        wanted = csr_from_edges(n_nodes, sources, targets, undirected)
        np.testing.assert_array_equal(indptr, wanted[0])
        np.testing.assert_array_equal(indices, wanted[1])
        assert indices.dtype == wanted[1].dtype
        proper = sources != targets
        keys = targets[proper] * n_nodes + sources[proper]
        assert repeated == len(keys) - len(np.unique(keys))
        assert spool.n_loops == n_edges - proper.sum()
        assert len([name for name in os.listdir(folder) if name.endswith(".run")]) == 0


@pytest.mark.parametrize("run_keys", (20, 10 ** 6))
@pytest.mark.parametrize("undirected", (True, False))
def test_weights_go_with_their_edges(tmp_path, run_keys, undirected):
    """Of an edge that is there twice the first weight counts, in memory and in runs on disk."""
    rng = np.random.default_rng(5)
    sources, targets = rng.integers(0, 15, (2, 300))
    low, high = np.minimum(sources, targets), np.maximum(sources, targets)
    weights = (15 * low + high if undirected else np.arange(300)).astype(np.float32)
    wanted: dict[tuple[int, int], float] = {}
    for source, target, weight in zip(sources.tolist(), targets.tolist(), weights.tolist()):
        for pair in ((target, source), (source, target))[:1 + undirected]:
            if source != target:
                wanted.setdefault(pair, weight)
    spool = EdgeSpool(str(tmp_path), undirected, run_keys, weighted=True)
    for start in range(0, 300, 37):
        block = slice(start, start + 37)
        spool.add(sources[block], targets[block], weights[block])
    indptr, indices, found, _ = spool.build(15)
    rows = np.repeat(np.arange(15), np.diff(indptr))
    assert dict(zip(zip(rows.tolist(), indices.tolist()), found.tolist())) == wanted
    assert not [name for name in os.listdir(tmp_path) if "run" in name]


@pytest.mark.parametrize("directed", (False, True))
@pytest.mark.parametrize("format_name", ("csv", "mtx", "npz", "npz-gnn-benchmark", "graphsaint",
                                         "dgl-reddit", "pyg"))
def test_weights_there_and_back(format_name, directed):
    if format_name == "pyg":
        pytest.importorskip("torch_geometric", reason="PyG is not installed")
    graph = with_weights(random_graph(directed=directed))
    found = there_and_back(format_name, graph)
    assert found.directed == directed
    np.testing.assert_array_equal(found.indices, graph.indices)
    np.testing.assert_array_equal(found.edge_weights, graph.edge_weights)
    assert found.edge_weights.dtype == np.float32


def test_a_streamed_import_is_the_import(tmp_path):
    rng = np.random.default_rng(1)
    edges = rng.integers(0, 500, (3000, 2))
    path = tmp_path / "edges.csv"
    path.write_text("\n".join(f"{a},{b}" for a, b in edges.tolist()))
    results = []
    for run_keys in (1 << 24, 100):
        _, draft = read_draft([str(path)])
        choices = Choices(split=SplitRule("none"), undirected=True, drop_duplicates=True,
                          largest_component=True, run_keys=run_keys)
        with finished(draft, choices, tmp_path) as (graph, _):
            results.append(graph)
            graph.indices = np.array(graph.indices)
    assert_same(results[0], results[1])
    assert [p.name for p in tmp_path.iterdir()] == ["edges.csv"]
