"""Tables that are wrong: one message with file, line and what was expected; nothing written."""

import json

import pytest
from refusals import refused, sound

from hpcgcn.cli import main


@pytest.mark.parametrize("text, line, words", [
    ("0,1\n1,2\n2\n", 3, "1 columns"), ("0,1\n1,2,3\n", 2, "3 columns"),
    ("0,1\n1;2\n", 2, "1 columns"), ("0,1\n1\t2\n", 2, "1 columns"),
    ("0,1;2\n", 1, "both commas and semicolons"), ("0,1\n-1,2\n", 2, "node -1"),
    ("0,1\n1,99999999999\n", 2, "node 99999999999"), ("0,1\n1," + "9" * 5000 + "\n", 2, "9999"),
    ("0,1\n1,--2\n", 2, "'--2'"), ("0,1\n1,x\n", 2, "'x'"), ("0,1\n1,nan\n", 2, "'nan'"),
    ("0,1\n1,1.5\n", 2, "'1.5'"), ("0\n1\n", 1, "one column"), ("a,b\nb,\n", 2, "end missing"),
    ('a,b\n"b,c\n', 2, "quotes"), ("0,1\n\0,2\n", 2, "zero byte"),
    ("a,b\n\xff,c\n", 2, "not UTF-8")])
def test_bad_edge_lists(tmp_path, capsys, text, line, words):
    (tmp_path / "edges.csv").write_bytes(text.encode("latin1"))
    message = refused(tmp_path, capsys, tmp_path / "edges.csv")
    assert f"edges.csv, line {line}:" in message and words in message


@pytest.mark.parametrize("text, words", [("", "is empty (0 bytes)"), ("\n \n\n", "blank lines"),
                                         ("# only\n# words\n", "comments")])
def test_empty_edge_lists(tmp_path, capsys, text, words):
    (tmp_path / "edges.csv").write_text(text)
    assert words in refused(tmp_path, capsys, tmp_path / "edges.csv")


def test_one_huge_id_does_not_make_a_huge_graph(tmp_path, capsys):
    (tmp_path / "edges.csv").write_text("0,1\n1,2000000000\n")
    message = refused(tmp_path, capsys, tmp_path / "edges.csv")
    assert "largest id is 2000000000" in message and "--ids name" in message


def test_the_line_is_right_far_into_a_file(tmp_path, capsys, monkeypatch):
    from hpcgcn.formats import files
    monkeypatch.setattr(files.Lines.__init__, "__defaults__", (1000,))
    rows = ["# head", *(f"{k},{k + 1}" for k in range(5000))]
    rows[4321] = "7,8,9"
    (tmp_path / "edges.csv").write_text("\n".join(rows))
    assert "line 4322:" in refused(tmp_path, capsys, tmp_path / "edges.csv")
    rows[4321] = "7,5001"
    (tmp_path / "edges.csv").write_text("\n".join(rows))
    (tmp_path / "nodes.csv").write_text("id,x\n" + "".join(f"{k},1\n" for k in range(5001)))
    assert "line 4322: an edge to node 5001" in refused(tmp_path, capsys, tmp_path / "edges.csv",
                                                        tmp_path / "nodes.csv")


def check_node_table(folder, capsys, edges, table, line, words):
    """These edges with this table of nodes are refused, with the line and the words."""
    (folder / "edges.csv").write_text(edges)
    (folder / "nodes.csv").write_text(table)
    message = refused(folder, capsys, "csv", folder / "edges.csv", folder / "nodes.csv")
    assert f"nodes.csv, line {line}:" in message and words in message


@pytest.mark.parametrize("table, line, words", [
    ("id,label,x\na,0,1\nb,0,nan\n", 3, "'nan' in the column 'x'"),
    ("id,label,x\na,0,1\nb,0,inf\n", 3, "'inf'"), ("id,label,x\na,0,1\nb,0,one\n", 3, "'one'"),
    ("id,label,x\na,0,1\na,0,2\n", 3, "again, after line 2"),
    ("id,label,x\na,0,1\nb,0\n", 3, "2 columns"), ("id,label,x\na,0,1\n,0,2\n", 3, "without an id"),
    ("id,label,x\na,0,1\nb,-2,2\n", 3, "the label -2"),
    ("id,label,x\na,0,1\nb,5000000,2\n", 3, "the label 5000000"),
    ("id,split,x\na,train,1\nb,tomorrow,2\n", 3, "the split 'tomorrow'"),
    ("a,0,1\nb,0,2\n", 1, "no column of ids"), ("id,x,x\na,0,1\nb,0,2\n", 1, "the same name"),
    ("id,label:u,label:v\na,0,1\nb,0,2\n", 3, "2 in a class column")])
def test_bad_node_tables(tmp_path, capsys, table, line, words):
    check_node_table(tmp_path, capsys, "a,b\nb,a\n", table, line, words)


