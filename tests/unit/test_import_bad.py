"""Files that are wrong, damaged or hostile: one message with file, line and what was expected; nothing written, nothing run."""

import gzip
import io
import json
import os
import pickle
import struct
import zipfile

import numpy as np
import pytest
from graphs import random_graph

from hpcgcn.cli import main
from hpcgcn.errors import FileError
from hpcgcn.formats.archive import Archive
from hpcgcn.formats.files import inside
from hpcgcn.formats.table import write_as
from hpcgcn.formats.unpickle import read_pickle
from hpcgcn.graph.data import TEST, VAL

FOLDERS = ("planetoid", "ogb", "graphsaint", "dgl-reddit", "csv", "mtx")
FILES = {"npz": ".npz", "npz-heterophilous": ".npz", "npz-gnn-benchmark": ".npz", "pyg": ".pt"}


def refused(tmp_path, capsys, *arguments):
    """The one message of an import that fails; nothing is left beside the sources."""
    output = tmp_path / "results" / "g.h5"
    output.parent.mkdir(exist_ok=True)
    assert main(["import", *map(str, arguments), "-o", str(output)]) == 2
    message = capsys.readouterr().err
    assert message.startswith("hpcgcn: ") and message.count("\n") == 1 and "Traceback" not in message, message
    assert "expected" in message, message
    assert list(output.parent.iterdir()) == []
    return message


def sound(tmp_path, format_name):
    """A sound graph in the given format."""
    split = np.full((1, 41), VAL, np.uint8)
    split[:, 30:], split[:, :10] = TEST, 1
    path = tmp_path / ("sound" + FILES.get(format_name, ""))
    if format_name == "pyg":
        pytest.importorskip("torch_geometric", reason="PyG is not installed")
    write_as(format_name, str(path), random_graph(split=split))
    return path


# -- tables -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("text, line, words", [
    ("0,1\n1,2\n2\n", 3, "1 columns"), ("0,1\n1,2,3\n", 2, "3 columns"), ("0,1\n1;2\n", 2, "1 columns"),
    ("0,1\n1\t2\n", 2, "1 columns"), ("0,1;2\n", 1, "both commas and semicolons"), ("0,1\n-1,2\n", 2, "node -1"),
    ("0,1\n1,99999999999\n", 2, "node 99999999999"), ("0,1\n1," + "9" * 5000 + "\n", 2, "9999"), ("0,1\n1,--2\n", 2, "'--2'"), ("0,1\n1,x\n", 2, "'x'"),
    ("0,1\n1,nan\n", 2, "'nan'"), ("0,1\n1,1.5\n", 2, "'1.5'"), ("0\n1\n", 1, "one column"), ("a,b\nb,\n", 2, "end missing"),
    ('a,b\n"b,c\n', 2, "quotes"), ("0,1\n\0,2\n", 2, "zero byte"), ("a,b\n\xff,c\n", 2, "not UTF-8")])
def test_bad_edge_lists(tmp_path, capsys, text, line, words):
    (tmp_path / "edges.csv").write_bytes(text.encode("latin1"))
    message = refused(tmp_path, capsys, tmp_path / "edges.csv")
    assert f"edges.csv, line {line}:" in message and words in message


@pytest.mark.parametrize("text, words", [("", "is empty (0 bytes)"), ("\n \n\n", "blank lines"), ("# only\n# words\n", "comments")])
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
    assert "line 4322: an edge to node 5001" in refused(tmp_path, capsys, tmp_path / "edges.csv", tmp_path / "nodes.csv")


