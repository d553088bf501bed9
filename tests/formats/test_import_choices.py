"""Splits, features, components, ids and columns: what `hpcgcn import` makes of the files."""

import gzip
import os
import sys

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from refusals import refused, sound

from hpcgcn.cli import main
from hpcgcn.errors import ConfigError, GraphError
from hpcgcn.formats.features import normalise
from hpcgcn.formats.progress import ProgressBar
from hpcgcn.formats.rows import parse_integers
from hpcgcn.formats.splits import make_splits, parse_split
from hpcgcn.graph.components import components, largest_component
from hpcgcn.graph.csr import csr_from_edges
from hpcgcn.graph.data import SparseRows
from hpcgcn.graph.made_features import make_features
from hpcgcn.graph.store import header, read_graph


def imported(tmp_path, *arguments):
    output = tmp_path / "g.h5"
    assert main(["import", *map(str, arguments), "-o", str(output), "--overwrite"]) == 0
    return read_graph(output)


@pytest.fixture
def edges(tmp_path):
    """Two triangles that share no node, and one pair."""
    path = tmp_path / "edges.csv"
    path.write_text("source,target\n0,1\n1,2\n2,0\n3,4\n4,5\n5,3\n3,6\n7,8\n")
    return path


# -- splits ----------------------------------------------------------------------------------------
def test_per_class_split_takes_as_many_of_each_class():
    labels = np.repeat([0, 1, 2, -1], [50, 60, 70, 20]).astype(np.int32)
    split = make_splits(parse_split(["per-class", "20/15/rest"]), labels, seed=3, count=2)
    for row in split:
        for label, size in ((0, 50), (1, 60), (2, 70)):
            assert np.bincount(row[labels == label], minlength=4).tolist() == [0, 20, 15, size - 35]
        assert not row[labels == -1].any()
    assert (split[0] != split[1]).any()
    np.testing.assert_array_equal(split[1], make_splits(parse_split("per-class:20/15/rest"), labels,
                                                        seed=4, count=1)[0])


def test_a_small_class_gives_what_it_has():
    labels = np.repeat([0, 1], [50, 12]).astype(np.int32)
    split = make_splits(parse_split("per-class 10/5/rest"), labels, 0, 1)[0]
    assert np.bincount(split[labels == 1], minlength=4).tolist() == [0, 10, 2, 0]


@pytest.mark.parametrize("words, sizes",
                         [("random 60/20/20", (60, 20, 20)), ("random 0.5/0.25/0.25", (50, 25, 25)),
                          ("random 10/10/rest", (10, 10, 80)), ("random 20/20/0", (20, 20, 0))])
def test_random_split_sizes(words, sizes):
    split = make_splits(parse_split(words.split()), np.zeros(100, np.int32), 0, 1)[0]
    assert tuple(np.bincount(split, minlength=4)[1:]) == sizes


@pytest.mark.parametrize("words", ["", "half", "random 1/2", "per-class 0/3/rest",
                                   "per-class rest/rest/rest", "random a/b/c", "random -1/1/1",
                                   "per-class 1.5/2/rest", "given 1/2/3", "random 1/1/inf"])
def test_split_rules_that_mean_nothing(words):
    with pytest.raises(ConfigError, match="expected"):
        parse_split(words.split())


def test_splits_that_cannot_be_made():
    with pytest.raises(GraphError, match="no node has a label"):
        make_splits(parse_split("random"), np.full(5, -1, np.int32), 0, 1)
    with pytest.raises(GraphError, match="multi-label"):
        make_splits(parse_split("per-class"), np.ones((5, 2), np.uint8), 0, 1)


@pytest.mark.parametrize("labels", [None, [-1, -1, -1]])
def test_nothing_is_split_where_nothing_has_a_label(tmp_path, labels):
    arrays = {"indptr": [0, 1, 2, 2], "indices": [1, 0],
              **({} if labels is None else {"y": labels})}
    np.savez(tmp_path / "a.npz", **{name: np.array(values) for name, values in arrays.items()})
    assert imported(tmp_path, tmp_path / "a.npz").split.tolist() == [[0, 0, 0]]


@pytest.mark.parametrize("rule, words", [("given", "nodes.csv is taken"),
                                         ("auto", "nodes.csv is taken"), ("none", "--split none")])
