"""Files that claim to be ours, but are built otherwise: one message, whatever is done with them."""

import os
import re
import shutil

import h5py
import numpy as np
import pytest
from graphs import random_graph

from hpcgcn.cli import main
from hpcgcn.errors import FileError, HpcgcnError
from hpcgcn.files.datasets import all_datasets
from hpcgcn.graph.store import header, read_graph, read_part, write_graph, write_partition
from hpcgcn.info.verify import verify
from hpcgcn.train import checkpoint

DECLARED = 10**10


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """One sound file of every kind; {kind: path}."""
    folder = tmp_path_factory.mktemp("sound")
    graph = random_graph(
        node_names=np.array([f"n{k}" for k in range(41)]), extra={"class_names": ["a", "b", "c"]}
    )
    write_graph(folder / "g.h5", graph)
    write_partition(folder / "q.h5", graph, np.zeros(41, int), settings={})
    assert (
        main(
            [
                "train",
                str(folder / "g.h5"),
                "--epochs",
                "2",
                "--hidden",
                "4",
                "--checkpoint-every",
                "1",
                "--output",
                str(folder),
                "--name",
                "run",
                "--quiet",
            ]
        )
        == 0
    )
    assert (
        main(["predict", str(folder / "run"), str(folder / "g.h5"), "-o", str(folder / "p.h5")])
        == 0
    )
    exchange = folder / "exchange-0-of-1.h5"
    state = {
        "ids": np.arange(5),
        "n_averaged": np.array([3]),
        "received": np.ones((5, 4), np.float32),
    }
    checkpoint._write_exchanges(str(exchange), 2, {"1.forward": state}, "")
    return {
        "graph": folder / "g.h5",
        "partition": folder / "q.h5",
        "predictions": folder / "p.h5",
        "exchange": exchange,
        "model": folder / "run" / "checkpoints" / "epoch-000002" / "model.h5",
    }


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    """Without a launcher there is none that would lose a message."""
    monkeypatch.setattr("hpcgcn.cli.LAUNCHER_SECONDS", 0)
    monkeypatch.setattr("hpcgcn.mpi.world.LAUNCHER_SECONDS", 0)


KINDS = ("graph", "partition", "model", "exchange", "predictions")


def placed(kind, sound, folder):
    """A copy of a sound file, in a folder where the commands find what else they need."""
    shutil.copy(sound["graph"], folder / "g.h5")
    if kind not in ("model", "exchange"):
        shutil.copy(sound[kind], folder / "damaged.h5")
        return folder / "damaged.h5"
    shutil.copytree(sound["model"].parents[2], folder / "run")
    place = folder / "run" / "checkpoints" / "epoch-000002"
    if kind == "exchange":
        shutil.copy(sound[kind], place)
    return place / ("model.h5" if kind == "model" else sound[kind].name)


# -- what is done with a file of each kind, as a user or a script would


def read_all_parts(path):
    for rank in range(int(header(path)["n_parts"])):
        read_part(path, rank, 1)


def newest_is_older(path):
    """A damaged checkpoint is passed over for the one before it."""
    found = checkpoint.newest(str(path.parents[1]))
    assert found.endswith("epoch-000001"), found
    raise FileError("passed over")


LIBRARY = {
    "graph": [read_graph],
    "partition": [read_graph, read_all_parts],
    "model": [lambda path: checkpoint.load(str(path.parent)), newest_is_older],
    "exchange": [lambda path: checkpoint.load_exchanges(str(path.parent), 0, 1), newest_is_older],
    "predictions": [],
}

TRAIN = ["--epochs", "1", "--hidden", "4", "--quiet"]
COMMANDS = {
    "graph": lambda path: [
        ["partition", path, "-n", "2"],
        ["train", path, *TRAIN, "--output", f"{path}-runs"],
    ],
    "partition": lambda path: [["train", path, *TRAIN, "--output", f"{path}-runs"]],
    "model": lambda path: [
        ["evaluate", os.path.dirname(path), os.path.join(os.path.dirname(path), "../../../g.h5")]
    ],
    "exchange": lambda path: [],
    "predictions": lambda path: [],
}


def assert_refused(kind, path, capsys, mentions, commands=True):
    """info names it, the library raises our errors, commands end with 2 and one line."""
    assert main(["info", str(path)]) == 2
    shown = "".join(capsys.readouterr())
    assert re.search(mentions, shown), shown
    for use in LIBRARY[kind]:
        with pytest.raises(HpcgcnError):
            use(path)
    capsys.readouterr()
    for command in COMMANDS[kind](str(path)) if commands else []:
        assert main(command) == 2, command
        err = capsys.readouterr().err
        assert err.startswith("hpcgcn: ") and err.count("\n") == 1 and "Traceback" not in err, err
    assert not os.path.exists(f"{path}-runs")


