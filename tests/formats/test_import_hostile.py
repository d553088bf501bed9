"""Files that are damaged or hostile: one message with the file and what was expected; nothing
written, nothing run."""

import gzip
import io
import os
import pickle
import signal
import struct
import subprocess
import sys
import time
import zipfile

import numpy as np
import pytest
from refusals import FILES, FOLDERS, refused, sound

from hpcgcn.cli import main
from hpcgcn.errors import FileError
from hpcgcn.formats.archive import Archive
from hpcgcn.formats.files import inside
from hpcgcn.formats.unpickle import read_pickle


# -- damage ----------------------------------------------------------------------------------------
def every_file(path):
    return sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]


@pytest.mark.parametrize("format_name", [*FOLDERS, *FILES])
def test_files_cut_short(tmp_path, capsys, format_name):
    """Each file of a data set, cut in the middle, is refused or (rows of text) no longer fits the
    others."""
    path = sound(tmp_path, format_name)
    for file in every_file(path):
        whole = file.read_bytes()
        cut = whole[:len(whole) // 2]
        if file.name in ("num-edge-list.csv.gz", "nodes.csv",
                         "ind.sound.test.index") or len(cut) < 3:
            continue
        file.write_bytes(cut)
        refused(tmp_path, capsys,
                format_name.split("-")[0] if format_name.startswith("npz") else format_name, path)
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


@pytest.mark.parametrize("text", [b"0,1\n", b"a,b\n"])
def test_text_that_repeats_itself_for_megabytes(tmp_path, capsys, text):
    """It is refused after the first of them: names are read line by line, for minutes."""
    member = gzip.compress(text * (1 << 20), 9)
    (tmp_path / "edges.csv.gz").write_bytes(member * 200)
    assert os.path.getsize(tmp_path / "edges.csv.gz") < 2 << 20
    assert "bytes unpack to" in refused(tmp_path, capsys, "csv", tmp_path / "edges.csv.gz")


def test_gzip_cut_short_says_so(tmp_path, capsys):
    packed = gzip.compress("\n".join(f"{k},{k + 1}" for k in range(50_000)).encode())
    (tmp_path / "edges.csv.gz").write_bytes(packed[:len(packed) // 2])
    assert "cut short" in refused(tmp_path, capsys, tmp_path / "edges.csv.gz")


def test_a_shape_of_millions_of_values_is_not_printed(tmp_path, capsys):
    path = sound(tmp_path, "npz-gnn-benchmark")
    with np.load(path) as archive:
        arrays = dict(archive)
    dense = arrays.pop("attr_matrix", None)
    if dense is not None:
        arrays |= {"attr_data": dense.ravel(), "attr_indices": np.arange(dense.size),
                   "attr_indptr": np.arange(len(dense) + 1) * dense.shape[1]}
    np.savez(path, **(arrays | {"attr_shape": np.zeros(10_000_000, bool)}))
    message = refused(tmp_path, capsys, path)
    assert "attr_shape is an array of 10000000 values" in message and len(message) < 1000


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


# -- hostile files ---------------------------------------------------------------------------------
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


@pytest.mark.parametrize("value", [np.array([{"a": 1}], object), np.array(["text"]), 5, "text",
                                   [1, 2], {1, 2}])
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
    # a memo entry that would take 16 GiB
    (tmp_path / "p").write_bytes(b"\x80\x02]r\xff\xff\xff\x7f.")
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
    np.lib.format.write_array_header_1_0(stream,
                                         {"descr": dtype, "fortran_order": False, "shape": shape})
    return stream.getvalue()


def test_zip_bombs(tmp_path, capsys, monkeypatch):
    from hpcgcn.formats import files
    assert files.LARGE_BYTES >= 1 << 26, "small files may be as dense as they like"
    monkeypatch.setattr(files, "LARGE_BYTES", 10 << 20)
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w",
                         zipfile.ZIP_DEFLATED) as archive, archive.open("indptr.npy", "w",
                                                                        force_zip64=True) as member:
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
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("indptr.npy", npy_header((True, 3)) + bytes(24))
    with Archive(path) as archive, pytest.raises(FileError, match="True, 3"):
        archive["indptr"]


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
    ("y", lambda a: a[:5]), ("y", lambda a: a + 0.5), ("indices", lambda a: a + 100),
    ("indices", lambda a: -1 - a), ("indptr", lambda a: a[::-1]),
    ("indptr", lambda a: a.astype(float)), ("x", lambda a: a[:3]), ("x", lambda a: a * np.nan),
    ("train", lambda a: ~a), ("train", lambda a: a[:3]),
    ("node_names", lambda a: np.zeros((2, 2)))])
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


