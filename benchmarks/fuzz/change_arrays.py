"""Damage of NumPy files: headers of .npy, members of .npz, arrays of another type, shape or
value."""

from __future__ import annotations

import io
import pickle
import random
import struct
import warnings
import zipfile

import numpy as np

from fuzz.change_bytes import change_bytes
from fuzz.change_text import special

_TYPES = ("i1", "u1", "i2", ">i4", "u4", "i8", ">i8", "u8", "f2", "f4", ">f4", "f8", "c8", "b1",
          "S3", "U2", "M8[s]", "m8[s]", "V5", [("a", "i4"), ("b", "f8")], ("i4", (2,)))
_DESCRIPTIONS = ("'|O'", "'O8'", "'<i8'", "'<f99999999999'", "'<U9999999999'",
                 "[('a','<i4'),('a','<i4')]", "'<'", "''", "None", "{}", "3", "[" * 300, "'<i8",
                 "(", "'|V9223372036854775807'", "'S0'", "'V0'", "[('', '|V0')]", "'datetime64'",
                 "__import__('os')")
_SHAPES = ("()", "(0,)", "(1,)", "(-1,)", "(10000000000,)", "(9223372036854775807,)",
           "(4294967296, 4294967296)", "(2, 3)", "(1,)*40", "3", "'3'", "(1.5,)", "(True,)",
           "(" + "1," * 70 + ")", "(1" + "0" * 5000 + ",)", "((1,),)", "None", "(0, 10000000000)",
           "(" * 400)


def change_array(rng: random.Random, array: np.ndarray) -> tuple[np.ndarray, str]:
    """Another type, shape or other values."""
    change = rng.choice((_type, _shape, _values, _values, _values))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return change(rng, array), change.__name__.strip("_")


def _type(rng, array):
    wanted = np.dtype(rng.choice(_TYPES))
    try:
        return array.astype(wanted)
    except (ValueError, TypeError, OverflowError):
        return np.zeros(array.shape, wanted)


def _shape(rng, array):
    change = rng.randrange(9)
    if change == 0:
        return array.reshape(-1)[:1].reshape(()) if array.size else np.zeros((), array.dtype)
    if change == 1:
        return array[None]
    if change == 2:
        return array[..., None]
    if change == 3:
        return array.reshape(-1)
    if change == 4:
        return array[:0]
    if change == 5 and array.ndim:
        return array[:-1]
    if change == 6 and array.ndim:
        return np.concatenate([array, array[-1:]])
    if change == 7:
        return array.reshape(array.shape + (1,) * (20 - array.ndim))
    return array.T.copy()


def extremes(dtype: np.dtype) -> list:
    """Values of a type that programs stumble over."""
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        return [
            n
            for n in (bounds.min, bounds.max, -1, 0, 1, 2, 3, 5, 29, 30, 31, 100, 2**20, 2**31 - 1,
                      2**31, 2**40)
            if bounds.min <= n <= bounds.max
        ]
    if dtype.kind == "f":
        bounds = np.finfo(dtype)
        return [np.nan, np.inf, -np.inf, float(bounds.max), float(bounds.min), float(bounds.tiny),
                0.0, -0.0, -1.0, 0.5, 1e20, -1e20]
    if dtype.kind == "b":
        return [True, False]
    if dtype.kind == "c":
        return [complex("nan"), 1j]
    if dtype.kind == "S":
        return [b"", b"\x1b[2J", b"a\nb", b"\xff\xfe", b"a,b", b'"', b"="]
    if dtype.kind == "U":
        return ["", "\x1b[2J", "a\nb", "a,b", '"', "\u202e"]
    return []


def _values(rng, array):
    """A few elements become extreme, or the order changes."""
    array = np.array(array)
    choices = extremes(array.dtype)
    if not array.size or not choices:
        return array
    flat = array.reshape(-1)
    change = rng.randrange(6)
    if change == 0:
        flat[:] = flat[::-1].copy()
    elif change == 1:
        flat[:] = rng.choice(choices)
    elif change == 2 and array.size > 1:
        a, b = rng.randrange(array.size), rng.randrange(array.size)
        flat[a] = flat[b]
    else:
        with np.errstate(all="ignore"):
            for _ in range(rng.choice((1, 1, 1, 3, 10))):
                flat[rng.randrange(array.size)] = rng.choice(choices)
    return array


