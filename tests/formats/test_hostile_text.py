"""Small files that ask for much, and text of files that reaches messages and terminals."""

import gzip
import pickle
import zipfile
import zlib

import h5py
import numpy as np
import pytest
from graphs import random_graph
from refusals import refused, sound

from hpcgcn.cli import main
from hpcgcn.config import make_config
from hpcgcn.config.toml import read_toml
from hpcgcn.errors import MOST_MESSAGE, ConfigError, FileError, HpcgcnError, printable
from hpcgcn.formats.archive import read_npy
from hpcgcn.formats.pickle_size import check_pickle
from hpcgcn.formats.unpickle import read_pickle
from hpcgcn.graph.store import write_graph

ESCAPE = "\x1b[31mred\x1b[0m\x07"


# -- messages --------------------------------------------------------------------------------------
def test_messages_are_short_and_on_one_line():
    message = str(HpcgcnError("begin " + "x" * 100_000 + "\n" + ESCAPE + " end"))
    assert len(message) < MOST_MESSAGE + 100 and message.isprintable()
    assert message.startswith("begin ") and message.endswith(" end"), "the remedy is at the end"


def test_printable_leaves_words_of_all_languages_alone():
    assert printable("Zürich 東京 naïve") == "Zürich 東京 naïve"
    assert printable("a\nb\u202e\x1b") == "a\\nb\\u202e\\x1b"


def test_no_text_of_a_file_steers_the_terminal(tmp_path, capsys):
    extra = {"class_names": [ESCAPE, "b", "c"], "id_column": ESCAPE}
    write_graph(tmp_path / "g.h5", random_graph(source=ESCAPE, extra=extra))
    main(["info", str(tmp_path / "g.h5")])
    printed = capsys.readouterr()
    assert "\\x1b[31mred" in printed.out
    assert "\x1b" not in printed.out + printed.err and "\x07" not in printed.out + printed.err


def test_names_of_datasets_are_shown_without_escape_codes(tmp_path, capsys):
    write_graph(tmp_path / "g.h5", random_graph())
    with h5py.File(tmp_path / "g.h5", "r+") as file:
        file.create_dataset(ESCAPE, data=np.arange(3))
    main(["info", str(tmp_path / "g.h5")])
    printed = capsys.readouterr()
    assert "\x1b" not in printed.out + printed.err


# -- names with line feeds -------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["a\nb", ESCAPE, "a\rb", "a\x00b"])
def test_names_of_arrays_with_control_characters(tmp_path, capsys, name):
    path = sound(tmp_path, "npz")
    with np.load(path) as archive:
        arrays = dict(archive)
    names = np.array([f"n{k}" for k in range(40)] + [name])
    np.savez(path, **{**arrays, "node_names": names})
    message = refused(tmp_path, capsys, path)
    assert "node 40" in message and "control characters" in message


def test_text_tables_with_control_characters(tmp_path, capsys):
    (tmp_path / "edges.csv").write_text(f"source,target\n{ESCAPE},b\n")
    message = refused(tmp_path, capsys, tmp_path / "edges.csv")
    assert "line 2: the control character '\\x1b'" in message


# -- TOML ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "text, words",
    [(b"x = " + b"[" * 50_000, "brackets"), (b"x = " + b"{a=" * 50_000, "brackets"),
     (b"hidden = " + b"9" * 5000, "4300"), (b"lr = 0x" + b"f" * 5000, "64 bits"),
     (b"hidden = 9223372036854775808", "64 bits"), (b"lr = \xff\xfe", "not valid TOML"),
     (b"y" * 100_000 + b" = 3", "unknown key"),
     (b"model = '" + b"z" * 100_000 + b"'", "choose one"),
     (b"[" + b"t" * 100_000 + b"]", "grouped in tables"), (b"x" * (2 << 20), "bytes"),
     (b'"\\u001b[2J" = 1', "unknown key")],
)
def test_damaged_toml(tmp_path, text, words):
    (tmp_path / "run.toml").write_bytes(text)
    with pytest.raises(ConfigError, match=words) as caught:
        make_config(toml_path=str(tmp_path / "run.toml"))
    message = str(caught.value)
    assert "run.toml" in message and len(message) < 700 and message.isprintable()


def test_toml_that_is_no_file(tmp_path):
    import os

    os.mkfifo(tmp_path / "pipe.toml")
    for path in (tmp_path, tmp_path / "pipe.toml"):
        with pytest.raises(ConfigError, match="no file"):
            read_toml(str(path))


# -- pickles that never end ------------------------------------------------------------------------
DOUBLED = b"}" + b")" + b"2\x86" * 140 + b"K\x01s."  # the hash of the key takes 2^140 steps
ENDLESS = {"doubled tuple": DOUBLED,
           "doubled by the memo": b"})q\x00" + b"h\x00h\x00\x86q\x00" * 60 + b"K\x01s.",
           "deep tuple": b"})" + b"\x85" * 100_000 + b"K\x01s.",
           "deep list": b"]" * 3000 + b"a" * 2999 + b".",
           "doubled lists": b"]q\x00" + b"]q\x01h\x00ah\x00aq\x00" * 60 + b"."}


@pytest.mark.parametrize("name", ENDLESS)
def test_pickles_of_values_without_end(tmp_path, name):
    (tmp_path / "p").write_bytes(ENDLESS[name])
    with pytest.raises(FileError, match="far larger than the file, or too deep"):
        read_pickle(tmp_path / "p")


@pytest.mark.parametrize("n_rows, words",
                         [(2000, "far larger than the file"), (30, "more of them than fit")])