# -- datasets


def as_type(dtype):
    """The same shape, of another type."""

    def change(file, name, old, shape):
        file.create_dataset(name, shape, dtype)

    return change


def with_data(array):
    """Another array."""

    def change(file, name, old, shape):
        file.create_dataset(name, data=array)

    return change


def virtual(file, name, old, shape):
    layout = h5py.VirtualLayout(shape, old.dtype)
    layout[...] = h5py.VirtualSource(file.filename, "other", shape, old.dtype)
    file.create_virtual_dataset(name, layout)


def external(file, name, old, shape):
    outside = f"{file.filename}.raw"
    with open(outside, "wb") as raw:
        raw.write(old.tobytes())
    file.create_dataset(name, shape, old.dtype, external=[(outside, 0, h5py.h5f.UNLIMITED)])


def on_a_pipe(file, name, old, shape):
    pipe = f"{file.filename}.pipe"
    if not os.path.exists(pipe):
        os.mkfifo(pipe)
    file.create_dataset(name, shape, old.dtype, external=[(pipe, 0, h5py.h5f.UNLIMITED)])


def compact(file, name, old, shape):
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_layout(h5py.h5d.COMPACT)
    made = h5py.h5d.create(
        file.id,
        name.encode(),
        h5py.h5t.py_create(old.dtype),
        h5py.h5s.create_simple(shape),
        settings,
    )
    h5py.Dataset(made)[...] = old


def linked(link):
    def change(file, name, old, shape):
        file[f"{name}-elsewhere"] = old
        file[name] = link(file, f"{name}-elsewhere")

    return change


CHANGES = {
    "missing": lambda file, name, old, shape: None,
    "group": lambda file, name, old, shape: file.create_group(name),
    "compound": as_type([("a", "<i8"), ("b", "<f4")]),
    "enum": as_type(h5py.enum_dtype({"A": 0, "B": 1})),
    "boolean": as_type("?"),
    "vlen": as_type(h5py.vlen_dtype(np.int32)),
    "text": as_type(h5py.string_dtype()),
    "opaque": as_type("V6"),
    "reference": as_type(h5py.ref_dtype),
    "array type": as_type(np.dtype(("<i4", (3,)))),
    "complex": as_type("<c16"),
    "float128": as_type(np.longdouble),
    "null": lambda file, name, old, shape: file.create_dataset(name, data=h5py.Empty(old.dtype)),
    "scalar": lambda file, name, old, shape: file.create_dataset(name, data=old.reshape(-1)[0]),
    "big endian": lambda file, name, old, shape: file.create_dataset(
        name, shape, ">u4" if old.dtype == np.int32 else ">i4"
    ),
    "declared": lambda file, name, old, shape: file.create_dataset(
        name, (DECLARED, *shape[1:]), old.dtype
    ),
    "chunks": lambda file, name, old, shape: file.create_dataset(name, data=old, chunks=shape),
    "compressed": lambda file, name, old, shape: file.create_dataset(
        name, data=old, chunks=shape, compression="gzip"
    ),
    "declared chunks": lambda file, name, old, shape: file.create_dataset(
        name, (DECLARED, *shape[1:]), old.dtype, chunks=shape
    ),
    "compact": compact,
    "external": external,
    "pipe": on_a_pipe,
    "virtual": virtual,
    "soft link": linked(lambda file, name: h5py.SoftLink(name)),
    "link to itself": lambda file, name, old, shape: file.__setitem__(
        name, h5py.SoftLink(f"/{name}")
    ),
    "external link": linked(lambda file, name: h5py.ExternalLink(file.filename, name)),
}


def damaged(path, name, change):
    """Put something else in the place of a dataset."""
    with h5py.File(path, "r+") as file:
        old = file[name][...]
        del file[name]
        change(file, name, old, old.shape)


def some_of(names, turn, most=3):
    """A few of the names, others at every turn."""
    return [names[(turn * most + k) % len(names)] for k in range(min(most, len(names)))]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", CHANGES)
