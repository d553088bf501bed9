"""Which columns of a node table become what, and what the user is told of them."""

import numpy as np
import pytest
from refusals import refused

from hpcgcn.cli import main
from hpcgcn.graph.data import SparseRows
from hpcgcn.graph.store import read_graph

EDGES = "source,target\n0,1\n1,2\n2,0\n"


def tables(tmp_path, nodes):
    (tmp_path / "edges.csv").write_text(EDGES)
    (tmp_path / "nodes.csv").write_text(nodes)
    return str(tmp_path / "edges.csv"), str(tmp_path / "nodes.csv")


def imported(tmp_path, capsys, nodes, *flags):
    """(the graph, what was said on standard error)."""
    output = tmp_path / "g.h5"
    code = main(["import", "csv", *tables(tmp_path, nodes), "-o", str(output), *flags])
    said = capsys.readouterr().err
    assert code == 0, said
    return read_graph(output), said


@pytest.mark.parametrize("name", ["target", "class", "Class_ID", "y", "category"])
def test_a_class_column_of_another_name_is_named_with_the_flag(tmp_path, capsys, name):
    graph, said = imported(tmp_path, capsys, f"id,{name}\n0,0\n1,1\n2,1\n")
    assert f"--label-column {name}" in said and f"{name} is a feature" in said
    assert graph.n_features == 1 and (graph.labels == -1).all()


def test_any_table_without_labels_says_which_columns_are_features(tmp_path, capsys):
    _, said = imported(tmp_path, capsys, "id,age,height\n0,1,2\n1,3,4\n2,5,6\n")
    assert "no column is called label" in said and "age, height are features" in said
    assert "--label-column NAME" in said


def test_with_the_flag_the_column_is_the_class_and_no_feature(tmp_path, capsys):
    graph, said = imported(tmp_path, capsys, "id,target,x\n0,0,.5\n1,1,.25\n2,1,.125\n",
                           "--label-column", "target")
    assert graph.labels.tolist() == [0, 1, 1] and graph.n_classes == 2
    assert np.ravel(graph.features).tolist() == [0.5, 0.25, 0.125]
    assert "label" not in said


def test_the_classes_cannot_be_features_too(tmp_path, capsys):
    given = tables(tmp_path, "id,label,x\n0,0,1\n1,1,2\n2,1,3\n")
    message = refused(tmp_path, capsys, "csv", *given, "--feature-columns", "x,label")
    assert "label holds the classes" in message


def test_booleans_are_numbers(tmp_path, capsys):
    graph, _ = imported(tmp_path, capsys, "id,label,flag,x\n0,0,true,1\n1,1,False,2\n2,0,TRUE,3\n")
    assert graph.features.tolist() == [[1, 1], [0, 2], [1, 3]]


def test_boolean_labels_are_classes(tmp_path, capsys):
    graph, _ = imported(tmp_path, capsys, "id,label,x\n0,true,1\n1,false,2\n2,true,3\n")
    assert graph.labels.tolist() == [1, 0, 1]
    assert graph.extra["class_names"] == ["false", "true"]


def test_text_names_the_flag_that_leaves_it_out(tmp_path, capsys):
    nodes = "id,label,home town,x\n0,0,Bonn,1\n1,1,Kiel,2\n2,1,Ulm,3\n"
    message = refused(tmp_path, capsys, "csv", *tables(tmp_path, nodes))
    assert "line 2: 'Bonn'" in message and "--skip-columns 'home town'" in message
    graph, _ = imported(tmp_path, capsys, nodes, "--skip-columns", "home town")
    assert graph.features.tolist() == [[1], [2], [3]]
    assert graph.extra["feature_names"] == ["x"]
    assert "--label-column" not in message, "there is one already"


def test_text_where_no_column_is_the_label_may_be_the_classes(tmp_path, capsys):
    nodes = "id,kind,x\n0,cat,1\n1,dog,2\n2,cat,3\n"
    message = refused(tmp_path, capsys, "csv", *tables(tmp_path, nodes))
    assert "--skip-columns kind" in message and "--label-column NAME makes a column" in message
    graph, _ = imported(tmp_path, capsys, nodes, "--label-column", "kind")
    assert graph.extra["class_names"] == ["cat", "dog"] and graph.labels.tolist() == [0, 1, 0]


def test_no_features_at_all(tmp_path, capsys):
    nodes = "id,label,town\n0,0,Bonn\n1,1,Kiel\n2,1,Ulm\n"
    graph, said = imported(tmp_path, capsys, nodes, "--feature-columns", "none")
    assert isinstance(graph.features, SparseRows) and graph.extra["made_features"] == "degree"
    assert "made from the graph" in said


def test_a_column_called_none_is_that_column(tmp_path, capsys):
    nodes = "id,label,none,x\n0,0,7,1\n1,1,8,2\n2,1,9,3\n"
    graph, _ = imported(tmp_path, capsys, nodes, "--feature-columns", "none")
    assert np.ravel(graph.features).tolist() == [7, 8, 9]


@pytest.mark.parametrize(
    "flags, words",
    [(["--skip-columns", "label"], "is the id, the label or the split"),
     (["--skip-columns", "nothing"], "has no column 'nothing'"),
     (["--skip-columns", "x", "--feature-columns", "y"], "has no column 'y'")],
)
def test_columns_that_cannot_be_left_out(tmp_path, capsys, flags, words):
    given = tables(tmp_path, "id,label,x\n0,0,1\n1,1,2\n2,1,3\n")
    assert words in refused(tmp_path, capsys, "csv", *given, *flags)


def test_skip_columns_needs_a_table_of_nodes(tmp_path, capsys):
    (tmp_path / "edges.csv").write_text(EDGES)
    message = refused(tmp_path, capsys, "csv", tmp_path / "edges.csv", "--skip-columns", "x")
    assert "no table of nodes" in message