def test_a_number_of_splits_where_none_is_drawn(tmp_path, capsys, edges, rule, words):
    (tmp_path / "nodes.csv").write_text("id,label,split\n"
                                        + "".join(f"{k},0,train\n" for k in range(9)))
    message = refused(tmp_path, capsys, edges, tmp_path / "nodes.csv", "--splits", "4", "--split",
                      rule)
    assert "--splits 4" in message and words in message


def test_splits_are_in_the_order_of_their_numbers(tmp_path):
    (tmp_path / "e.csv").write_text("0,1\n")
    (tmp_path / "n.csv").write_text("id,split:1,label,split:0\n0,train,0,test\n1,val,0,train\n")
    assert imported(tmp_path, tmp_path / "e.csv",
                    tmp_path / "n.csv").split.tolist() == [[3, 1], [1, 2]]


# -- features and components -----------------------------------------------------------------------
def test_row_normalisation_of_dense_and_sparse_rows():
    dense = np.array([[1, 3], [0, 0], [-1, 1]], np.float32)
    wanted = np.array([[0.25, 0.75], [0, 0], [-0.5, 0.5]], np.float32)
    np.testing.assert_array_equal(normalise("row", dense, np.ones(3, bool)), wanted)
    sparse = SparseRows(np.array([0, 2, 2, 4]), np.array([0, 1, 0, 1], np.int32),
                        np.array([1, 3, -1, 1], np.float32), 2)
    np.testing.assert_array_equal(normalise("row", sparse, np.ones(3, bool)).to_dense(), wanted)
    ones = SparseRows(np.array([0, 2]), np.array([0, 1], np.int32), None, 4)
    np.testing.assert_array_equal(normalise("row", ones, np.ones(1, bool)).values, [0.5, 0.5])


def test_standard_normalisation_looks_at_training_nodes_only():
    rng = np.random.default_rng(0)
    features, train = rng.normal(5, 3, (200, 4)).astype(np.float32), np.arange(200) < 80
    features[:, 3] = 7
    found = normalise("standard", features, train)
    np.testing.assert_allclose(found[train].mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(found[train].std(axis=0), [1, 1, 1, 0], atol=1e-5)
    assert abs(found[~train].mean()) > 1e-4
    with pytest.raises(GraphError, match="dense"):
        normalise("standard", make_features("identity", np.arange(4)), train)


def test_made_features():
    indptr = np.array([0, 2, 2, 302])
    np.testing.assert_array_equal(make_features("identity", indptr).to_dense(), np.eye(3))
    np.testing.assert_array_equal(make_features("degree", indptr).indices, [2, 0, 127])


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), st.integers(0, 60), st.integers(0, 10 ** 6), st.booleans())
def test_components_are_scipys(n_nodes, n_edges, seed, undirected):
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components
    sources, targets = np.random.default_rng(seed).integers(0, n_nodes, (2, n_edges))
    indptr, indices = csr_from_edges(n_nodes, sources, targets, undirected)
    wanted = connected_components(csr_matrix((np.ones(len(indices)), indices, indptr),
                                             (n_nodes, n_nodes)), directed=False)[1]
    found = components(indptr, indices)
    smallest = {label: node for node, label in reversed(list(enumerate(wanted)))}
    assert found.tolist() == [smallest[label] for label in wanted]
    kept = largest_component(indptr, indices)
    assert len(kept) == np.bincount(wanted).max() and len(set(wanted[kept])) == 1


def test_a_long_path_is_one_component():
    indptr, indices = csr_from_edges(5000, np.arange(4999), np.arange(1, 5000), undirected=False)
    assert not components(indptr, indices).any()


# -- edge lists ------------------------------------------------------------------------------------
def test_directions(tmp_path, edges):
    graph = imported(tmp_path, edges)
    assert graph.directed and graph.n_nodes == 9 and graph.n_edges == 8
    assert graph.indices[graph.indptr[1]:graph.indptr[2]].tolist() == [
        0], "row 1 lists the source of 0 -> 1"
    both = imported(tmp_path, edges, "--undirected")
    assert not both.directed and both.n_edges == 16
    assert both.indices[both.indptr[3]:both.indptr[4]].tolist() == [4, 5, 6]


def test_a_list_with_both_directions_is_undirected(tmp_path):
    (tmp_path / "e.csv").write_text("0 1\n1 0\n1 2\n2 1\n")
    assert not imported(tmp_path, tmp_path / "e.csv").directed


