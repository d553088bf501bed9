"""Files that claim to be ours, with other attributes or values: one message, whatever is done with
them."""


import h5py
import numpy as np
import pytest
from graphs import random_graph
from hdf5_kinds import KINDS, TRAIN, assert_refused, damaged, placed, some_of, with_data

from hpcgcn.cli import main
from hpcgcn.errors import FileError
from hpcgcn.graph.store import read_graph, write_graph, write_partition
from hpcgcn.info.verify import verify

pytestmark = pytest.mark.usefixtures("no_waiting")


DEEP = "[" * 10_000 + "]" * 10_000
VALUES = {
    "array": np.arange(3),
    "null": h5py.Empty("f4"),
    "compound": np.zeros((), [("a", "i4"), ("b", "f4")]),
    "enum": None,
    "reference": None,
    "complex": 1 + 2j,
    "not UTF-8": np.bytes_(b"\xff\xfe\xfd"),
}


def set_attribute(file, name, what):
    file.attrs.pop(name)
    if what == "enum":
        file.attrs.create(name, 1, dtype=h5py.enum_dtype({"RED": 1}))
    elif what == "reference":
        file.attrs.create(name, file.ref, dtype=h5py.ref_dtype)
    elif what != "missing":
        file.attrs[name] = VALUES[what]


OPTIONAL = ("creator", "created", "command", "checksum", "source_uuid", "run_uuid")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["missing", *VALUES])
def test_attributes_of_another_type(what, kind, sound, tmp_path, capsys):
    with h5py.File(sound[kind]) as file:
        names = [name for name in file.attrs if name not in ("format", "version")]
    if what == "missing":
        may_be = OPTIONAL if kind == "predictions" else OPTIONAL[:4]
        names = [
            name for name in names if name not in (*may_be, "multilabel" if kind == "model" else "")
        ]
    if kind == "model":
        names.remove("step")  # what tells a model from an exchange
    for number, name in enumerate(
        some_of(names, list(VALUES).index(what)) if what in VALUES else names
    ):
        (tmp_path / str(number)).mkdir()
        path = placed(kind, sound, tmp_path / str(number))
        with h5py.File(path, "r+") as file:
            set_attribute(file, name, what)
        assert_refused(kind, path, capsys, f"the attribute {name} is", commands=number == 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "[]",
        "null",
        "{",
        DEEP,
        '{"a": ' + "9" * 10_000 + "}",
        r'{"a": "\ud800"}',
        '{"a":' * 30 + "1" + "}" * 30,
    ],
    ids=["empty", "number", "list", "null", "cut", "deep", "long number", "surrogate", "nested"],
)
def test_settings_that_are_no_object(kind, text, sound, tmp_path, capsys):
    path = placed(kind, sound, tmp_path)
    with h5py.File(path, "r+") as file:
        file.attrs["settings"] = text
    assert_refused(
        kind,
        path,
        capsys,
        "the attribute settings is .*expected a string of JSON that is an object",
    )


@pytest.mark.parametrize("kind", ["graph", "partition"])
@pytest.mark.parametrize(
    "name, value",
    [
        ("n_nodes", 40),
        ("n_nodes", -1),
        ("n_nodes", 2**40),
        ("n_edges", 0),
        ("n_features", 2**40),
        ("n_classes", 0),
        ("n_classes", 10**9),
        ("n_splits", 2),
        ("multilabel", True),
        ("sparse_features", True),
        ("feature_dtype", "float16"),
        ("feature_dtype", "\x1b[31m"),
        ("split_counts", "[1, 2]"),
        ("split_counts", "[]"),
        ("directed", "no"),
    ],
)
def test_headers_that_do_not_fit(kind, name, value, sound, tmp_path, capsys):
    path = placed(kind, sound, tmp_path)
    with h5py.File(path, "r+") as file:
        file.attrs[name] = value
    assert main(["info", str(path)]) == 2
    shown = capsys.readouterr()
    assert name in shown.out and "\x1b" not in shown.out
    if name != "split_counts" or value == "x":  # which no command but info needs
        assert_refused(kind, path, capsys, name)


@pytest.mark.parametrize("name", ["epoch", "step", "best_epoch"])
@pytest.mark.parametrize("value", [2**53 + 1, 2**63, -1])
def test_counts_beyond_every_epoch(name, value, sound, tmp_path, capsys):
    path = placed("model", sound, tmp_path)
    with h5py.File(path, "r+") as file:
        file.attrs[name] = np.uint64(value) if value > 0 else np.int64(value)
    assert main(["info", str(path)]) == 2
    assert name in capsys.readouterr().out
    assert_refused("model", path, capsys, name)


def test_extra_that_is_no_object(sound, tmp_path, capsys):
    for number, text in enumerate(
        [b"7", b"{", b"\xff", DEEP.encode(), b'{"class_names": 7}', b'{"class_names": [1, 2]}']
    ):
        (tmp_path / str(number)).mkdir()
        path = placed("graph", sound, tmp_path / str(number))
        damaged(path, "extra", with_data(np.frombuffer(text, np.uint8)))
        assert_refused("graph", path, capsys, "extra")


def test_names_that_are_no_text(sound, tmp_path, capsys):
    path = placed("graph", sound, tmp_path)
    with h5py.File(path, "r+") as file:
        file["node_names"][3] = b"\xff"
    assert_refused("graph", path, capsys, "node_names")


def test_more_columns_than_the_file_could_use(tmp_path, capsys):
    from graphs import sparse_features

    write_graph(tmp_path / "g.h5", random_graph(features=sparse_features()))
    with h5py.File(tmp_path / "g.h5", "r+") as file:
        file["features"].attrs["n_columns"] = file.attrs["n_features"] = 10**9
    assert_refused("graph", tmp_path / "g.h5", capsys, "n_features")


@pytest.mark.parametrize(
    "ids",
    [
        lambda old: np.zeros_like(old),
        lambda old: old - 1,
        lambda old: old + 1,
        lambda old: np.where(old == 3, 4, old),
        lambda old: np.full_like(old, 2**62),
    ],
)
def test_original_ids_that_are_no_permutation(ids, sound, tmp_path, capsys):
    path = placed("partition", sound, tmp_path)
    with h5py.File(path, "r+") as file:
        file["original_ids"][...] = ids(file["original_ids"][...])
        del file["original_ids"].attrs["crc32"], file.attrs["checksum"]
    assert any("original_ids are not a permutation" in problem for problem in verify(path))
    with pytest.raises(FileError, match="original_ids"):
        read_graph(path)
    assert main(["train", str(path), *TRAIN, "--output", str(tmp_path / "runs")]) == 2
    assert "original_ids" in capsys.readouterr().err


def test_edges_one_way_in_a_partition(tmp_path, capsys):
    graph = random_graph(directed=True)
    write_partition(tmp_path / "q.h5", graph, np.zeros(41, int), settings={})
    with h5py.File(tmp_path / "q.h5", "r+") as file:
        file.attrs["directed"] = False
    assert main(["train", str(tmp_path / "q.h5"), *TRAIN, "--output", str(tmp_path / "runs")]) == 2
    assert "one way only" in capsys.readouterr().err
