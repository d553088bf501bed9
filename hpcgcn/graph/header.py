"""What every file of ours says about itself, and opening one with a clear message if it cannot be."""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterator
from datetime import datetime, timezone

import h5py
import numpy as np

import hpcgcn
from hpcgcn.errors import FileError

# The kinds of files and the version of each that this release reads and writes.
VERSIONS = {"graph": 1, "partition": 1, "checkpoint": 1, "predictions": 1}
_PREFIX = "hpcgcn-"
_JSON_ATTRIBUTES = ("settings", "split_counts")


def write_header(file: h5py.File, kind: str, *, command: str = "", settings: dict | None = None, source: str = "",
                 **facts) -> str:
    """Write the attributes that all kinds share, and further facts (numbers or strings); returns the new uuid."""
    identity = str(uuid.uuid4())
    file.attrs.update({
        "format": _PREFIX + kind, "version": VERSIONS[kind], "uuid": identity,
        "creator": f"hpcgcn {hpcgcn.__version__}",
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": command[:8192], "settings": json.dumps(settings or {}), "source": source[:8192], **facts})
    return identity


@contextlib.contextmanager
def open_file(path: str | os.PathLike, kind: str | None = None) -> Iterator[h5py.File]:
    """One of our files, open for reading; FileError if it is missing, damaged, or not of the kind asked for."""
    file = _open_h5(path)
    with file:
        found = _kind_of(file, path)
        if kind is not None and found != kind:
            raise FileError(f"{path} is a {found} file, but a {kind} file is needed here; "
                            f"`hpcgcn info {path}` shows what it holds")
        try:
            yield file
        except (OSError, KeyError, IndexError, RuntimeError, ValueError) as error:
            raise FileError(f"{path} is damaged: {error}; `hpcgcn info {path}` lists what is wrong, "
                            "then make the file again or restore a copy") from error


def kind(path: str | os.PathLike) -> str:
    """What a file is: 'graph', 'partition', 'checkpoint' or 'predictions'; FileError if it is none of them."""
    with open_file(path) as file:
        return _kind_of(file, path)


def header(path: str | os.PathLike) -> dict:
    """All that a file says about itself, without its arrays: kind, version, uuid, sizes, settings, lineage."""
    with open_file(path) as file:
        facts = {"kind": _kind_of(file, path)}
        facts.update((name, _plain(name, value)) for name, value in file.attrs.items())
        return facts


def source_uuid(path: str | os.PathLike) -> str:
    """The uuid of the graph that a graph or partition file holds."""
    facts = header(path)
    return str(facts.get("uuid" if facts["kind"] == "graph" else "source_uuid", ""))


def _open_h5(path) -> h5py.File:
    if not os.path.exists(path):
        raise FileError(f"{path}: no such file")
    if os.path.isdir(path):
        raise FileError(f"{path} is a folder, not a file of hpcgcn")
    if not os.access(path, os.R_OK):
        raise FileError(f"{path}: no permission to read it")
    if os.path.getsize(path) == 0:
        raise FileError(f"{path} is empty (0 bytes): writing it may have failed; make it again")
    if not h5py.is_hdf5(path):
        raise FileError(f"{path} is not an HDF5 file; `hpcgcn generate` and `hpcgcn partition` write the files needed")
    try:
        # Files never change once they have their name, and locks fail on many parallel file systems.
        return h5py.File(path, "r", locking=False)
    except OSError as error:
        cause = "truncated" if "truncated" in str(error) else "damaged"
        raise FileError(f"{path} is {cause} ({error}); copy it again or make it again") from error


def _kind_of(file: h5py.File, path) -> str:
    name = file.attrs.get("format", "")
    found = name.removeprefix(_PREFIX) if isinstance(name, str) else ""
    if found not in VERSIONS or not name.startswith(_PREFIX):
        raise FileError(f"{path} is an HDF5 file, but not one of hpcgcn (its format is {name!r}, known are "
                        + ", ".join(_PREFIX + known for known in VERSIONS) + ")")
    version = file.attrs.get("version")
    if not isinstance(version, (int, np.integer)) or version != VERSIONS[found]:
        raise FileError(f"{path} is a {found} file of version {version}; this hpcgcn ({hpcgcn.__version__}) reads "
                        f"version {VERSIONS[found]}: make the file again, or use the release that wrote it")
    return found


def _plain(name: str, value):
    """An attribute as a plain Python value."""
    if name in _JSON_ATTRIBUTES:
        return json.loads(value)
    return value.item() if isinstance(value, np.generic) else value
