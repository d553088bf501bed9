"""The last bytes of a file of ours: a checksum of all that is not the data of an array.

HDF5 libraries crash or loop on some damaged metadata, so it is verified before they see it. The
trailer stands after the end of the HDF5 file, where libraries do not look; one that changes a file
cuts it off. In order:

    (place, size) of every array's data, unsigned 64-bit little-endian; how many; SHA-256; MAGIC

The SHA-256 is of the bytes before the trailer that are no array's data, of the table and of its
length. What an array holds is left to the attribute `crc32` of its dataset, which is among the
bytes that are covered here.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator
from enum import Enum

import h5py

from hpcgcn.files.datasets import PIECE_BYTES, all_datasets

MAGIC = b"hpcgcn trailer 1"
_END = struct.Struct(f"<Q32s{len(MAGIC)}s")
_REGION = struct.Struct("<QQ")


class State(Enum):
    """What a trailer says of its file."""

    ABSENT = "there is none: an older file, or one that another program wrote or changed"
    RIGHT = "the metadata is what was written"
    WRONG = "the metadata was changed or damaged"


def data_regions(file: h5py.File) -> list[tuple[int, int]]:
    """(place, size) of the data of every array in a file that is open for writing, in order."""
    file.flush()
    return sorted((dataset.id.get_offset(), dataset.id.get_storage_size())
                  for dataset in all_datasets(file) if dataset.id.get_offset() is not None)


def append_trailer(disk, regions: list[tuple[int, int]]):
    """Write the trailer of a complete HDF5 file, whose binary file object allows reading and
    writing."""
    end = disk.seek(0, os.SEEK_END)
    table = _packed(regions)
    digest = _digest(disk, regions, end, table)
    disk.seek(end)
    disk.write(table + _END.pack(len(regions), digest, MAGIC))


def verify_trailer(path: str | os.PathLike) -> State:
    """Compare a file's metadata with its trailer; reads the metadata alone."""
    with open(path, "rb", buffering=0) as disk:
        size = disk.seek(0, os.SEEK_END)
        if size < _END.size:
            return State.ABSENT
        disk.seek(size - _END.size)
        count, digest, magic = _END.unpack(_read(disk, _END.size))
        if magic != MAGIC:
            return State.ABSENT
        end = size - _END.size - count * _REGION.size
        if end < 0:
            return State.WRONG
        disk.seek(end)
        table = _read(disk, count * _REGION.size)
        regions = list(_REGION.iter_unpack(table))
        if not _in_order(regions, end):
            return State.WRONG
        return State.RIGHT if _digest(disk, regions, end, table) == digest else State.WRONG


def _packed(regions: list[tuple[int, int]]) -> bytes:
    return b"".join(_REGION.pack(*region) for region in regions)


def _in_order(regions: list[tuple[int, int]], end: int) -> bool:
    """Do the regions lie one after the other before the end?"""
    reached = 0
    for place, size in regions:
        if place < reached:
            return False
        reached = place + size
    return reached <= end


def _digest(disk, regions: list[tuple[int, int]], end: int, table: bytes) -> bytes:
    """SHA-256 of what is between the regions, of their table and of its length."""
    digest = hashlib.sha256()
    for start, stop in _gaps(regions, end):
        disk.seek(start)
        while start < stop:
            piece = _read(disk, min(PIECE_BYTES, stop - start))
            if not piece:
                break                    # the file has become shorter: the digest will differ
            digest.update(piece)
            start += len(piece)
    digest.update(table + struct.pack("<Q", len(regions)))
    return digest.digest()


def _gaps(regions: list[tuple[int, int]], end: int) -> Iterator[tuple[int, int]]:
    reached = 0
    for place, size in [*regions, (end, 0)]:
        if place > reached:
            yield reached, place
        reached = place + size


def _read(disk, size: int) -> bytes:
    """So many bytes, or fewer at the end of the file."""
    parts = []
    while size:
        part = disk.read(size)
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