def test_largest_component_keeps_the_ids_as_names(tmp_path, edges, capsys):
    graph = imported(tmp_path, edges, "--largest-component", "--undirected", "--make-features",
                     "identity")
    assert graph.node_names.tolist() == [3, 4, 5, 6] and graph.n_features == 4
    assert "4 of 9 nodes" in capsys.readouterr().err
    assert graph.indices[graph.indptr[0]:graph.indptr[1]].tolist() == [1, 2, 3]


@pytest.mark.parametrize("text", ["a,b\nb,c\nc,d\n", "source,target\na,b\nb,c\nc,d",
                                  "# words\na\tb\nb\tc\nc\td\n", "a b\nb  c\nc d\n",
                                  "a;b\r\nb;c\r\nc;d\r\n", '"a","b"\n"b","c"\nc, d\n',
                                  "\ufeffsource,target\na,b\nb,c\nc,d\n", "\ufeffa,b\nb,c\nc,d\n"])
def test_names_and_separators(tmp_path, text):
    (tmp_path / "e.csv").write_text(text, encoding="utf-8")
    graph = imported(tmp_path, tmp_path / "e.csv")
    assert graph.node_names.tolist() == [b"a", b"b", b"c", b"d"] and graph.n_edges == 3


def test_nodes_with_everything(tmp_path):
    (tmp_path / "cites.csv").write_text("weight,citing,cited\n0.5,p2,p1\n1,p3,p1\n")
    nodes = "paper,topic,year,use,age\np1,maths,1990,train,3\np2,art,1991,val,4.5\np3,,1992,,-1e3\n"
    with gzip.open(tmp_path / "nodes.csv.gz", "wt") as file:
        file.write(nodes)
    graph = imported(tmp_path, "csv", tmp_path / "cites.csv", "--nodes", tmp_path / "nodes.csv.gz",
                     "--id-column", "paper", "--label-column", "topic", "--split-column", "use",
                     "--feature-columns", "age,year")
    assert graph.node_names.tolist() == [b"p1", b"p2", b"p3"]
    assert graph.labels.tolist() == [1, 0, -1] and graph.split.tolist() == [[1, 2, 0]]
    assert graph.features.tolist() == [[3, 1990], [4.5, 1991], [-1000, 1992]]
    assert graph.indices.tolist() == [1, 2] and graph.indptr.tolist() == [0, 2, 2, 2]
    assert graph.extra == {"id_column": "paper", "label_column": "topic",
                           "feature_names": ["age", "year"],
                           "class_names": ["art", "maths"], "edge_columns": ["citing", "cited"]}


MATRIX = "%%MatrixMarket matrix coordinate {} general\n% words 7\n2 2 2\n"


@pytest.mark.parametrize("name, text, note", [
    ("e.csv", "source,target,since\n0,1,0.5\n1,0,1\n",
     "column since of e.csv (--weight-column since)"),
    ("e.csv", "0 1 3 9\n1 0 3 9\n", "columns 3, 4 of e.csv"),
    ("e.csv", "a,b,0.5\nb,a,1\n", "column 3 of e.csv"),
    ("e.csv", "source,target,kind\na,b,friend\n", None), ("e.csv", "0,1\n", None),
    ("e.mtx", MATRIX.format("complex") + "1 2 1 1\n2 1 11 1\n", "complex general values of e.mtx"),
    ("e.mtx", MATRIX.format("real") + "1 2 1.0\n\n2 1 1e0\n", None),
    ("e.mtx", MATRIX.format("pattern") + "1 2\n2 1\n", None)])
def test_weights_of_edges_are_passed_over_aloud(tmp_path, capsys, name, text, note):
    (tmp_path / name).write_text(text)
    imported(tmp_path, tmp_path / name)
    shown = capsys.readouterr().err
    assert f"edge weights are not used: {note}" in shown if note else "weights" not in shown


@pytest.mark.parametrize("format_name, file, name, like", [
    ("npz", "", "data", "indices"), ("npz-gnn-benchmark", "", "adj_data", "adj_indices"),
    ("graphsaint", "adj_full.npz", "data", "indices"),
    ("dgl-reddit", "reddit_graph.npz", "data", "row")])
