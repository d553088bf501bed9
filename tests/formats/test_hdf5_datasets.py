"""Files that claim to be ours, with datasets that are built otherwise: one message, whatever is
done with them."""

import os
import re

import h5py
import numpy as np
import pytest
from hdf5_kinds import KINDS, assert_refused, damaged, placed, some_of, with_data

from hpcgcn.files.datasets import all_datasets

pytestmark = pytest.mark.usefixtures("no_waiting")

DECLARED = 10**10


def as_type(dtype):
    """The same shape, of another type."""

    def change(file, name, old, shape):
        file.create_dataset(name, shape, dtype)

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
