"""The marker of a run folder, run.json: what was trained on what, and which files are the run's.

    {"format": "hpcgcn-run", "version": 1, "uuid": ..., "graph": ..., "shape": {}, "files": []}

Only files that a marker lists are ever deleted.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat

from hpcgcn.errors import FileError
from hpcgcn.files.tidy import remove_temporaries

MARKER = "run.json"
FORMAT, VERSION = "hpcgcn-run", 1
_MOST_BYTES = 64 << 20               # of a marker; one that lists ten thousand files has one
_DEPTH = 3                           # folders between a listed file and its marker, at most


def has_marker(folder: str) -> bool:
    """Is there a marker, sound or not?"""
    return os.path.lexists(os.path.join(folder, MARKER))


def read_marker(folder: str) -> dict:
    """The marker of a run folder; FileError if it is missing or damaged."""
    path = os.path.join(folder, MARKER)
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode) or os.path.getsize(path) > _MOST_BYTES:
            raise ValueError("not a small regular file")
        with open(path, encoding="utf-8") as file:
            marker = json.load(file)
        _check(marker)
    except OSError as error:
        raise FileError(f"{folder} is not a run: {MARKER} cannot be read "
                        f"({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} is damaged ({str(error)[:200]}): restore it from a copy, or "
                        "choose another --name") from None
    return marker


def run_uuid(folder: str) -> str:
    """The uuid of a run folder, or of the one that a checkpoint folder is in; "" without one."""
    for place in (folder, os.path.join(folder, "..", "..")):
        if has_marker(place):
            with contextlib.suppress(FileError):
                return read_marker(place)["uuid"]
    return ""


def _check(marker):
    if not isinstance(marker, dict) or marker.get("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT}")
    if marker.get("version") != VERSION:
        raise ValueError(f"version {marker.get('version')!r}, expected {VERSION}")
    for name, kind in (("uuid", str), ("graph", str), ("shape", dict), ("files", list)):
        if not isinstance(marker.get(name), kind):
            raise ValueError(f"'{name}' is missing or of another type")
    if not all(map(_is_inside, marker["files"])):
        raise ValueError("it lists a file outside its folder")


def _is_inside(name) -> bool:
    """Is it a plain relative name, which leads nowhere else?"""
    return (isinstance(name, str) and name != "" and "\0" not in name and not os.path.isabs(name)
            and not {"", ".", ".."} & set(name.split("/")))


def remove_listed(folder: str, keep=()) -> list[str]:
    """Delete the files that the marker lists, the marker last, and folders that are empty then.

    Returns what is left in the folder, but for the names in `keep`.
    """
    names = [name for name in read_marker(folder)["files"] if name != MARKER and name not in keep]
    for name in names:
        _remove_regular(folder, name)
    remove_temporaries(folder)
    for inner in sorted({os.path.dirname(name) for name in names} - {""}, key=len, reverse=True):
        while inner:
            with contextlib.suppress(OSError):
                remove_temporaries(os.path.join(folder, inner))
                os.rmdir(os.path.join(folder, inner))
            inner = os.path.dirname(inner)
    _remove_regular(folder, MARKER)
    return sorted(set(os.listdir(folder)) - set(keep))


def _remove_regular(folder: str, name: str):
    """A link in its place, or on the way to it, is somebody else's."""
    path = os.path.join(folder, name)
    real = os.path.join(os.path.realpath(folder), os.path.dirname(name)).rstrip(os.sep)
    if os.path.realpath(os.path.dirname(path)) != real:
        return
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if stat.S_ISREG(os.lstat(path).st_mode):
            os.unlink(path)


def run_that_lists(path: str) -> str | None:
    """The run folder whose marker lists this file, or None."""
    path = os.path.realpath(path)
    folder = path
    for _ in range(_DEPTH):
        folder = os.path.dirname(folder)
        if has_marker(folder):
            try:
                listed = [MARKER, *read_marker(folder)["files"]]
            except FileError:
                return folder                # what it lists is not known: leave all of it alone
            return folder if os.path.relpath(path, folder) in listed else None
    return None
