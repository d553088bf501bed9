"""Features and labels in files of their own beside an edge list: every kind gives the same graph,
and what is wrong is refused with one message."""

import json

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from refusals import refused

from hpcgcn.cli import main
from hpcgcn.graph.data import SparseRows
from hpcgcn.graph.store import read_graph

N, WIDTH = 12, 9
CLASSES = ["tvshow", "company", "government"]


def matrix() -> np.ndarray:
    """(N, WIDTH), sparse; row 3 is empty, no column is."""
    rng = np.random.default_rng(1)
    dense = np.where(rng.random((N, WIDTH)) < 0.3, rng.integers(1, 5, (N, WIDTH)), 0)
    dense[3], dense[4], dense[5, WIDTH - 1] = 0, 2, 1
    return dense.astype(np.float32)


def labels() -> list[int]:
    return [k % 3 for k in range(N)]


def words() -> list[str]:
    """Classes by name: their numbers follow the letters."""
    return [sorted(CLASSES)[label] for label in labels()]


def write_edges(folder, name="{}", header="id_1,id_2"):
    edges = [(k, (5 * k + 1) % N) for k in range(N)]
    (folder / "edges.csv").write_text(header + "\n" + "".join(
        f"{name.format(a)},{name.format(b)}\n" for a, b in edges))
    return folder / "edges.csv"


def imported(folder, *arguments) -> object:
    path = folder / "g.h5"
    assert main(["import", *map(str, arguments), "--undirected", "--drop-duplicates", "-o",
                 str(path), "--overwrite"]) == 0
    return read_graph(path)


def dense(features) -> np.ndarray:
    return features.to_dense() if isinstance(features, SparseRows) else np.asarray(features)


def _triples(path, header, order=None):
    rows, columns = np.nonzero(matrix())
    lines = [f"{a},{b},{matrix()[a, b]:g}\n" for a, b in zip(rows, columns)]
    path.write_text(header + "".join(lines[k] for k in order or range(len(lines))))


def _table(path, separator=",", identity=True, order=None):
    names = (["id"] if identity else []) + [f"x{k}" for k in range(WIDTH)]
    rows = [([str(k)] if identity else []) + [f"{v:g}" for v in matrix()[k]]
            for k in order or range(N)]
    path.write_text("\n".join(separator.join(row) for row in [names, *rows]) + "\n")


def _svmlight(path, first=1):
    lines = [f"{label} " + " ".join(f"{c + first}:{matrix()[k, c]:g}"
                                    for c in np.flatnonzero(matrix()[k]))
             for k, label in enumerate(labels())]
    path.write_text("# made by a test\n" + "\n".join(lines) + "  # the last\n")


def _parquet(path, columns):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet
    parquet.write_table(pyarrow.table(columns), path)


