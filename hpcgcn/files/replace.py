"""What a writer may replace: a regular file that it recognises as its own, never its input."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hpcgcn.errors import FileError
from hpcgcn.files.marker import run_that_lists

REMEDY = "give another name with -o, or --overwrite to replace it"


@dataclass(frozen=True)
class Replaces:
    """Which existing files a writer may replace."""

    what: str                            # in words, for the message: "a partition of this graph"
    fits: Callable[[str], bool]          # is the regular file of this name such a one?
    remedy: str = "give another name"
    recognises: bool = True              # does `fits` know its own, rather than what is not?


NOTHING = Replaces("", lambda _: False)
# For places where nobody else writes: the folder of a run that this process has locked.
ANY_OF_THE_RUN = Replaces("a file of this run", lambda _: True)


def check_target(path: str | os.PathLike, replaces: Replaces = NOTHING, inputs: Iterable = ()):
    """Refuse, before any work, a place where a file cannot or must not be written."""
    path = os.fspath(path)
    status = _lstat(path)
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise FileError(f"cannot write {path}: there is no folder {folder}; create it first")
    if not os.access(folder, os.W_OK):
        raise FileError(f"cannot write {path}: no permission to write in {folder}")
    if status is None:
        return
    _check_regular(path, status)
    if replaces is ANY_OF_THE_RUN:
        return
    for given in inputs:
        if _is_input(os.fspath(given), path, replaces.recognises):
            raise FileError(f"cannot write {path}: it is an input of this command; give another "
                            "name")
    run = run_that_lists(path)
    if run:
        raise FileError(f"cannot write {path}: it belongs to the run in {run}; give another name")
    if not replaces.fits(path):
        expected = f" and is not {replaces.what}" if replaces.what else ""
        raise FileError(f"cannot write {path}: it is there already{expected}; "
                        f"{replaces.remedy}")


def _lstat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileError(f"cannot write {path!r}: {reason}; give another name") from None


def _check_regular(path: str, status: os.stat_result):
    if stat.S_ISDIR(status.st_mode):
        raise FileError(f"cannot write {path}: it is a folder; give a file name")
    if stat.S_ISLNK(status.st_mode):
        raise FileError(f"cannot write {path}: it is a symbolic link to {os.readlink(path)}; "
                        "give the name of a file, or remove the link first")
    if not stat.S_ISREG(status.st_mode):
        raise FileError(f"cannot write {path}: it is a device, pipe or socket, not a regular file; "
                        "give a file name")


def _is_input(given: str, path: str, recognised: bool) -> bool:
    """Is `path` an input file, or in an input folder and not sure to be an earlier output?"""
    if os.path.isdir(given):
        if recognised:
            return False
        inside, real = os.path.realpath(given), os.path.realpath(path)
        return os.path.commonpath([inside, real]) == inside
    return os.path.exists(given) and os.path.samefile(given, path)
