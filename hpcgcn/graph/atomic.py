"""Writing a file so that readers see either the old one or the whole new one, never a part of it."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator

import h5py

from hpcgcn.errors import FileError


@contextlib.contextmanager
def atomic_h5(path: str | os.PathLike) -> Iterator[h5py.File]:
    """An open, empty HDF5 file that appears as `path` when the block ends; an exception leaves nothing behind."""
    target = os.path.realpath(path)
    folder, name = os.path.split(target)
    _check_target(path, target, folder)
    temporary = os.path.join(folder, f".{name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with h5py.File(temporary, "w") as file:
            yield file
        _sync(temporary)
        os.replace(temporary, target)
        _sync(folder)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        raise FileError(f"cannot write {path}: {reason}; check free space and permissions of {folder}") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _check_target(path, target: str, folder: str):
    """Say what is wrong with the place before any work goes into the file."""
    if os.path.isdir(target):
        raise FileError(f"cannot write {path}: it is a folder; give a file name")
    if not os.path.isdir(folder):
        raise FileError(f"cannot write {path}: there is no folder {folder}; create it first")
    if not os.access(folder, os.W_OK):
        raise FileError(f"cannot write {path}: no permission to write in {folder}")


def _sync(path: str):
    """Have the operating system put a file, or the entries of a folder, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