@pytest.mark.parametrize("table, line, words", [
    ("id,label,x\na,0,1\nb,0,nan\n", 3, "'nan' in the column 'x'"), ("id,label,x\na,0,1\nb,0,inf\n", 3, "'inf'"),
    ("id,label,x\na,0,1\nb,0,one\n", 3, "'one'"), ("id,label,x\na,0,1\na,0,2\n", 3, "again, after line 2"),
    ("id,label,x\na,0,1\nb,0\n", 3, "2 columns"), ("id,label,x\na,0,1\n,0,2\n", 3, "without an id"),
    ("id,label,x\na,0,1\nb,-2,2\n", 3, "the label -2"), ("id,label,x\na,0,1\nb,5000000,2\n", 3, "the label 5000000"),
    ("id,split,x\na,train,1\nb,tomorrow,2\n", 3, "the split 'tomorrow'"), ("a,0,1\nb,0,2\n", 1, "no column of ids"),
    ("id,x,x\na,0,1\nb,0,2\n", 1, "the same name"), ("id,label:u,label:v\na,0,1\nb,0,2\n", 3, "2 in a class column")])
def test_bad_node_tables(tmp_path, capsys, table, line, words):
    (tmp_path / "edges.csv").write_text("a,b\nb,a\n")
    (tmp_path / "nodes.csv").write_text(table)
    message = refused(tmp_path, capsys, "csv", tmp_path / "edges.csv", tmp_path / "nodes.csv")
    assert f"nodes.csv, line {line}:" in message and words in message


def test_an_edge_to_a_node_that_is_not_there(tmp_path, capsys):
    (tmp_path / "edges.csv").write_text("a,b\nb,c\n")
    (tmp_path / "nodes.csv").write_text("id,x\na,1\nb,2\n")
    assert "edges.csv, line 2: an edge to node 'c'" in refused(tmp_path, capsys, tmp_path / "edges.csv", tmp_path / "nodes.csv")


def test_a_column_that_is_not_there(tmp_path, capsys):
    (tmp_path / "edges.csv").write_text("a,b\nb,a\n")
    (tmp_path / "nodes.csv").write_text("id,x\na,1\nb,2\n")
    assert "no column 'topic'" in refused(tmp_path, capsys, tmp_path / "edges.csv", tmp_path / "nodes.csv", "--label-column", "topic")


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
    ("edge.csv", "0,1\n1,41\n", "edge.csv, line 2: an edge to node 41"), ("edge.csv", "0,1\n1\n", "edge.csv, line 2"),
    ("node-feat.csv", "1,2\n3,x\n", "node-feat.csv, line 2: 'x'"), ("node-feat.csv", "1,2\n3,nan\n", "line 2: the value 'nan'"),
    ("node-feat.csv", "1,2\n3\n", "node-feat.csv, line 2"), ("node-feat.csv", "1,2\n3,4\n", "has 2 rows"),
    ("node-label.csv", "0.5\n" * 41, "label 0.5"), ("split/given/test.csv", "99\n", "not there"),
    ("split/given/test.csv", "0\n1\n0\n", "test.csv, line 3: node 0 twice"),
    ("split/given/test.csv", "0\n", "two of train, val and test")])
def test_bad_ogb_tables(tmp_path, capsys, name, text, words):
    folder = sound(tmp_path, "ogb")
    (folder / f"{name}.gz").unlink()
    (folder / name).write_text(text)
    assert words in refused(tmp_path, capsys, "ogb", folder)


@pytest.mark.parametrize("name, value, words", [
    ("class_map.json", {"41": 0}, "node '41'"), ("class_map.json", {"x": 0}, "node 'x'"), ("class_map.json", [1], "no object"),
    ("class_map.json", {"0": 0, "1": [1]}, "the class [1]"), ("class_map.json", {"0": -5}, "label -5"),
    ("role.json", {"tr": [0]}, "tr, va and te"), ("role.json", {"tr": [0], "va": [0], "te": []}, "node 0 is in two"),
    ("role.json", {"tr": [77], "va": [], "te": []}, "0..40")])
def test_bad_graphsaint(tmp_path, capsys, name, value, words):
    folder = sound(tmp_path, "graphsaint")
    (folder / name).write_text(json.dumps(value))
    assert words in refused(tmp_path, capsys, folder)
    (folder / name).write_text('{"0":\n 1,,}')
    assert f"{name}, line 2: not valid JSON" in refused(tmp_path, capsys, folder)


# -- damage -----------------------------------------------------------------------------------------------------------
def every_file(path):
    return sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]