def test_the_table_of_nodes_is_named_where_it_is_wrong(tmp_path, capsys):
    (tmp_path / "edges.csv").write_text("a,b\nb,a\n")
    (tmp_path / "nodes.csv").write_text("id,kind,split\na,0,train\nb,1,test\n")
    given = ["csv", tmp_path / "edges.csv", tmp_path / "nodes.csv"]
    message = refused(tmp_path, capsys, *given)
    assert ("nodes.csv: " in message and "node 0, which has no label" in message
            and "edges.csv" not in message)
    message = refused(tmp_path, capsys, *given, "--split-column", "kind", "--feature-columns",
                      "kind", "--split", "public")
    assert "nodes.csv: " in message and "edges.csv" not in message


def test_an_edge_to_a_node_that_is_not_there(tmp_path, capsys):
    (tmp_path / "edges.csv").write_text("a,b\nb,c\n")
    (tmp_path / "nodes.csv").write_text("id,x\na,1\nb,2\n")
    assert "edges.csv, line 2: an edge to node 'c'" in refused(tmp_path, capsys,
                                                               tmp_path / "edges.csv",
                                                               tmp_path / "nodes.csv")


def test_a_column_that_is_not_there(tmp_path, capsys):
    (tmp_path / "edges.csv").write_text("a,b\nb,a\n")
    (tmp_path / "nodes.csv").write_text("id,x\na,1\nb,2\n")
    assert "no column 'topic'" in refused(tmp_path, capsys, tmp_path / "edges.csv",
                                          tmp_path / "nodes.csv", "--label-column", "topic")


@pytest.mark.parametrize("text, line, words", [
    ("%%MatrixMarket matrix array real general\n2 2\n1\n", 1, "array"), ("hello\n", 1, "hello"),
    ("%%MatrixMarket matrix coordinate pattern general\n2 3 1\n1 2\n", 2, "2 x 3"),
    ("%%MatrixMarket matrix coordinate pattern general\n2 2\n1 2\n", 2, "'2 2'"),
    ("%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 3\n", 3, "node 3"),
    ("%%MatrixMarket matrix coordinate pattern general\n2 2 1\n0 1\n", 3, "node 0"),
    ("%%MatrixMarket matrix coordinate real general\n2 2 2\n1 2 0.5\n2 1\n", 4, "2 columns"),
    ("%%MatrixMarket matrix coordinate pattern general\n2 2 5\n1 2\n", None, "1 edges")])
def test_bad_matrix_market(tmp_path, capsys, text, line, words):
    (tmp_path / "m.mtx").write_text(text)
    message = refused(tmp_path, capsys, tmp_path / "m.mtx")
    assert words in message and (line is None or f"line {line}:" in message)


@pytest.mark.parametrize("name, text, words", [
    ("edge.csv", "0,1\n1,41\n", "edge.csv, line 2: an edge to node 41"),
    ("edge.csv", "0,1\n1\n", "edge.csv, line 2"),
    ("node-feat.csv", "1,2\n3,x\n", "node-feat.csv, line 2: 'x'"),
    ("node-feat.csv", "1,2\n3,nan\n", "line 2: the value 'nan'"),
    ("node-feat.csv", "1,2\n3\n", "node-feat.csv, line 2"),
    ("node-feat.csv", "1,2\n3,4\n", "has 2 rows"),
    ("node-label.csv", "0.5\n" * 41, "label 0.5"), ("split/given/test.csv", "99\n", "not there"),
    ("split/given/test.csv", "0\n1\n0\n", "test.csv, line 3: node 0 twice"),
    ("split/given/test.csv", "0\n", "two of train, val and test")])
def test_bad_ogb_tables(tmp_path, capsys, name, text, words):
    folder = sound(tmp_path, "ogb")
    (folder / f"{name}.gz").unlink()
    (folder / name).write_text(text)
    assert words in refused(tmp_path, capsys, "ogb", folder)


@pytest.mark.parametrize("name, value, words", [
    ("class_map.json", {"41": 0}, "node '41'"), ("class_map.json", {"x": 0}, "node 'x'"),
    ("class_map.json", [1], "no object"), ("class_map.json", {"0": 0, "1": [1]}, "the class [1]"),
    ("class_map.json", {"0": -5}, "label -5"), ("role.json", {"tr": [0]}, "tr, va and te"),
    ("role.json", {"tr": [0], "va": [0], "te": []}, "node 0 is in two"),
    ("role.json", {"tr": [77], "va": [], "te": []}, "0..40")])
def test_bad_graphsaint(tmp_path, capsys, name, value, words):
    folder = sound(tmp_path, "graphsaint")
    (folder / name).write_text(json.dumps(value))
    assert words in refused(tmp_path, capsys, folder)
    (folder / name).write_text('{"0":\n 1,,}')
    assert f"{name}, line 2: not valid JSON" in refused(tmp_path, capsys, folder)