def test_rows_that_are_all_the_same_list(tmp_path, n_rows, words):
    row = b"]q\x00(" + b"K\x01" * n_rows + b"e0"
    items = b"".join(b"M" + k.to_bytes(2, "little") + b"h\x00" for k in range(n_rows))
    (tmp_path / "p").write_bytes(b"}" + row + b"(" + items + b"u.")
    with pytest.raises(FileError, match=words):
        read_pickle(tmp_path / "p")


def test_sound_pickles_pass_the_measure():
    rows = {k: list(range(k % 7)) for k in range(3000)}
    for value in (rows, np.arange(1000), {"a": ([1, 2], (3, 4))}):
        for protocol in range(6):
            data = pickle.dumps(value, protocol)
            check_pickle(data, len(data))


def test_a_torch_file_with_such_a_pickle(tmp_path, capsys):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    with zipfile.ZipFile(tmp_path / "w.pt", "w") as file:
        file.writestr("archive/data.pkl", b"\x80\x02" + DOUBLED)
        file.writestr("archive/version", "3\n")
    assert main(["weights", "import", str(tmp_path / "w.pt")]) == 2
    assert "far larger than the file" in capsys.readouterr().err


def test_torch_whose_loader_can_be_deceived_is_not_used(tmp_path, capsys, monkeypatch):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch.save({"weight": torch.zeros(3)}, tmp_path / "w.pt")
    for release, fine in (("2.5.1+cu124", False), ("1.13.1", False), ("2.6.0", True),
                          ("2.10.1", True), ("3.0", True)):
        monkeypatch.setattr(torch, "__version__", release)
        assert main(["weights", "import", str(tmp_path / "w.pt")]) == 2
        message = capsys.readouterr().err
        assert ("2.6 or later" in message) != fine, message


# -- bombs and headers -----------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("text", [b"0,1\n", b"\n", b" "])
def test_gzip_bombs(tmp_path, capsys, text):
    packer = zlib.compressobj(9, wbits=31)
    member = packer.compress(text * ((4 << 20) // len(text))) + packer.flush()
    (tmp_path / "edges.csv.gz").write_bytes(member * 200)  # 0.8 MB of 0.8 GB
    message = refused(tmp_path, capsys, tmp_path / "edges.csv.gz")
    assert "unpack" in message or "a line of more than" in message


def test_dense_text_that_is_not_large_is_no_bomb(tmp_path):
    lines = "".join(f"{k},{k + 1}\n" for k in range(20_000)) + "\n" * 3_000_000
    (tmp_path / "edges.csv.gz").write_bytes(gzip.compress(lines.encode(), 9))
    assert main(["import", str(tmp_path / "edges.csv.gz"), "-o", str(tmp_path / "g.h5")]) == 0


def npy(header: bytes, body: bytes = bytes(80)) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + body


@pytest.mark.parametrize(
    "header",
    [b"", b"{", b"(" * 5000, b"'" * 30,
     b"{'descr': '<i8', 'fortran_order': False, 'shape': (" + b"(" * 400,
     b"{'descr': '|O', 'fortran_order': False, 'shape': (10,), }", b'"""', b"1" * 5000,
     b"{'descr': '<i8', 'fortran_order': False, 'shape': (10000000000,), }",
     b"{'descr': '<i8', 'fortran_order': False, 'shape': (-10,), }",
     b"{'descr': 'S0', 'fortran_order': False, 'shape': (10000000000,), }",
     b"{'descr': [('a', '<i4'), ('a', '<i4')], 'fortran_order': False, 'shape': (10,), }",
     b"{'descr': '<U9999999999', 'fortran_order': False, 'shape': (1,), }"],
)
def test_headers_of_arrays_that_cannot_be_parsed(tmp_path, header):
    (tmp_path / "a.npy").write_bytes(npy(header))
    with pytest.raises(FileError, match="a.npy") as caught:
        read_npy(tmp_path / "a.npy")
    assert len(str(caught.value)) < 700
    from hpcgcn.formats.archive import Archive

    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        file.writestr("x.npy", npy(header))
    with Archive(tmp_path / "a.npz") as archive, pytest.raises(FileError, match="'x'"):
        archive["x"]


@pytest.mark.parametrize(
    "array",
    [np.arange(12).reshape(3, 4), np.asfortranarray(np.arange(12.0).reshape(3, 4)),
     np.zeros((0, 3)), np.float32(4), np.array(["ab", "c"])],
)
def test_sound_arrays_are_read_as_they_are(tmp_path, array):
    from hpcgcn.formats.archive import Archive

    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", x=array)
    with Archive(tmp_path / "a.npz") as archive:
        for found in (read_npy(tmp_path / "a.npy"), archive["x"]):
            np.testing.assert_array_equal(found, array)
            assert found.dtype == np.asarray(array).dtype


def test_pipes_are_not_read(tmp_path, capsys):
    import os

    os.mkfifo(tmp_path / "edges.csv")
    assert "no regular file" in refused(tmp_path, capsys, "csv", tmp_path / "edges.csv")


def test_weights_are_named_after_what_they_are(tmp_path, capsys):
    for name in ("x.pt", "x.pth", "x.bin", "x"):
        assert main(["weights", "export", "runs/none", "-o", str(tmp_path / name)]) == 2
        assert "ends in .safetensors" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_numbers_of_tensors_may_be_long(tmp_path, capsys):
    from safetensors.numpy import save_file

    name = "convs." + "9" * 5000 + ".lin.weight"
    save_file({name: np.zeros((3, 5), np.float32)}, tmp_path / "w.safetensors")
    assert main(["weights", "import", str(tmp_path / "w.safetensors")]) in (0, 2)
    assert len(capsys.readouterr().err) < 2000