@pytest.mark.parametrize("format_name", [*FOLDERS, *FILES])
def test_files_cut_short(tmp_path, capsys, format_name):
    """Each file of a data set, cut in the middle, is refused or (rows of text) no longer fits the others."""
    path = sound(tmp_path, format_name)
    for file in every_file(path):
        whole = file.read_bytes()
        cut = whole[:len(whole) // 2]
        if file.name in ("num-edge-list.csv.gz", "nodes.csv", "ind.sound.test.index") or len(cut) < 3:
            continue
        file.write_bytes(cut)
        refused(tmp_path, capsys, format_name.split("-")[0] if format_name.startswith("npz") else format_name, path)
        file.write_bytes(whole)


@pytest.mark.parametrize("format_name", [*FOLDERS, *FILES])
def test_files_of_noise_and_empty_files(tmp_path, capsys, format_name):
    path = sound(tmp_path, format_name)
    noise = np.random.default_rng(0).integers(0, 256, 500).astype(np.uint8).tobytes()
    reader = format_name.split("-")[0] if format_name.startswith("npz") else format_name
    for file in every_file(path):
        whole = file.read_bytes()
        if file.name == "num-edge-list.csv.gz":
            continue
        file.write_bytes(noise)
        refused(tmp_path, capsys, reader, path)
        if "split" not in file.parts:
            file.write_bytes(b"")
            assert "empty" in refused(tmp_path, capsys, reader, path)
        file.write_bytes(whole)


def test_gzip_cut_short_says_so(tmp_path, capsys):
    packed = gzip.compress("\n".join(f"{k},{k + 1}" for k in range(50_000)).encode())
    (tmp_path / "edges.csv.gz").write_bytes(packed[:len(packed) // 2])
    assert "cut short" in refused(tmp_path, capsys, tmp_path / "edges.csv.gz")


def test_missing_files(tmp_path, capsys):
    output = str(tmp_path / "g.h5")
    for arguments in (["nowhere.csv"], ["csv", "nowhere.csv"], [str(tmp_path)]):
        assert main(["import", *arguments, "-o", output]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    for name in ("feats.npy", "role.json"):
        folder = sound(tmp_path / name, "graphsaint") if (tmp_path / name).mkdir() is None else None
        (folder / name).unlink()
        assert main(["import", str(folder), "-o", output]) == 2
        assert f"{name}: no such file" in capsys.readouterr().err
    assert main(["import", str(sound(tmp_path, "npz")), "-o", str(tmp_path / "no" / "g.h5")]) == 2
    assert "no folder" in capsys.readouterr().err


# -- hostile files ----------------------------------------------------------------------------------------------------
class Attack:
    """A pickle that runs a command when it is loaded."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def attacks(mark):
    """Pickles that would create the file `mark`."""
    command = f"touch {mark}"
    yield pickle.dumps(Attack(os.system, command), protocol=2)
    yield pickle.dumps(Attack(os.system, command), protocol=4)
    yield f"cos\nsystem\n(S'{command}'\ntR.".encode()
    yield f"cposix\nsystem\n(S'{command}'\ntR.".encode()
    yield f"(S'{command}'\nios\nsystem\n.".encode()
    yield f"c__builtin__\neval\n(S'__import__(\"os\").system(\"{command}\")'\ntR.".encode()
    yield f"cnumpy\n_core.os.system\n(S'{command}'\ntR.".encode()
    yield pickle.dumps({0: [Attack(eval, f"open({str(mark)!r}, 'w')")]}, protocol=2)
    yield pickle.dumps(Attack(open, str(mark), "w"))


def test_no_pickle_runs_anything(tmp_path, capsys):
    path = sound(tmp_path, "planetoid")
    mark = tmp_path / "pwned"
    for number, attack in enumerate(attacks(mark)):
        for part in ("graph", "x", "ally"):
            file = path / f"ind.sound.{part}"
            whole = file.read_bytes()
            file.write_bytes(attack)
            assert "refused" in refused(tmp_path, capsys, path), number
            assert not mark.exists(), number
            file.write_bytes(whole)
    # The attacks are real: the plain unpickler runs the first.
    pickle.loads(next(iter(attacks(mark))))
    assert mark.exists()


def test_no_torch_file_runs_anything(tmp_path, capsys):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("torch_geometric", reason="PyG is not installed")
    mark = tmp_path / "pwned"
    torch.save({"edge_index": Attack(os.system, f"touch {mark}")}, tmp_path / "data.pt")
    assert "refused" in refused(tmp_path, capsys, tmp_path / "data.pt") and not mark.exists()


@pytest.mark.parametrize("value", [np.array([{"a": 1}], object), np.array(["text"]), 5, "text", [1, 2], {1, 2}])
def test_pickles_of_other_things(tmp_path, value):
    (tmp_path / "p").write_bytes(pickle.dumps(value, protocol=2))
    with pytest.raises(FileError, match="expected"):
        read_pickle(tmp_path / "p")


def test_pickles_that_lie_about_their_size(tmp_path):
    array = np.arange(10, dtype=np.int32)
    data = pickle.dumps(array, protocol=2)
    (tmp_path / "p").write_bytes(data)
    np.testing.assert_array_equal(read_pickle(tmp_path / "p"), array)
    (tmp_path / "p").write_bytes(data.replace(b"K\n\x85", b"K\x0b\x85"))
    with pytest.raises(FileError, match="does not fit"):
        read_pickle(tmp_path / "p")
    (tmp_path / "p").write_bytes(b"\x80\x02]r\xff\xff\xff\x7f.")       # a memo entry that would take 16 GiB
    with pytest.raises(FileError, match="2147483647"):
        read_pickle(tmp_path / "p")


def test_sparse_pickles_with_wrong_columns(tmp_path):
    from scipy.sparse import csr_matrix
    matrix = csr_matrix(np.eye(4))
    matrix.indices[2] = 77
    (tmp_path / "p").write_bytes(pickle.dumps(matrix, protocol=2))
    with pytest.raises(FileError, match="sound CSR"):
        read_pickle(tmp_path / "p")


def npy_header(shape, dtype="<f8"):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": dtype, "fortran_order": False, "shape": shape})
    return stream.getvalue()


def test_zip_bombs(tmp_path, capsys, monkeypatch):
    from hpcgcn.formats import archive as module
    assert module.LARGE_BYTES >= 1 << 30, "small files may be as dense as they like"
    monkeypatch.setattr(module, "LARGE_BYTES", 10 << 20)
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("indptr.npy", "w", force_zip64=True) as member:
        member.write(npy_header((2 << 20,)))
        member.write(bytes(16 << 20))
    assert os.path.getsize(path) < 1 << 16
    assert "zip bomb" in refused(tmp_path, capsys, "npz", path)


def test_headers_that_lie(tmp_path):
    path = tmp_path / "lie.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("indptr.npy", npy_header((10 ** 15,)) + bytes(80))
        archive.writestr("objects.npy", npy_header((1,), "|O") + pickle.dumps("x"))
    with Archive(path) as archive:
        with pytest.raises(FileError, match="expected both to agree"):
            archive["indptr"]
        with pytest.raises(FileError, match="could run code"):
            archive["objects"]
        with pytest.raises(FileError, match="no array 'indices'"):
            archive["indices"]


def test_a_zip_directory_that_lies(tmp_path):
    """A member that claims to be small gives no more than it claims."""
    path = tmp_path / "lie.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", npy_header((1000,)) + bytes(8000))
    data = bytearray(path.read_bytes())
    size = len(npy_header((1000,))) + 8000
    at = data.rindex(struct.pack("<I", size))
    data[at:at + 4] = struct.pack("<I", 200)
    path.write_bytes(data)
    with Archive(path) as archive, pytest.raises(FileError, match="expected"):
        archive["a"]


@pytest.mark.parametrize("name", ["../indptr.npy", "/etc/indptr.npy", "a/../../b.npy", "..\\b.npy"])
def test_archive_members_that_climb_out(tmp_path, capsys, name):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr(name, npy_header((0,)))
    assert "leads out" in refused(tmp_path, capsys, "npz", tmp_path / "x.npz")


def test_paths_that_climb_out(tmp_path, capsys):
    folder = sound(tmp_path, "ogb")
    assert "leads out" in refused(tmp_path, capsys, folder, "--name", "../../..")
    (folder / "node-feat.csv.gz").rename(tmp_path / "elsewhere.csv.gz")
    (folder / "node-feat.csv.gz").symlink_to(tmp_path / "elsewhere.csv.gz")
    assert "leads out" in refused(tmp_path, capsys, folder)
    other = tmp_path / "p"
    other.mkdir()
    planetoid = sound(other, "planetoid")
    assert "leads out" in refused(tmp_path, capsys, planetoid, "--name", "x/../../../y")
    with pytest.raises(FileError, match="leads out"):
        inside(tmp_path, "/etc/passwd")
    assert inside(tmp_path, "a", "b") == str(tmp_path / "a" / "b")


@pytest.mark.parametrize("name, change", [
    ("y", lambda a: a[:5]), ("y", lambda a: a + 0.5), ("indices", lambda a: a + 100), ("indices", lambda a: -1 - a),
    ("indptr", lambda a: a[::-1]), ("indptr", lambda a: a.astype(float)), ("x", lambda a: a[:3]), ("x", lambda a: a * np.nan),
    ("train", lambda a: ~a), ("train", lambda a: a[:3]), ("node_names", lambda a: np.zeros((2, 2)))])
def test_arrays_that_do_not_fit(tmp_path, capsys, name, change):
    path = sound(tmp_path, "npz")
    with np.load(path) as archive:
        arrays = dict(archive)
    arrays[name] = change(arrays.get(name))
    np.savez(path, **arrays)
    output = tmp_path / "g.h5"
    assert main(["import", str(path), "-o", str(output)]) == 2
    assert capsys.readouterr().err.count("\n") == 1 and not output.exists()


def test_an_interrupted_import_leaves_nothing(tmp_path, monkeypatch):
    (tmp_path / "edges.csv").write_text("0,1\n1,2\n")
    from hpcgcn.graph import store

    def interrupted(*_, **__):
        raise KeyboardInterrupt
    monkeypatch.setattr(store, "write_contents", interrupted)
    assert main(["import", str(tmp_path / "edges.csv"), "-o", str(tmp_path / "g.h5")]) == 130
    assert [p.name for p in tmp_path.iterdir()] == ["edges.csv"]


@pytest.mark.parametrize("format_name", [*FOLDERS, *FILES])
def test_changed_bytes_never_end_in_a_traceback(tmp_path, capsys, format_name):
    """Files with a few bytes changed are imported or refused with one message; nothing else, and nothing is left behind."""
    path = sound(tmp_path, format_name)
    reader = format_name.split("-")[0] if format_name.startswith("npz") else format_name
    rng = np.random.default_rng(5)
    output = tmp_path / "results" / "g.h5"
    output.parent.mkdir()
    for file in every_file(path):
        whole = file.read_bytes()
        for _ in range(6 if format_name == "pyg" else 15):
            data = bytearray(gzip.decompress(whole) if file.suffix == ".gz" else whole)
            for _ in range(int(rng.integers(1, 4))):
                if data:
                    data[rng.integers(len(data))] = rng.choice([0, 255, 45, 48, 57, 44, 10, int(rng.integers(256))])
            file.write_bytes(gzip.compress(bytes(data), 1) if file.suffix == ".gz" else bytes(data))
            code = main(["import", reader, str(path), "-o", str(output)])
            message = capsys.readouterr().err
            assert code == 0 or (code == 2 and message.startswith("hpcgcn: ") and message.count("\n") == 1), (file.name, message)
            assert [p.name for p in output.parent.iterdir()] == (["g.h5"] if code == 0 else [])
            output.unlink(missing_ok=True)
        file.write_bytes(whole)