def change_npy(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    """An .npy file with a damaged header, or with another array."""
    if rng.random() < 0.5:
        array, what = change_array(rng, np.load(io.BytesIO(data), allow_pickle=False))
        return npy_bytes(array), what
    if rng.random() < 0.15:
        return change_bytes(rng, data)
    length = struct.unpack("<H", data[8:10])[0]
    header, body = data[10 : 10 + length].decode("latin1"), data[10 + length :]
    kind = rng.randrange(5)
    if kind == 0:
        header = _with(header, "'descr': ", rng.choice(_DESCRIPTIONS))
    elif kind == 1:
        header = _with(header, "'shape': ", rng.choice(_SHAPES))
    elif kind == 2:
        header = _with(header, "'fortran_order': ",
                       rng.choice(("True", "False", "1", "None", "'x'", "[]")))
    elif kind == 3:
        header = rng.choice(
            ("", "{", "{}", "\x00" * 20, "'" * 30, "(" * 5000, "1" * 5000, "{'descr': '<i8'", '"""',
             "\\", "0_", "é", "{" * 9000, "-" * 9000, "[" + "1," * 4000)
        )
    else:
        changed, _ = change_bytes(rng, header.encode("latin1"))
        header = changed.decode("latin1")
    return _npy(header, body, rng.choice((1, 1, 1, 2, 3, 9))), "header"


def _with(header: str, key: str, value: str) -> str:
    """The header with another value for a key, up to the next key."""
    start = header.find(key)
    if start < 0:
        return header + value
    start += len(key)
    ends = [
        at
        for at in (header.find(", '", start), header.find(", }", start), header.find("}", start))
        if at >= 0
    ]
    return header[:start] + value + header[min(ends, default=len(header)) :]


def _npy(header: str, body: bytes, version: int) -> bytes:
    text = header.encode("utf-8" if version > 2 else "latin1", "replace")[:60_000]
    size = struct.pack("<H", len(text)) if version == 1 else struct.pack("<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + size + text + body


def npy_bytes(array: np.ndarray) -> bytes:
    """An array as an .npy file."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, allow_pickle=False)
    return stream.getvalue()


def change_npz(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    """An .npz file with a damaged member, or with members too many or too few."""
    members = read_zip(data)
    name = rng.choice(sorted(members))
    kind = rng.randrange(12)
    if kind == 0:
        del members[name]
        return write_zip(rng, members), f"no {name}"
    if kind == 1:
        other = rng.choice(sorted(members))
        members[name] = members[other]
        return write_zip(rng, members), f"{other} as {name}"
    if kind == 2:
        members[
            rng.choice(
                (f"../{name}", f"/{name}", "x" * 5000, "", special(rng).decode("latin1")[:1000])
            )
        ] = members.pop(name)
        return write_zip(rng, members), "name of a member"
    if kind == 3:
        members[name] = rng.choice(
            (b"", b"\x93NUMPY", pickle.dumps([1, 2]), object_array(), b"PK\x03\x04")
        )
        return write_zip(rng, members), f"{name} is no array"
    if kind == 4:
        members[name] = _npy(
            f"{{'descr': '|b1', 'fortran_order': False, 'shape': ({64 << 20},), }}",
            bytes(64 << 20),
            1,
        )
        return write_zip(rng, members, zipfile.ZIP_DEFLATED), f"{name} is 64 MiB of zeros"
    members[name], what = change_npy(rng, members[name])
    return write_zip(rng, members), f"{name}: {what}"


def object_array() -> bytes:
    """An .npy file of Python objects."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.array([{"a": 1}], object), allow_pickle=True)
    return stream.getvalue()


def read_zip(data: bytes) -> dict[str, bytes]:
    """The members of a zip file."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name) for name in file.namelist()}


def write_zip(rng: random.Random, members: dict[str, bytes], method: int | None = None) -> bytes:
    """A zip file; sometimes with a method of compression that is not used for arrays, or with a
    member twice."""
    stream = io.BytesIO()
    if method is None:
        method = rng.choice(
            (zipfile.ZIP_STORED,) * 5
            + (zipfile.ZIP_DEFLATED,) * 5
            + (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with zipfile.ZipFile(stream, "w", method) as file:
            for name, data in members.items():
                file.writestr(zipfile.ZipInfo(name), data, method)
            if rng.random() < 0.03:
                name, data = rng.choice(sorted(members.items()))
                file.writestr(zipfile.ZipInfo(name), data)
    return stream.getvalue()