def test_weights_in_arrays(tmp_path, capsys, format_name, file, name, like):
    path = sound(tmp_path, format_name)
    archive = path / file if file else path
    for weight, there in ((1, False), (0.5, True)):
        arrays = dict(np.load(archive))
        np.savez(archive, **{**arrays, name: np.full(arrays[like].shape, weight)})
        weights = imported(tmp_path, path).edge_weights
        assert (weights is not None and set(weights) == {0.5}) == there
    assert imported(tmp_path, path, "--no-edge-weights").edge_weights is None
    assert "edge weights are not used" not in capsys.readouterr().err
    np.savez(archive, **{**arrays, name: np.full(arrays[like].shape, -1)})
    assert main(["import", str(path), "-o", str(tmp_path / "bad.h5")]) == 2
    assert "has the weight -1; expected finite numbers" in capsys.readouterr().err


@pytest.mark.parametrize("name, text, options, weights", [
    ("e.csv", "source,target,weight\n0,1,0.5\n1,2,1\n", (), [0.5, 1]),
    ("e.csv", "a b 3 9\nb c 4 8\n", ("--weight-column", "4"), [9, 8]),
    ("e.csv", "0 1 3\n1 2 4\n", ("--weight-column", "3"), [3, 4]),
    ("e.csv", "0 1 3\n1 2 4\n", ("--weight-column", "3", "--undirected"), [3, 3, 4, 4]),
    ("e.csv", "source,target,weight\n0,1,0.5\n1,2,1\n", ("--no-edge-weights",), None),
    ("e.mtx", MATRIX.format("real").replace("2 2 2", "3 3 2") + "1 2 0.25\n2 3 1e1\n", (),
     [0.25, 10]),
    ("e.mtx", MATRIX.format("integer").replace("general", "symmetric") + "2 1 7\n1 1 3\n", (),
     [7, 7])])
def test_weights_in_text(tmp_path, name, text, options, weights):
    (tmp_path / name).write_text(text)
    found = imported(tmp_path, tmp_path / name, *options).edge_weights
    assert (None if found is None else found.tolist()) == weights


@pytest.mark.parametrize("text, options, message", [
    ("source,target,weight\n0,1,much\n", (), "line 2: the edge weight 'much'"),
    ("source,target,weight\n0,1,-2\n", (), "line 2: the edge weight '-2'"),
    ("source,target,weight\na,b,nan\n", (), "line 2: the edge weight 'nan'"),
    ("source,target,weight\n0,1,2\n1,0,3\n", ("--undirected",),
     "the edge between nodes 1 and 0 has the weight"),
    ("0,1\n", ("--weight-column", "3"), "no column of weights '3'")])
def test_wrong_weights(tmp_path, capsys, text, options, message):
    (tmp_path / "e.csv").write_text(text)
    assert main(["import", str(tmp_path / "e.csv"), "-o", str(tmp_path / "g.h5"), *options]) == 2
    assert message in capsys.readouterr().err


def test_features_of_edges_in_ogb(tmp_path, capsys):
    path = sound(tmp_path, "ogb")
    (path / "edge-feat.csv").write_text("0.5\n")
    imported(tmp_path, path)
    assert "edge weights are not used: edge-feat of sound" in capsys.readouterr().err


DGL = """
import types, torch
graph = types.SimpleNamespace(
    is_homogeneous=True, edges=lambda: torch.tensor([[0, 1], [1, 2]]), num_nodes=lambda: 3,
    ndata={"label": torch.tensor([0, 1, 1]), "train_mask": torch.tensor([True, False, False])},
    edata={"w": torch.tensor([[2.0], [3.0]]), "_ID": torch.tensor([0, 1])})
load_graphs = lambda path, indices: ([graph], {})
"""


