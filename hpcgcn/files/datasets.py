"""HDF5 datasets with a checksum: arrays are written and verified piece by piece, so memory stays
bounded.

Every dataset is contiguous and uncompressed (slices are read at disk speed) and has the attribute
`crc32`: zlib's CRC-32 of its bytes in C order. A file's `checksum` is the SHA-256 over the name,
type, shape and CRC of all datasets.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator

import h5py
import numpy as np

from hpcgcn.files.json_text import parse_json

PIECE_BYTES = 32 << 20     # how much of an array is in flight at once
_CHANGED = "{}: the checksum does not match: the data was changed or damaged after it was written"


def pieces(n_rows: int, row_bytes: int) -> Iterator[slice]:
    """Slices that cover n_rows rows, each of about PIECE_BYTES."""
    step = max(1, PIECE_BYTES // max(1, row_bytes))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def array_pieces(array) -> Iterator[np.ndarray]:
    """The rows of an array or dataset, in order, in pieces of bounded size."""
    row_bytes = array.dtype.itemsize * int(np.prod(array.shape[1:]))
    for rows in pieces(array.shape[0], row_bytes):
        yield array[rows]


def write_pieces(group: h5py.Group, name: str, shape: tuple, dtype, parts: Iterable[np.ndarray]):
    """Write a dataset from consecutive blocks of rows, and its checksum."""
    dataset = group.create_dataset(name, shape=shape, dtype=np.dtype(dtype).newbyteorder("<"))
    crc, row = 0, 0
    for part in parts:
        part = np.ascontiguousarray(part, dtype=dataset.dtype)
        if part.size:
            dataset[row:row + len(part)] = part
            crc = zlib.crc32(_bytes_of(part), crc)
        row += len(part)
    dataset.attrs["crc32"] = np.uint32(crc)


def write_array(group: h5py.Group, name: str, array: np.ndarray, dtype=None):
    """Write an array (cast to dtype, if given) as a dataset with a checksum."""
    write_pieces(group, name, array.shape, dtype or array.dtype, array_pieces(array))


def write_json(group: h5py.Group, name: str, value):
    """Write a JSON value as a dataset of UTF-8 bytes: HDF5 attributes end at 64 KiB."""
    write_array(group, name, np.frombuffer(json.dumps(value).encode(), np.uint8))


def read_json(dataset: h5py.Dataset) -> dict:
    """The object that `write_json` wrote; ValueError if it is none."""
    try:
        value = parse_json(dataset[...].tobytes().decode())
    except ValueError as error:
        raise ValueError(f"{dataset.name} is {error}; expected a JSON object in UTF-8") from None
    if not isinstance(value, dict):
        raise ValueError(f"{dataset.name} is JSON of type {type(value).__name__}; expected an "
                         "object")
    return value


def all_datasets(group: h5py.Group) -> list[h5py.Dataset]:
    """Every dataset of a file or group, in the order of their names."""
    datasets = []
    for item in group.values():
        datasets += [item] if isinstance(item, h5py.Dataset) else all_datasets(item)
    return sorted(datasets, key=lambda dataset: dataset.name)


def read_array(dataset: h5py.Dataset) -> np.ndarray:
    """The whole array; ValueError if its bytes are not those that were written."""
    array = dataset[...]
    if "crc32" in dataset.attrs and zlib.crc32(_bytes_of(array)) != int(dataset.attrs["crc32"]):
        raise ValueError(_CHANGED.format(dataset.name))
    return array


def checksum_problems(file: h5py.File) -> Iterator[str]:
    """Datasets whose bytes are not those that were written, and whether any is missing or has been
    added."""
    for dataset in all_datasets(file):
        if "crc32" in dataset.attrs and _crc(dataset) != int(dataset.attrs["crc32"]):
            yield _CHANGED.format(dataset.name)
    if "checksum" in file.attrs and file.attrs["checksum"] not in (content_checksum(file),
                                                                   whole_checksum(file)):
        yield ("the datasets or attributes are not those that the file was written with (checksum "
               "of the whole file)")


def content_checksum(file: h5py.File) -> str:
    """SHA-256, as hexadecimal digits, over name, type, shape and CRC of all datasets: equal for
    equal contents."""
    lines = [f"{d.name} {d.dtype.str} {d.shape} {int(d.attrs.get('crc32', 0))}"
             for d in all_datasets(file)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def whole_checksum(file: h5py.File) -> str:
    """SHA-256, as hexadecimal digits, over the datasets and the attributes of the file: for files
    in which nobody may change an attribute, either."""
    lines = [f"{name} {file.attrs[name]}" for name in sorted(file.attrs) if name != "checksum"]
    return hashlib.sha256("\n".join([content_checksum(file), *lines]).encode()).hexdigest()


def _crc(dataset: h5py.Dataset) -> int:
    crc = 0
    for part in array_pieces(dataset):
        crc = zlib.crc32(_bytes_of(part), crc)
    return crc


def _bytes_of(array: np.ndarray) -> memoryview:
    """The bytes of an array in C order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
