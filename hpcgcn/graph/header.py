"""What every file of ours says about itself, and opening one with a clear message if it cannot
be."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import uuid
from collections.abc import Container, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import h5py

import hpcgcn
from hpcgcn.errors import FileError
from hpcgcn.files.trailer import State, verify_trailer
from hpcgcn.graph.probe import tried
from hpcgcn.graph.schema import SCHEMAS
from hpcgcn.graph.structure import Structure
from hpcgcn.graph.values import Unfit, plain_attribute

# The kinds of files and the version of each that this release writes; it reads earlier ones, too.
# Version 2 of graphs and partitions may have edge weights.
VERSIONS = {"graph": 2, "partition": 2, "checkpoint": 1, "predictions": 1}
_PREFIX = "hpcgcn-"


def write_header(file: h5py.File, kind: str, *, command: str = "", settings: dict | None = None,
                 source: str = "", **facts) -> str:
    """Write the attributes that all kinds share, and further facts (numbers or strings); returns
    the new uuid."""
    identity = str(uuid.uuid4())
    file.attrs.update({"format": _PREFIX + kind, "version": VERSIONS[kind], "uuid": identity,
                       "creator": f"hpcgcn {hpcgcn.__version__}",
                       "created": datetime.now(UTC).isoformat(timespec="seconds"),
                       "command": _storable(command), "settings": json.dumps(settings or {}),
                       "source": _storable(source), **facts})
    return identity


@dataclass
class Opened:
    """A file of ours: open for reading if there are no problems with its structure, and perhaps not
    open if there are."""

    file: h5py.File          # None if it cannot be opened; then there are problems
    kind: str                # 'graph', 'partition', 'checkpoint' or 'predictions'
    schema: str              # the same, but 'model' or 'exchange' for checkpoints
    facts: dict
    problems: list[str]


@contextlib.contextmanager
def open_file(path: str | os.PathLike, kind: str | None = None,
              schema: str | None = None) -> Iterator[h5py.File]:
    """One of our files, open for reading and built as its schema says.

    FileError if it is missing, damaged, or not of the kind or (for checkpoints) the schema asked
    for.
    """
    with opened(path, kind, schema) as held:
        yield held.file


@contextlib.contextmanager
def opened(path: str | os.PathLike, kind: str | None = None,
           schema: str | None = None) -> Iterator[Opened]:
    """The same, together with what its header says."""
    with examine(path, kind, schema) as held:
        try:
            if held.problems:
                raise ValueError("; ".join(held.problems[:3]))
            yield held
        except (OSError, KeyError, IndexError, RuntimeError, ValueError) as error:
            raise FileError(f"{path} is damaged: {error}; `hpcgcn info {path}` lists what is "
                            "wrong, then make the file again or restore a copy") from error


@contextlib.contextmanager
def examine(path: str | os.PathLike, kind: str | None = None,
            schema: str | None = None) -> Iterator[Opened]:
    """A file of ours and all that is wrong with its structure; FileError if it is of another kind
    or cannot be opened.

    HDF5 libraries crash or loop on some damaged files. So what has no valid trailer is examined in
    another process first, and is opened here only if all is well.
    """
    _check_regular(path)
    state = verify_trailer(path)
    if state is State.WRONG:
        raise FileError(f"{path} is damaged: its header or structure is not what was written "
                        "(the checksum at its end does not match); restore a copy or make it "
                        "again")
    examined = _examined_elsewhere(path, schema) if state is State.ABSENT else None
    if examined is not None and examined.problems:
        _check_kind(path, examined.kind, kind)
        yield examined
        return
    with _open_h5(path) as file:
        examined = _examined(file, path, schema)
        _check_kind(path, examined.kind, kind)
        yield examined


def _examined_elsewhere(path, schema: str | None) -> Opened:
    """The file as another process sees it, not open here."""
    def attempt():
        try:
            with _open_h5(path) as file:
                examined = _examined(file, path, schema)
                return [examined.kind, examined.schema, examined.facts, examined.problems]
        except FileError as error:
            return str(error)

    answer = tried(attempt)
    if answer is None:
        raise FileError(f"{path} is damaged: the HDF5 library cannot read its structure; restore "
                        "a copy or make it again")
    if isinstance(answer, str):
        raise FileError(answer)
    return Opened(None, *answer)


def _examined(file: h5py.File, path, schema: str | None) -> Opened:
    kind = _kind_of(file, path)
    schema = schema or _schema_of(file, kind)
    structure = Structure(file, SCHEMAS[schema], os.path.getsize(path))
    facts = {"kind": kind, **_further(file, SCHEMAS[schema].attributes), **structure.facts}
    return Opened(file, kind, schema, facts, structure.problems)


def _check_kind(path, held_kind: str, needed_kind: str | None):
    if needed_kind not in (None, held_kind):
        raise FileError(f"{path} is a {held_kind} file, but a {needed_kind} file is needed here; "
                        f"`hpcgcn info {path}` shows what it holds")


def kind(path: str | os.PathLike) -> str:
    """What a file is: 'graph', 'partition', 'checkpoint' or 'predictions'; FileError if it is none
    of them."""
    with examine(path) as held:
        return held.kind


def header(path: str | os.PathLike) -> dict:
    """All that a file says about itself, without its arrays: kind, version, uuid, sizes, settings,
    lineage."""
    with opened(path) as held:
        return held.facts


def _check_regular(path):
    """Pipes and devices may wait for ever; folders and empty files deserve a message of their
    own."""
    try:
        status = os.stat(path)
    except (OSError, ValueError) as error:
        reason = ("no such file" if isinstance(error, FileNotFoundError)
                  else getattr(error, "strerror", None) or error)
        raise FileError(f"{path}: {reason}") from None
    if stat.S_ISDIR(status.st_mode):
        raise FileError(f"{path} is a folder, not a file of hpcgcn")
    if not stat.S_ISREG(status.st_mode):
        raise FileError(f"{path} is a pipe, socket or device; expected a regular file")
    if not os.access(path, os.R_OK):
        raise FileError(f"{path}: no permission to read it")
    if status.st_size == 0:
        raise FileError(f"{path} is empty (0 bytes): writing it may have failed; make it again")


def source_uuid(path: str | os.PathLike) -> str:
    """The uuid of the graph that a graph or partition file holds."""
    facts = header(path)
    return str(facts.get("uuid" if facts["kind"] == "graph" else "source_uuid", ""))


def _open_h5(path) -> h5py.File:
    if not h5py.is_hdf5(path):
        raise FileError(f"{path} is not an HDF5 file; `hpcgcn generate` and `hpcgcn partition` "
                        "write the files needed")
    try:
        # Files never change once they have their name, and locks fail on many parallel file
        # systems.
        return h5py.File(path, "r", locking=False)
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        cause = "truncated" if "truncated" in str(error) else "damaged"
        raise FileError(f"{path} is {cause} ({error}); copy it again or make it again") from error


def _kind_of(file: h5py.File, path) -> str:
    name = _plain(file, "format")
    kind_name = name.removeprefix(_PREFIX) if isinstance(name, str) else ""
    if kind_name not in VERSIONS or not name.startswith(_PREFIX):
        shown = repr(name)[:60]
        raise FileError(f"{path} is an HDF5 file, but not one of hpcgcn (its format is {shown}, "
                        "known are " + ", ".join(_PREFIX + known for known in VERSIONS) + ")")
    version = _plain(file, "version")
    newest = VERSIONS[kind_name]
    if type(version) is not int or not 1 <= version <= newest:
        known = " and ".join(map(str, range(1, newest + 1)))
        raise FileError(f"{path} is a {kind_name} file of version {str(version)[:60]}; this hpcgcn "
                        f"({hpcgcn.__version__}) reads version {known}: make the file again, or "
                        "use the release that wrote it")
    return kind_name


def _schema_of(file: h5py.File, kind_name: str) -> str:
    """The schema of a file; those of checkpoints are of two."""
    if kind_name != "checkpoint":
        return kind_name
    return "exchange" if _plain(file, "step") is None else "model"


def _further(file: h5py.File, known: Container[str]) -> dict:
    """Attributes that no schema names, as far as they are plain values."""
    values = {}
    with contextlib.suppress(OSError, RuntimeError, KeyError):
        for name in file.attrs:
            if isinstance(name, str) and name.isprintable() and name not in known:
                values[name] = _plain(file, name)
    return {name: value for name, value in values.items() if value is not None}


def _plain(file: h5py.File, name: str):
    """An attribute's value, None if it is missing or not a plain value."""
    try:
        return plain_attribute(file, name)
    except (Unfit, OSError, RuntimeError, KeyError, TypeError, ValueError):
        return None


def _storable(text: str) -> str:
    """A text as an attribute: not too long, and valid UTF-8 even if a file name in it is not."""
    return text.encode("utf-8", "replace").decode()[:8192]