@pytest.mark.slow
@pytest.mark.parametrize("format_name", [*FOLDERS, *FILES])
def test_changed_bytes_never_end_in_a_traceback(tmp_path, capsys, format_name):
    """Files with a few bytes changed are imported or refused with one message; nothing else, and
    nothing is left behind."""
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
                    data[rng.integers(len(data))] = rng.choice([0, 255, 45, 48, 57, 44, 10,
                                                                int(rng.integers(256))])
            file.write_bytes(gzip.compress(bytes(data), 1) if file.suffix == ".gz" else bytes(data))
            code = main(["import", reader, str(path), "-o", str(output)])
            message = capsys.readouterr().err
            assert code == 0 or (code == 2 and message.startswith("hpcgcn: ")
                                 and message.count("\n") == 1), (file.name, message)
            assert [p.name for p in output.parent.iterdir()] == (["g.h5"] if code == 0 else [])
            output.unlink(missing_ok=True)
        file.write_bytes(whole)


@pytest.mark.parametrize("part, change, words", [
    ("ally", lambda a: a * np.nan, "row 0"), ("ally", lambda a: a * 0 + 1, "at most one 1"),
    ("graph", lambda g: {**g, 0: [1.5]}, "lists of node numbers"),
    ("allx", lambda m: m * np.nan, "NaN")])
def test_planetoid_parts_that_mean_nothing(tmp_path, capsys, part, change, words):
    path = sound(tmp_path, "planetoid")
    file = path / f"ind.sound.{part}"
    file.write_bytes(pickle.dumps(change(pickle.loads(file.read_bytes())), protocol=2))
    message = refused(tmp_path, capsys, path)
    assert words in message and str(path) in message


def test_a_test_node_twice(tmp_path, capsys):
    path = sound(tmp_path, "planetoid")
    (path / "ind.sound.test.index").write_text("30\n31\n30\n")
    assert "line 3: node 30 again, after line 1" in refused(tmp_path, capsys, path)


@pytest.mark.parametrize("name, change, words", [
    ("train", lambda a: a * 0.5, "true and false"),
    ("node_names", lambda a: np.array(["a"] * 41), "same name"),
    ("x", lambda a: a * np.nan, "NaN"), ("y", lambda a: np.full(41, 5_000_000), "5000000")])
def test_arrays_that_mean_nothing(tmp_path, capsys, name, change, words):
    path = sound(tmp_path, "npz")
    with np.load(path) as archive:
        arrays = dict(archive)
    np.savez(path, **{**arrays, name: change(arrays.get(name))})
    message = refused(tmp_path, capsys, path)
    assert words in message and str(path) in message


def test_a_torch_file_that_asks_for_bytes(tmp_path, capsys):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("torch_geometric", reason="PyG is not installed")
    torch.save({"edge_index": Attack(bytearray, 1 << 31)}, tmp_path / "d.pt")
    assert "it asks for bytearray" in refused(tmp_path, capsys, tmp_path / "d.pt")


@pytest.mark.parametrize("letter", [0x110000, 0x04000034, 0xffffffff, 0xd800])
def test_names_beyond_unicode(tmp_path, capsys, letter):
    path = sound(tmp_path, "npz")
    with np.load(path) as archive:
        arrays = dict(archive)
    names = np.array([f"node-{k}" for k in range(len(arrays["y"]))])
    names.view(np.uint32)[2] = letter
    np.savez(path, **arrays, node_names=names)
    assert "UTF-8" in refused(tmp_path, capsys, path)


def test_torch_files_larger_than_they_are(tmp_path, capsys, monkeypatch):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("torch_geometric", reason="PyG is not installed")
    torch.save({"edge_index": torch.zeros(1, 1).long().expand(2, 10 ** 11)}, tmp_path / "d.pt")
    assert "expanded tensor" in refused(tmp_path, capsys, tmp_path / "d.pt")
    torch.save({"edge_index": torch.tensor([[0], [1]]), "num_nodes": 2 * 10 ** 9},
               tmp_path / "d.pt")
    assert "announced" in refused(tmp_path, capsys, tmp_path / "d.pt")
    from hpcgcn.formats import files
    monkeypatch.setattr(files, "LARGE_BYTES", 1 << 20)
    with zipfile.ZipFile(tmp_path / "d.pt", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data/0", bytes(8 << 20))
    assert "zip bomb" in refused(tmp_path, capsys, tmp_path / "d.pt")


def test_a_dgl_file_that_makes_dgl_abort(tmp_path, capsys, monkeypatch):
    """DGL's reader ends the process on some damaged files; here a stand-in does."""
    import importlib.util
    import subprocess
    (tmp_path / "g.dgl").write_bytes(b"damaged")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(subprocess, "run",
                        lambda *_, **__: subprocess.CompletedProcess([], -6, "", ""))
    assert "DGL ended with the code -6" in refused(tmp_path, capsys, tmp_path / "g.dgl")


def test_sigterm_leaves_nothing(tmp_path):
    edges, output = tmp_path / "edges.csv", tmp_path / "results"
    output.mkdir()
    edges.write_text("a,b\n" * 2_000_000)
    command = ["import", str(edges), "--ids", "name", "-o", str(output / "g.h5")]
    process = subprocess.Popen([sys.executable, "-m", "hpcgcn", *command])
    deadline = time.monotonic() + 30
    while not list(output.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert list(output.iterdir())
    process.terminate()
    assert process.wait(30) == -signal.SIGTERM and list(output.iterdir()) == []
