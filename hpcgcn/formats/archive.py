"""Arrays of .npz and .npy files without trust: sizes are checked before anything is unpacked, and no pickle is loaded."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import zipfile
import zlib

import numpy as np

from hpcgcn.errors import FileError
from hpcgcn.formats.files import check_readable

# An array that unpacks to more than this and to so many times its packed size is taken for an attack.
LARGE_BYTES = 1 << 30
MOST_RATIO = 200
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError, NotImplementedError, RuntimeError)


class Archive:
    """An .npz file: names, shapes and types are known at once, arrays are read when asked for."""

    def __init__(self, path: str | os.PathLike):
        check_readable(path)
        self.path = path
        try:
            self.zip = zipfile.ZipFile(path)
            members = self.zip.infolist()
        except _DAMAGE as error:
            raise FileError(f"{path} cannot be opened ({error}); expected a whole .npz file: copy or download it again") from None
        check_sizes(path, members)
        self.members = {self._array_name(member): member for member in members}

    def __enter__(self) -> "Archive":
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
            raise FileError(f"{self.path} has no array {name!r}; expected it beside {', '.join(sorted(self.members))}")
        member = self.members[name]
        try:
            with self.zip.open(member) as stream:
                self._check_header(name, member, *_header(stream))
            with self.zip.open(member) as stream:
                return np.lib.format.read_array(stream, allow_pickle=False)
        except _DAMAGE as error:
            raise FileError(f"{self.path}: the array {name!r} cannot be read ({error}); expected a sound .npz file") from None

    def mapped(self, name: str, folder: str) -> np.ndarray:
        """An array, unpacked into a file in `folder` and mapped from there: for arrays larger than memory."""
        if name not in self.members:
            return self[name]
        member = self.members[name]
        handle, path = tempfile.mkstemp(dir=folder, suffix=".npy")
        try:
            with self.zip.open(member) as stream:
                self._check_header(name, member, *_header(stream))
            with self.zip.open(member) as stream, os.fdopen(handle, "wb") as file:
                shutil.copyfileobj(stream, file, 16 << 20)
        except _DAMAGE as error:
            raise FileError(f"{self.path}: the array {name!r} cannot be unpacked ({error}); expected a sound .npz file and room "
                            f"for {member.file_size:,} bytes in {folder}") from None
        return read_npy(path)

    def _array_name(self, member: zipfile.ZipInfo) -> str:
        name = member.filename
        if os.path.isabs(name) or ".." in name.replace("\\", "/").split("/"):
            raise FileError(f"{self.path}: the member {name!r} leads out of the archive; expected plain array names")
        return name.removesuffix(".npy")

    def _check_header(self, name: str, member: zipfile.ZipInfo, shape: tuple, dtype: np.dtype, header_bytes: int):
        if dtype.hasobject:
            raise FileError(f"{self.path}: the array {name!r} holds Python objects; expected numbers or fixed-length text, "
                            "because objects could run code")
        needed = header_bytes + dtype.itemsize * int(np.prod(shape, dtype=object))
        if needed != member.file_size:
            raise FileError(f"{self.path}: the array {name!r} of shape {shape} needs {needed:,} bytes, but "
                            f"{member.file_size:,} are there; expected both to agree")


def check_sizes(path: str | os.PathLike, members: list[zipfile.ZipInfo]):
    """Refuse a zip file that would unpack to far more than it is."""
    unpacked, packed = sum(member.file_size for member in members), os.path.getsize(path)
    if unpacked > LARGE_BYTES and unpacked > MOST_RATIO * packed:
        raise FileError(f"{path}: {packed:,} bytes claim to unpack to {unpacked:,}; expected at most {MOST_RATIO} "
                        "times as much (a zip bomb?)")


def check_unpacked_size(path: str | os.PathLike):
    """The same for a file that another reader opens, if it is a zip file."""
    with contextlib.suppress(*_DAMAGE), zipfile.ZipFile(path) as file:
        check_sizes(path, file.infolist())


def _header(stream) -> tuple[tuple, np.dtype, int]:
    """(shape, type, bytes of the header) of an .npy stream."""
    version = np.lib.format.read_magic(stream)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"version {version} of the array format is not known")
    shape, _, dtype = read(stream)
    return shape, dtype, stream.tell()


def read_npy(path: str | os.PathLike) -> np.ndarray:
    """The array of an .npy file, mapped rather than loaded: rows are read when they are used."""
    check_readable(path)
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except _DAMAGE as error:
        raise FileError(f"{path} cannot be read ({error}); expected a whole .npy file of numbers") from None
