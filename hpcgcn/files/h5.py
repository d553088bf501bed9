"""HDF5 files that appear whole or not at all, also where the disk refuses."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterable, Iterator

import h5py

from hpcgcn.files.atomic import atomic_file
from hpcgcn.files.replace import NOTHING, Replaces
from hpcgcn.files.trailer import append_trailer, data_regions


@contextlib.contextmanager
def atomic_h5(path: str | os.PathLike, replaces: Replaces = NOTHING,
              inputs: Iterable = ()) -> Iterator[h5py.File]:
    """An open, empty HDF5 file that appears as `path` when the block ends, or not at all."""
    with atomic_file(path, replaces, inputs) as temporary, _PatientFile(temporary) as disk:
        try:
            with h5py.File(disk, "w") as file:
                yield file
                regions = data_regions(file)
        except BaseException:
            _close_handles(disk)
            raise
        disk.check()
        append_trailer(disk, regions)
        disk.check()


def _close_handles(disk: _PatientFile):
    """Close what a signal within h5py's own calls has left open.

    Nothing else would before Python ends, when the file is gone to which HDF5 then writes.
    """
    name = repr(disk).encode("ascii", "replace")
    for handle in h5py.h5f.get_obj_ids(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE):
        while handle.valid and handle.name == name:
            h5py.h5i.dec_ref(handle)


class _PatientFile(io.RawIOBase):
    """A file that takes everything it is given, and tells at the end whether all was written.

    HDF5 does not survive a disk that is full: it fails to close the file, and crashes later. So
    it never learns of it.
    """

    def __init__(self, path: str):
        self._file = open(path, "w+b", buffering=0)
        self._error: OSError | None = None

    def write(self, data) -> int:
        view = memoryview(data).cast("B")
        try:
            done = 0
            while done < len(view) and self._error is None:      # at most 2 GiB in one call
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

    def check(self):
        """Raise what went wrong, if anything did."""
        if self._error is not None:
            raise self._error

    def close(self):
        self._file.close()
        super().close()