def test_datasets_of_another_build(what, kind, sound, tmp_path, capsys):
    with h5py.File(sound[kind]) as file:
        names = [dataset.name for dataset in all_datasets(file) if dataset.size]
    optional = ("/node_names", "/extra", "/1.forward/received") if what == "missing" else ()
    names = [name for name in names if name not in optional and "/layout/" not in name]
    for number, name in enumerate(some_of(names, list(CHANGES).index(what))):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = placed(kind, sound, folder)
        damaged(path, name, CHANGES[what])
        assert_refused(
            kind,
            path,
            capsys,
            "best_epoch"
            if name == "/best_parameters" and what == "missing"
            else "it holds|classes"
            if kind == "predictions"
            else re.escape(name),
            commands=number == 0,
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "change, mentions",
    [
        (lambda old: np.concatenate([old, old[:1]]), ""),
        (lambda old: old[:-1], ""),
        (lambda old: old[None], ""),
        (lambda old: old.reshape(-1)[:0], ""),
        (lambda old: old.astype("<f8" if old.dtype == np.int64 else "<i8"), ""),
    ],
    ids=["longer", "shorter", "rank", "empty", "type"],
)
def test_arrays_of_another_shape(kind, change, mentions, sound, tmp_path, capsys):
    skipped = {"/extra", "/rate_state", "/1.forward/received", "/1.forward/ids"}
    with h5py.File(sound[kind]) as file:
        names = [
            dataset.name
            for dataset in all_datasets(file)
            if dataset.size and dataset.name not in skipped
        ]
    for number, name in enumerate(some_of([name for name in names if "/layout/" not in name], 0)):
        with h5py.File(sound[kind]) as file:
            if file[name].dtype.kind == "S" and change(np.zeros(3, np.int64)).dtype == np.float64:
                continue
        (tmp_path / str(number)).mkdir()
        path = placed(kind, sound, tmp_path / str(number))
        with h5py.File(path) as file:
            changed = change(file[name][...])
        damaged(path, name, with_data(changed))
        assert_refused(kind, path, capsys, "NOT SOUND", commands=number == 0)


# -- attributes

DEEP = "[" * 100_000 + "]" * 100_000
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


# -- what is no regular file, and what an HDF5 library would not survive


def test_pipes_and_devices_are_not_opened(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe.h5")
    for path in (tmp_path / "pipe.h5", "/dev/zero", "/dev/null"):
        assert main(["info", str(path)]) == 2
        assert "expected a regular file" in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_without_trailer_is_read(kind, sound, tmp_path):
    """As older releases wrote them, and as any HDF5 library leaves a file that it changed."""
    path = placed(kind, sound, tmp_path)
    whole = path.read_bytes()
    with h5py.File(path, "r+") as file:
        file.attrs["command"] = file.attrs["command"]
    assert b"hpcgcn trailer 1" in whole and b"hpcgcn trailer 1" not in path.read_bytes()
    assert verify(path) == []
    for use in LIBRARY[kind]:
        if use is not newest_is_older:
            use(path)


def test_older_checkpoints_have_no_checksums(sound, tmp_path):
    path = placed("model", sound, tmp_path)
    with h5py.File(path, "r+") as file:
        for dataset in all_datasets(file):
            del dataset.attrs["crc32"]
        del file.attrs["checksum"]
    assert checkpoint.load(str(path.parent)).epoch == 2
    assert checkpoint.newest(str(path.parents[1])) == str(path.parent)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_metadata_is_refused_or_harmless(kind, sound, tmp_path, capsys):
    """Without a trailer: no death, no loop, no exception; what is sound can be read."""
    path = placed(kind, sound, tmp_path)
    with h5py.File(path, "r+") as file:
        file.attrs["command"] = file.attrs["command"]
        data_at = min(dataset.id.get_offset() for dataset in all_datasets(file) if dataset.size)
    whole, rng = path.read_bytes(), np.random.default_rng(KINDS.index(kind))
    refused = 0
    for _ in range(40):
        changed = bytearray(whole)
        for place in rng.integers(0, data_at, rng.integers(1, 4)):
            changed[place] = rng.choice([0, 1, 127, 128, 255])
        path.write_bytes(changed)
        code = main(["info", str(path)])
        refused += code == 2
        for use in LIBRARY[kind] if code == 0 else []:
            if use is not newest_is_older:
                use(path)
    capsys.readouterr()
    assert refused


@pytest.mark.parametrize("kind", ["graph", "partition", "predictions"])
def test_any_bit_of_a_file_is_covered(kind, sound, tmp_path):
    """Metadata by the trailer, data by the checksums; only the mark of the trailer says nothing."""
    path = placed(kind, sound, tmp_path)
    whole = path.read_bytes()
    rng = np.random.default_rng(3)
    for bit in rng.integers(0, 8 * (len(whole) - 16), 200):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        try:
            assert verify(path), bit
        except FileError:
            pass