SPARSE = scipy.sparse.csr_matrix(matrix())
WRITERS = {
    "f.npy": lambda path: np.save(path, matrix()),
    "whole.npy": lambda path: np.save(path, matrix().astype(np.int16)),
    "double.npy": lambda path: np.save(path, matrix().astype(np.float64)),
    "f.npz": lambda path: np.savez(path, features=matrix(), other=np.zeros(3)),
    "only.npz": lambda path: np.savez_compressed(path, strange=matrix()),
    "csr.npz": lambda path: scipy.sparse.save_npz(path, SPARSE),
    "csc.npz": lambda path: scipy.sparse.save_npz(path, SPARSE.tocsc()),
    "coo.npz": lambda path: scipy.sparse.save_npz(path, SPARSE.tocoo()),
    "array.npz": lambda path: scipy.sparse.save_npz(path, scipy.sparse.csr_array(SPARSE)),
    "f.mtx": lambda path: scipy.io.mmwrite(path, SPARSE),
    "dense.mtx": lambda path: scipy.io.mmwrite(path, matrix()),
    "f.csv": _table,
    "mixed.csv": lambda path: _table(path, order=[*range(1, N), 0]),
    "f.tsv": lambda path: _table(path, "\t", identity=False),
    "triples.csv": lambda path: _triples(path, "node,feature,value\n"),
    "mixed-triples.csv": lambda path: _triples(
        path, "id,word,count\n", np.random.default_rng(0).permutation(
            np.count_nonzero(matrix())).tolist()),
    "f.svm": _svmlight,
    "zero.libsvm": lambda path: _svmlight(path, 0),
    "f.parquet": lambda path: _parquet(path, {"id": np.arange(N),
                                              **{f"x{k}": matrix()[:, k] for k in range(WIDTH)}}),
    "lists.parquet": lambda path: _parquet(path, {"node": np.arange(N)[::-1],
                                                  "embedding": matrix()[::-1].tolist()}),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_kind_of_file_gives_the_same_features(tmp_path, name):
    path = tmp_path / name
    WRITERS[name](path)
    graph = imported(tmp_path, write_edges(tmp_path), "--features", path)
    np.testing.assert_array_equal(dense(graph.features), matrix())


def test_text_without_a_header_is_read_as_the_flag_says(tmp_path):
    edges, path = write_edges(tmp_path), tmp_path / "f.txt"
    _triples(path, "")
    np.testing.assert_array_equal(
        dense(imported(tmp_path, edges, "--features", path, "--features-format",
                       "triples").features), matrix())
    path.write_text("".join(f"{k} {k + 1} {k + 2}\n" for k in range(N)))
    found = imported(tmp_path, edges, "--features", path, "--features-format", "dense")
    np.testing.assert_array_equal(found.features[:, 2], np.arange(N) + 2)


@pytest.mark.parametrize("name", ["{}", "page {}"], ids=["numbers", "names"])
def test_json_lists_of_features_by_node(tmp_path, name):
    """Numbers are columns, words are numbered by their letters; node 3, not there, has none."""
    edges = write_edges(tmp_path, name, "source,target")
    lists = {name.format(k): np.flatnonzero(matrix()[k]).tolist() for k in range(N) if k != 3}
    (tmp_path / "f.json").write_text(json.dumps(lists))
    graph = imported(tmp_path, edges, "--features", tmp_path / "f.json")
    order = np.arange(N) if graph.node_names is None else [
        int(str(given.decode()).split()[1]) for given in graph.node_names.tolist()]
    np.testing.assert_array_equal(dense(graph.features), (matrix() != 0)[order])
    (tmp_path / "f.json").write_text(json.dumps(
        {node: [f"word {9 - feature}" for feature in row] for node, row in lists.items()}))
    graph = imported(tmp_path, edges, "--features", tmp_path / "f.json")
    np.testing.assert_array_equal(dense(graph.features), (matrix() != 0)[order][:, ::-1])


LABELS = {
    "y.npy": lambda path: np.save(path, np.array(labels())),
    "words.npy": lambda path: np.save(path, np.array(words())),
    "y.npz": lambda path: np.savez(path, y=np.array(labels()), x=matrix()),
    "y.json": lambda path: path.write_text(json.dumps({str(k): w for k, w in enumerate(words())})),
    "list.json": lambda path: path.write_text(json.dumps(labels())),
    "y.csv": lambda path: path.write_text(
        "id,page_name,page_type\n" + "".join(f"{k},no. {k},{w}\n" for k, w in enumerate(words()))),
    "pairs.txt": lambda path: path.write_text(
        "".join(f"{k}\t{w}\n" for k, w in reversed(list(enumerate(words()))))),
    "column.csv": lambda path: path.write_text("label\n" + "".join(f"{w}\n" for w in words())),
    "target.csv": lambda path: path.write_text(
        "id,ml_target\n" + "".join(f"{k},{w}\n" for k, w in enumerate(labels()))),
    "y.parquet": lambda path: _parquet(path, {"id": np.arange(N), "label": words()}),
}


@pytest.mark.parametrize("name", LABELS)
def test_every_kind_of_file_gives_the_same_labels(tmp_path, name):
    LABELS[name](tmp_path / name)
    flags = ["--label-column", "page_type"] if name == "y.csv" else []
    graph = imported(tmp_path, write_edges(tmp_path), "--labels", tmp_path / name, *flags)
    assert graph.labels.tolist() == labels() and graph.n_classes == 3
    if "class_names" in graph.extra:
        assert list(graph.extra["class_names"]) == sorted(CLASSES)


def test_labels_of_some_nodes_with_a_split_and_lists_of_several_classes(tmp_path):
    edges, path = write_edges(tmp_path), tmp_path / "y.csv"
    path.write_text("node,label,split\n2,b,train\n7,a,test\n")
    graph = imported(tmp_path, edges, "--labels", path)
    assert graph.labels.tolist() == [1 if k == 2 else 0 if k == 7 else -1 for k in range(N)]
    assert graph.split[0].tolist() == [1 if k == 2 else 3 if k == 7 else 0 for k in range(N)]
    (tmp_path / "y.json").write_text(json.dumps({"1": [0, 1], "4": [1, 1]}))
    graph = imported(tmp_path, edges, "--labels", tmp_path / "y.json")
    assert graph.multilabel and graph.labels[1].tolist() == [0, 1]
    assert graph.labels.sum() == 3


def test_nodes_of_the_files_without_an_edge_are_nodes(tmp_path):
    (tmp_path / "edges.csv").write_text("0,1\n1,2\n")
    (tmp_path / "f.json").write_text('{"0": [1], "9": [4]}')
    graph = imported(tmp_path, tmp_path / "edges.csv", "--features", tmp_path / "f.json")
    assert graph.n_nodes == 10 and dense(graph.features)[9, 4] == 1
    (tmp_path / "edges.csv").write_text("a,b\n")
    (tmp_path / "f.json").write_text('{"a": [0], "z": [1]}')
    graph = imported(tmp_path, tmp_path / "edges.csv", "--features", tmp_path / "f.json")
    assert graph.node_names.tolist() == [b"a", b"b", b"z"]
    assert dense(graph.features).tolist() == [[1, 0], [0, 0], [0, 1]]


def test_a_folder_as_people_have_it_needs_no_names_of_files(tmp_path, capsys):
    raw = tmp_path / "raw"
    raw.mkdir()
    write_edges(raw)
    LABELS["y.csv"](raw / "target.csv")
    (raw / "features.json").write_text(json.dumps({str(k): [k] for k in range(N)}))
    graph = imported(tmp_path, raw, "--label-column", "page_type")
    assert graph.labels.tolist() == labels() and graph.n_features == N
    told = capsys.readouterr().err
    assert "features are those of features.json" in told
    assert "labels are those of target.csv" in told
    np.save(raw / "features.npy", matrix())
    assert "--features" in refused(tmp_path, capsys, raw, "--label-column", "page_type")


def test_a_table_of_nodes_goes_with_features_of_their_own(tmp_path):
    """Its columns of text are then no features."""
    edges, nodes = write_edges(tmp_path), tmp_path / "nodes.csv"
    LABELS["y.csv"](nodes)
    np.save(tmp_path / "f.npy", matrix())
    for flags in ((), ("--feature-columns", "none")):
        graph = imported(tmp_path, edges, "--nodes", nodes, "--label-column", "page_type",
                         "--features", tmp_path / "f.npy", *flags)
        np.testing.assert_array_equal(dense(graph.features), matrix())
        assert graph.labels.tolist() == labels()
    (tmp_path / "edges.mtx").write_text("%%MatrixMarket matrix coordinate pattern general\n"
                                        f"{N} {N} 1\n2 1\n")
    np.save(tmp_path / "y.npy", labels())
    graph = imported(tmp_path, tmp_path / "edges.mtx", "--features", tmp_path / "f.npy",
                     "--labels", tmp_path / "y.npy")
    assert graph.labels.tolist() == labels() and graph.n_features == WIDTH


def test_columns_of_text_are_named_with_the_flags_that_leave_them_out(tmp_path, capsys):
    edges, nodes = write_edges(tmp_path), tmp_path / "nodes.csv"
    LABELS["y.csv"](nodes)
    message = refused(tmp_path, capsys, edges, "--nodes", nodes)
    assert "page_name, page_type hold text" in message
    assert "--skip-columns page_name,page_type" in message and "--feature-columns none" in message
    assert imported(tmp_path, edges, "--nodes", nodes, "--feature-columns", "none",
                    "--label-column", "page_type").n_classes == 3
    capsys.readouterr()
    (tmp_path / "f.csv").write_text("id,x,bio\n" + "".join(f"{k},1,text {k}\n" for k in range(N)))
    message = refused(tmp_path, capsys, edges, "--features", tmp_path / "f.csv")
    assert "'bio'" in message and "--skip-columns bio" in message
    assert "--feature-columns chooses" in message and "none" not in message
    assert imported(tmp_path, edges, "--features", tmp_path / "f.csv", "--skip-columns",
                    "bio").n_features == 1


BAD = {
    "short.npy": (lambda path: np.save(path, matrix()[:-1]), "node 11"),
    "long.npy": (lambda path: np.save(path, np.vstack([matrix(), matrix()]).T[:, :, None]),
                 "shape"),
    "text.npy": (lambda path: np.save(path, np.array([["a"]] * N)), "expected numbers"),
    "nan.npy": (lambda path: np.save(path, np.full((N, 2), np.nan)), "finite"),
    "objects.npy": (lambda path: np.save(path, np.array([[{}]] * N), allow_pickle=True), "objects"),
    "bsr.npz": (lambda path: scipy.sparse.save_npz(path, SPARSE.tobsr((2, 3))), "'bsr'"),
    "huge.npz": (lambda path: np.savez(path, format=b"coo", shape=np.array([N, 2 ** 31 - 1]),
                                       row=[0], col=[2 ** 31 - 2], data=[1.0]), "feature columns"),
    "outside.npz": (lambda path: np.savez(path, format=b"coo", shape=np.array([N, 4]),
                                          row=[0], col=[4], data=[1.0]), "within"),
    "huge.mtx": (lambda path: path.write_text(
        "%%MatrixMarket matrix coordinate real general\n999999999 999999999 1\n1 1 1\n"), "rows"),
    "count.mtx": (lambda path: path.write_text(
        f"%%MatrixMarket matrix coordinate real general\n{N} 3 2\n1 1 1\n"), "announces"),
    "complex.mtx": (lambda path: path.write_text(
        "%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1 1\n"), "real|integer"),
    "ids.csv": (lambda path: path.write_text("id,x\n" + "77,1\n" * 1), "77"),
    "twice.csv": (lambda path: path.write_text("id,x\n" + "1,1\n" * 2), "every node once"),
    "missing.csv": (lambda path: path.write_text("id,x\n0,1\n"), "11 nodes"),
    "three.csv": (lambda path: path.write_text("0,1,2\n" * N), "--features-format"),
    "value.svm": (lambda path: path.write_text("1 3:x\n" * N), "line 1"),
    "place.svm": (lambda path: path.write_text("1 -3:1\n" * N), "feature:value"),
    "gap.svm": (lambda path: path.write_text("1 2000000000:1\n" * N), "feature columns"),
    "again.csv": (lambda path: path.write_text("node,feature,value\n0,1,2\n0,1,3\n"), "two values"),
    "infinite.csv": (lambda path: path.write_text("node,feature,value\n0,1,1e99\n"), "line 2"),
    "map.json": (lambda path: path.write_text('{\n"0": {"1": 2}}'), "line 2"),
    "float.json": (lambda path: path.write_text('{"0": [0.5]}'), ".npy"),
    "number.json": (lambda path: path.write_text("7"), "node -> its features"),
    "gap.json": (lambda path: path.write_text('{"0": [2000000000]}'), "feature columns"),
    "f.xyz": (lambda path: path.write_text("1"), "ends with"),
    "f.parquet": (lambda path: path.write_bytes(b"PAR1" + b"\0" * 50 + b"PAR1"), "Parquet"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_with_features_is_said_in_one_message(tmp_path, capsys, name):
    write, words = BAD[name]
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    write(tmp_path / name)
    message = refused(tmp_path, capsys, write_edges(tmp_path), "--features", tmp_path / name)
    assert words in message and name in message, message


BAD_LABELS = {
    "y.npy": (lambda path: np.save(path, np.zeros((N, 2, 2))), "shape"),
    "columns.csv": (lambda path: path.write_text("id,a,b\n0,x,y\n"), "--label-column b"),
    "wide.csv": (lambda path: path.write_text("0,1,2\n" * N), "without a header"),
    "y.json": (lambda path: path.write_text('{"0": 1.5}'), "'1.5'"),
    "uneven.json": (lambda path: path.write_text('{"0": [1], "1": [0, 1]}'), "0 and 1"),
    "control.json": (lambda path: path.write_text('{"0": "\\u001b[2J", "1": "a"}'), "control"),
    "half.json": (lambda path: path.write_text('{"0": "\\ud800", "1": "a"}'), "UTF-8"),
    "strange.npy": (lambda path: np.save(path, np.full(N, 2 ** 31 - 1, np.int32).view("U1")),
                    "no text"),
    "large.json": (lambda path: path.write_text('{"0": 123456789}'), "123456789"),
    "y.xyz": (lambda path: path.write_text("1"), "ends with"),
}


@pytest.mark.parametrize("name", BAD_LABELS)
def test_what_is_wrong_with_labels_is_said_in_one_message(tmp_path, capsys, name):
    write, words = BAD_LABELS[name]
    write(tmp_path / name)
    message = refused(tmp_path, capsys, write_edges(tmp_path), "--labels", tmp_path / name)
    assert words in message and name in message, message


def test_what_contradicts_or_would_be_passed_over_is_refused(tmp_path, capsys):
    edges, nodes = write_edges(tmp_path), tmp_path / "nodes.csv"
    LABELS["target.csv"](nodes)
    np.save(tmp_path / "y.npy", labels())
    nodes.write_text(nodes.read_text().replace("ml_target", "label"))
    assert "labels are in" in refused(tmp_path, capsys, edges, "--nodes", nodes, "--labels",
                                      tmp_path / "y.npy")
    np.save(tmp_path / "f.npy", matrix())
    write_edges(tmp_path, "page {}")
    assert "have no ids" in refused(tmp_path, capsys, edges, "--features", tmp_path / "f.npy")
    np.savez(tmp_path / "g.npz", indptr=[0, 0], indices=np.zeros(0, int))
    assert "only with mtx or csv" in refused(tmp_path, capsys, "npz", tmp_path / "g.npz",
                                             "--features", tmp_path / "f.npy")
    assert "no such file" in refused(tmp_path, capsys, edges, "--features", tmp_path / "none.npy")
