"""Arrays of .npz and .npy files without trust: sizes are checked before anything is unpacked, and
no pickle is loaded."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import tempfile
import warnings
import zipfile
import zlib

import numpy as np

from hpcgcn.errors import FileError, printable
from hpcgcn.formats.files import MOST_RATIO, check_readable, unpacks_to_too_much

_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError, NotImplementedError,
           RuntimeError)
_MOST_HEADER = 10_000      # bytes; NumPy's own are below 200
_MOST_DIMENSIONS = 32


class Archive:
    """An .npz file: names, shapes and types are known at once, arrays are read when asked for."""

    def __init__(self, path: str | os.PathLike):
        check_readable(path)
        self.path = path
        try:
            self.zip = zipfile.ZipFile(path)
            members = self.zip.infolist()
        except _DAMAGE as error:
            raise FileError(f"{path} cannot be opened ({_words(error)}); expected a whole .npz "
                            "file: copy or download it again") from None
        check_sizes(path, members)
        self.members = {self._array_name(member): member for member in members}

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_):
        self.zip.close()

    def __contains__(self, name: str) -> bool:
        return name in self.members

    def names(self) -> set[str]:
        """The names of the arrays."""
        return set(self.members)

    def get(self, name: str) -> np.ndarray | None:
        """An array, or None if it is not there."""
        return self[name] if name in self.members else None

    def __getitem__(self, name: str) -> np.ndarray:
        """An array; FileError if it is not there, damaged, or holds Python objects."""
        if name not in self.members:
            raise FileError(f"{self.path} has no array {name!r}; expected it beside "
                            f"{', '.join(sorted(self.members))}")
        member = self.members[name]
        try:
            with self.zip.open(member) as stream:
                shape, dtype, fortran = self._checked_header(name, member, stream)
                data = bytearray(stream.read())      # arrays that can be written to
        except _DAMAGE as error:
            raise FileError(f"{self.path}: the array {name!r} cannot be read ({_words(error)}); "
                            "expected a sound .npz file") from None
        return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")

    def mapped(self, name: str, folder: str) -> np.ndarray:
        """An array, unpacked into a file in `folder` and mapped from there: for arrays larger than
        memory."""
        if name not in self.members:
            return self[name]
        member = self.members[name]
        handle, path = tempfile.mkstemp(dir=folder, suffix=".npy")
        try:
            with self.zip.open(member) as stream:
                self._checked_header(name, member, stream)
            with self.zip.open(member) as stream, os.fdopen(handle, "wb") as file:
                shutil.copyfileobj(stream, file, 16 << 20)
        except _DAMAGE as error:
            raise FileError(f"{self.path}: the array {name!r} cannot be unpacked "
                            f"({_words(error)}); expected a sound .npz file and room for "
                            f"{member.file_size:,} bytes in {folder}") from None
        return read_npy(path)

    def _array_name(self, member: zipfile.ZipInfo) -> str:
        name = member.filename
        if os.path.isabs(name) or ".." in name.replace("\\", "/").split("/"):
            raise FileError(f"{self.path}: the member {name!r} leads out of the archive; "
                            "expected plain array names")
        return name.removesuffix(".npy")

    def _checked_header(self, name: str, member: zipfile.ZipInfo,
                        stream) -> tuple[tuple, np.dtype, bool]:
        return _checked_header(f"{self.path}: the array {name!r}", stream, member.file_size)


def check_sizes(path: str | os.PathLike, members: list[zipfile.ZipInfo]):
    """Refuse a zip file that would unpack to far more than it is."""
    unpacked, packed = sum(member.file_size for member in members), os.path.getsize(path)
    if unpacks_to_too_much(unpacked, packed):
        raise FileError(f"{path}: {packed:,} bytes claim to unpack to {unpacked:,}; expected at "
                        f"most {MOST_RATIO} times as much (a zip bomb?): if it is meant, save it "
                        "without compression")


def check_unpacked_size(path: str | os.PathLike):
    """The same for a file that another reader opens, if it is a zip file."""
    with contextlib.suppress(*_DAMAGE), zipfile.ZipFile(path) as file:
        check_sizes(path, file.infolist())


def _checked_header(where: str, stream, n_bytes: int) -> tuple[tuple, np.dtype, bool]:
    """(shape, type, is the order Fortran's) of an .npy stream of n_bytes; FileError if they do not
    fit its size."""
    try:
        shape, fortran, dtype = _header(stream)
        n_items = math.prod(shape)
        if not all(type(n) is int for n in shape):  # True passes NumPy's own check
            raise TypeError(f"shape {shape}")
    except Exception as error:  # noqa: BLE001
        # NumPy parses headers as Python, and a crafted one can make that fail in any way
        raise FileError(
            f"{where} cannot be read ({_words(error)}); expected a sound NumPy file") from None
    if dtype.hasobject:
        raise FileError(f"{where} holds Python objects; expected numbers or fixed-length text, "
                        "because objects could run code")
    needed = stream.tell() + dtype.itemsize * n_items
    if needed != n_bytes or not dtype.itemsize or len(shape) > _MOST_DIMENSIONS:
        raise FileError(f"{where} of type {dtype} and shape {shape} needs {needed:,} bytes, but "
                        f"{n_bytes:,} are there; expected both to agree, and at most "
                        f"{_MOST_DIMENSIONS} dimensions")
    return shape, dtype, fortran


def _header(stream) -> tuple[tuple, bool, np.dtype]:
    """(shape, is the order Fortran's, type) of an .npy stream."""
    version = np.lib.format.read_magic(stream)
    read = {(1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"version {version} of the array format is not known")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return read(stream, max_header_size=_MOST_HEADER)


def _words(error: Exception) -> str:
    """An error of others in a few words; some quote the whole file."""
    return printable(error, 200) or type(error).__name__


def read_npy(path: str | os.PathLike) -> np.ndarray:
    """The array of an .npy file, mapped rather than loaded: rows are read when they are used."""
    check_readable(path)
    with open(path, "rb") as file:
        shape, dtype, fortran = _checked_header(f"{path}", file, os.path.getsize(path))
        start = file.tell()
    if 0 in shape:
        return np.zeros(shape, dtype)
    return np.memmap(path, dtype, "r", start, shape, "F" if fortran else "C")