def test_masks_and_edge_data_of_dgl(tmp_path, capsys, monkeypatch):
    """A stand-in for DGL: one graph with one mask, weights, and numbers of DGL's own."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    (tmp_path / "dgl.py").write_text(DGL)
    (tmp_path / "a.dgl").write_bytes(b"a graph")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    graph = imported(tmp_path, tmp_path / "a.dgl")
    assert graph.split.tolist() == [[1, 0, 0]] and graph.edge_weights.tolist() == [2, 3]
    shown = capsys.readouterr().err
    assert "weights" not in shown and "no val_mask and no test_mask in a.dgl" in shown


def test_number_ids_with_gaps_become_names(tmp_path):
    (tmp_path / "e.csv").write_text("5,-7\n-7,1000000000000\n")
    graph = imported(tmp_path, tmp_path / "e.csv", "--ids", "name")
    assert graph.node_names.tolist() == [-7, 5, 10 ** 12]


def test_what_the_file_says_of_itself(tmp_path, edges):
    imported(tmp_path, "csv", edges, "--undirected", "--split", "none")
    facts = header(tmp_path / "g.h5")
    assert (facts["settings"]["format"] == "csv" and facts["settings"]["undirected"] is True
            and facts["source"] == "edges.csv")


def test_duplicates_are_a_mistake_unless_said_otherwise(tmp_path, capsys):
    (tmp_path / "e.csv").write_text("0,1\n1,0\n0,1\n2,2\n")
    assert main(["import", str(tmp_path / "e.csv"), "-o", str(tmp_path / "g.h5")]) == 2
    assert "--drop-duplicates" in capsys.readouterr().err
    graph = imported(tmp_path, tmp_path / "e.csv", "--drop-duplicates")
    assert graph.n_edges == 2 and graph.n_nodes == 3
    assert "1 self loops dropped" in capsys.readouterr().err


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 10 ** 18 - 1), min_size=3, max_size=3), min_size=1,
                max_size=20), st.sampled_from([",", "\t", " "]), st.sampled_from(["\n", "\r\n"]))
def test_whole_numbers_by_array_operations(rows, separator, ending):
    text = "".join(separator.join(map(str, row)) + ending for row in rows).encode()
    np.testing.assert_array_equal(parse_integers(text, separator, 3), rows)


@pytest.mark.parametrize("text", [b"1,2\n3\n4,5,6\n", b"1,2\n\n3,4\n", b"1,2\n3;4\n", b"1,,2\n",
                                  b",1\n", b"1,2", b"-1,2\n", b"1.5,2\n",
                                  b"1,2\n3,4,\n", b"1, 2\n", b"1234567890123456789,1\n"])
def test_anything_else_is_left_to_the_careful_reader(text):
    assert parse_integers(text, ",", 2) is None


def test_progress_says_rate_and_remaining_time():
    line = ProgressBar("edges", 1000).text(250, 5_000_000, 10.0)
    assert ("25.0%" in line and "5,000,000 edges" in line and "0.50 M/s" in line
            and "30 s left" in line)


def test_progress_is_drawn_where_somebody_watches(monkeypatch):
    import io

    from hpcgcn.formats import progress

    class Terminal(io.StringIO):
        def isatty(self):
            return True
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    bar = progress.progress_bar("edges", 100)
    bar.update(50, 10)
    bar.update(51, 11)          # too soon to be drawn again
    bar.close()
    assert (terminal.getvalue().count("\r") == 1 and "50.0%" in terminal.getvalue()
            and terminal.getvalue().endswith("\n"))
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert isinstance(progress.progress_bar("edges", 100), progress.NullProgressBar)


def test_ogb_as_arrays(tmp_path):
    """The form of the largest data sets: arrays that are unpacked to disk, labels with NaN for
    none, edges one way."""
    raw, split = tmp_path / "papers" / "raw", tmp_path / "papers" / "split" / "time"
    raw.mkdir(parents=True)
    split.mkdir(parents=True)
    rng = np.random.default_rng(0)
    edges, features = np.array([[0, 1, 2], [1, 2, 3]]), rng.normal(size=(5, 3)).astype(np.float32)
    np.savez_compressed(raw / "data.npz", edge_index=edges, node_feat=features,
                        num_nodes_list=np.array([5]))
    np.savez_compressed(raw / "node-label.npz",
                        node_label=np.array([[0], [1], [np.nan], [1], [np.nan]], np.float32))
    for name, nodes in (("train", "0\n"), ("valid", "1\n"), ("test", "3\n")):
        with gzip.open(split / f"{name}.csv.gz", "wt") as file:
            file.write(nodes)
    graph = imported(tmp_path, tmp_path / "papers", "--undirected")
    np.testing.assert_array_equal(graph.features, features)
    assert (graph.labels.tolist() == [0, 1, -1, 1, -1] and graph.split.tolist() == [[1, 2, 0, 3, 0]]
            and graph.n_edges == 6)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["g.h5", "papers"]