@pytest.mark.parametrize("text, words", [
    ("0,1\r1,2\r", "line 1: a carriage return without a line feed"),
    ("0,1\n1,2\n# again\n1,2\n", "line 2 and 4: 1 edge is listed"),
    ("a,b\nb,c\n\nb,c\n", "line 2 and 4: 1 edge is listed"),
    ("0,1\n1,5000\n", "line 2: the largest id is 5000")])
def test_slips_in_edge_lists_are_found_by_line(tmp_path, capsys, text, words):
    (tmp_path / "edges.csv").write_bytes(text.encode())
    assert f"edges.csv, {words}" in refused(tmp_path, capsys, tmp_path / "edges.csv")


@pytest.mark.parametrize("table, line, words", [
    ("id,label\n0,0\n1,nan\n", 3, "the label 'nan'"),
    ("id,label\n0,0\n1,1.5\n", 3, "the label '1.5'"),
    ("id,label\n0,0\n1,99999999999999999999\n", 3, "the label '99999"),
    ("id,x\n0,1\n1,1e39\n", 3, "'1e39' in the column"),
    ("id,label,split:0,split:5\n0,0,,\n1,0,,\n", 1, "the columns split:0, split:5"),
    ("id,label,split:1,split:2\n0,0,,\n1,0,,\n", 1, "the columns split:1, split:2"),
    ("id,label\n", 1, "no nodes"), ("id,label,split\n0,0,train\n1,,train\n", 3, "without a label")])
def test_slips_in_node_tables(tmp_path, capsys, table, line, words):
    check_node_table(tmp_path, capsys, "0,1\n1,0\n", table, line, words)


@pytest.mark.parametrize("arguments, words", [
    (["--id-column", "person"], "no table of nodes"),
    (["--edge-columns", "a,a"], "two different columns"),
    (["--name", "cora"], "--name says nothing"),
    (["--nodes", "NODES", "--feature-columns", "x,x"], "every column once")])
def test_words_that_would_be_passed_over(tmp_path, capsys, arguments, words):
    (tmp_path / "edges.csv").write_text("a,b\n0,1\n1,0\n")
    (tmp_path / "nodes.csv").write_text("id,x\n0,1\n1,2\n")
    given = [str(tmp_path / "nodes.csv") if word == "NODES" else word for word in arguments]
    assert words in refused(tmp_path, capsys, tmp_path / "edges.csv", *given)


def test_files_that_would_be_passed_over(tmp_path, capsys):
    path = sound(tmp_path, "npz")
    assert "expected one" in refused(tmp_path, capsys, "npz", path, path)
    assert "--nodes says nothing" in refused(tmp_path, capsys, "npz", path, "--nodes", path)


def test_a_matrix_that_announces_too_much(tmp_path, capsys):
    (tmp_path / "m.mtx").write_text("%%MatrixMarket matrix coordinate pattern "
                                    "general\n2000000000 2000000000 1\n1 2\n")
    assert "2,000,000,000 nodes are announced" in refused(tmp_path, capsys, tmp_path / "m.mtx")


def test_the_source_is_not_overwritten(tmp_path, capsys):
    (tmp_path / "edges.csv").write_text("0,1\n")
    assert main(["import", str(tmp_path / "edges.csv"), "-o", str(tmp_path / "edges.csv")]) == 2
    assert ("an input of this command" in capsys.readouterr().err
            and (tmp_path / "edges.csv").read_text() == "0,1\n")


@pytest.mark.parametrize("name, text, words", [
    ("class_map.json", '{"0": 1,\n"0": 2}', "line 2: '0' is there twice"),
    ("class_map.json", '{"0": 1,\n"99": 2}', "line 2: a class"),
    ("class_map.json", '{"0": true}', "line 1: the class True"),
    ("role.json", '{"tr": [0, 0], "va": [], "te": []}', "node 0 twice")])
def test_lines_of_json(tmp_path, capsys, name, text, words):
    folder = sound(tmp_path, "graphsaint")
    (folder / name).write_text(text)
    assert words in refused(tmp_path, capsys, folder)


@pytest.mark.parametrize("name, text, words", [
    ("node-feat", "1e39\n" * 41, "line 1: the value '1e39'"),
    ("node-label", "0\n" * 40 + "9000000\n", "line 41: node 40 has the label"),
    ("split/given/train", "0\n1\n99\n", "line 3: node 99"),
    ("split/given/train", "0,1\n", "line 1: 2 columns"),
    ("num-edge-list", "3\n", "expected the 3 that")])
def test_lines_of_ogb_tables(tmp_path, capsys, name, text, words):
    folder = sound(tmp_path, "ogb")
    (folder / f"{name}.csv.gz").unlink()
    (folder / f"{name}.csv").write_text(text)
    assert words in refused(tmp_path, capsys, "ogb", folder)
