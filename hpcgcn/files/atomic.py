"""The one way in which files are written: readers see the old one or the whole new one.

A writer says what it may replace (`hpcgcn.files.replace`); without a word, nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

from hpcgcn.errors import FileError
from hpcgcn.files.replace import ANY_OF_THE_RUN, NOTHING, Replaces, check_target
from hpcgcn.files.tidy import temporary_beside, temporary_folder


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike, replaces: Replaces = NOTHING,
                inputs: Iterable = ()) -> Iterator[str]:
    """The name of an empty temporary file, of the same ending, that becomes `path` in the end.

    An exception leaves nothing behind, and so does SIGTERM.
    """
    path = os.fspath(path)
    check_target(path, replaces, inputs)
    with explained(path), temporary_beside(path, os.path.splitext(path)[1]) as temporary:
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666))
        yield temporary
        sync(temporary)
        _publish(temporary, path, replaces, inputs)
        sync(os.path.dirname(os.path.abspath(path)))


def atomic_text(path: str | os.PathLike, text: str, replaces: Replaces = NOTHING,
                inputs: Iterable = ()):
    """Write a text file, in UTF-8 whatever the locale says; names of files keep their bytes."""
    data = text.encode("utf-8", "surrogateescape")
    with atomic_file(path, replaces, inputs) as temporary, open(temporary, "wb") as file:
        file.write(data)


@contextlib.contextmanager
def atomic_folder(path: str | os.PathLike) -> Iterator[str]:
    """A new folder that becomes `path` when the block ends; only an empty one may be there."""
    path = os.path.normpath(os.fspath(path))
    check_new_folder(path)
    parent = os.path.dirname(os.path.abspath(path))
    with explained(path), temporary_folder(parent) as temporary:
        made = os.path.join(temporary, os.path.basename(path))       # writers may use the name
        os.mkdir(made)
        yield made
        check_new_folder(path)
        os.rename(made, path)
        sync(parent)


def check_new_folder(path: str):
    """Refuse a place where a new folder cannot be made."""
    is_empty = os.path.isdir(path) and not os.path.islink(path) and not os.listdir(path)
    if os.path.lexists(path) and not is_empty:
        raise FileError(f"cannot write {path}: it is there already; give the name of a new folder")
    parent = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(parent):
        raise FileError(f"cannot write {path}: there is no folder {parent}; create it first")


def _publish(temporary: str, path: str, replaces: Replaces, inputs: Iterable):
    """Give a finished file its name; what may have come there since the check is not replaced."""
    if replaces is not ANY_OF_THE_RUN:
        with contextlib.suppress(OSError):       # it exists, or the file system has no hard links
            os.link(temporary, path, follow_symlinks=False)
            return
    check_target(path, replaces, inputs)
    os.replace(temporary, path)


@contextlib.contextmanager
def explained(path: str | os.PathLike):
    """A block that writes `path`: what the operating system refuses becomes a FileError."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        raise FileError(f"cannot write {path}: {reason}; check free space and permissions of "
                        f"{os.path.dirname(os.path.abspath(path))}") from error


def sync(path: str):
    """Have the operating system put a file, or the entries of a folder, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
