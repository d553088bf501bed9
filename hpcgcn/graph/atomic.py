"""Writing a file so that readers see either the old one or the whole new one, never a part of it."""

from __future__ import annotations

import contextlib
import io
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
        with explained(path), _PatientFile(temporary) as disk:
            with h5py.File(disk, "w") as file:
                yield file
            disk.sync()
            os.replace(temporary, target)
            sync(folder)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


@contextlib.contextmanager
def explained(path: str | os.PathLike):
    """A block that writes `path`: what the operating system refuses becomes a FileError."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        raise FileError(f"cannot write {path}: {reason}; check free space and permissions of "
                        f"{os.path.dirname(os.path.realpath(path))}") from error


class _PatientFile(io.RawIOBase):
    """A file that takes everything it is given, and tells at the end whether all of it could be written.

    HDF5 does not survive a disk that is full: it fails to close the file, and crashes later. So it never learns of it.
    """

    def __init__(self, path: str):
        self._file = open(path, "w+b", buffering=0)
        self._error: OSError | None = None

    def write(self, data) -> int:
        view = memoryview(data).cast("B")
        try:
            done = 0
            while done < len(view) and self._error is None:      # Linux takes 2 GiB at most in one call
                done += self._file.write(view[done:])
        except OSError as error:
            self._error = error
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        try:
            return self._file.truncate(size)
        except OSError as error:
            self._error = self._error or error
            return size or 0

    def readinto(self, buffer) -> int:
        view = memoryview(buffer).cast("B")
        done = self._file.readinto(view) or 0
        view[done:] = bytes(len(view) - done)
        return len(view)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readable(self) -> bool:
        return True

    writable = seekable = readable

    def sync(self):
        """Have all of it on the disk, or raise what went wrong."""
        if self._error is not None:
            raise self._error
        os.fsync(self._file.fileno())

    def close(self):
        self._file.close()
        super().close()


def _check_target(path, target: str, folder: str):
    """Say what is wrong with the place before any work goes into the file."""
    if os.path.isdir(target):
        raise FileError(f"cannot write {path}: it is a folder; give a file name")
    if not os.path.isdir(folder):
        raise FileError(f"cannot write {path}: there is no folder {folder}; create it first")
    if not os.access(folder, os.W_OK):
        raise FileError(f"cannot write {path}: no permission to write in {folder}")


def sync(path: str):
    """Have the operating system put a file, or the entries of a folder, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
