"""Is a file built as its schema says?

Asked once when it is opened, before anything in it is read or used.

Types, ranks, shapes, sizes against the file's own bytes, storage in this very file; and no links
that leave it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import h5py
import numpy as np

from hpcgcn.errors import printable
from hpcgcn.graph.schema import Array, Attribute, Group
from hpcgcn.graph.values import Unfit, expected, read_attribute

_CRC = Attribute("int", 0, required=False)
_MOST_PROBLEMS = 20


class Structure:
    """A file compared with its schema: `facts` of its header and `problems`, which are few and
    empty if all is well."""

    def __init__(self, file: h5py.File, schema: Group, n_bytes: int):
        self._left = n_bytes             # of the file, that no array has claimed yet
        self._n_bytes = n_bytes
        self._sizes: dict[str, int] = {}
        self.facts: dict = {}
        self.problems: list[str] = []
        try:
            self.problems += itertools.islice(self._file_problems(file, schema), _MOST_PROBLEMS)
        except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:
            self.problems.append(f"its structure cannot be read ({error})")

    def _file_problems(self, file: h5py.File, schema: Group) -> Iterator[str]:
        wrong = list(self._attribute_problems(file, schema.attributes, self.facts))
        yield from wrong
        if not wrong:                    # shapes are measured by the facts
            self._sizes = {name: value for name, value in self.facts.items() if type(value) is int}
            wrong = list(self._member_problems(file, schema, ""))
            yield from wrong
        if not wrong:
            yield from schema.relations(file, self.facts)

    def _attribute_problems(self, item, attributes: dict[str, Attribute], facts: dict,
                            where: str = "") -> Iterator[str]:
        for name, attribute in attributes.items():
            if name not in item.attrs:
                if attribute.required:
                    yield f"{where}the attribute {name} is missing, expected {expected(attribute)}"
                continue
            try:
                facts[name] = read_attribute(item, name, attribute)
            except (Unfit, OSError, RuntimeError, KeyError, TypeError) as error:
                yield (f"{where}the attribute {name} is {_short(error)}, expected "
                       f"{expected(attribute)}")

    def _member_problems(self, group: h5py.Group, schema: Group, where: str) -> Iterator[str]:
        held = list(group)
        for name, expected_here in schema.members.items():
            first = expected_here[0] if isinstance(expected_here, tuple) else expected_here
            if first.required and name not in held:
                yield f"{where}/{name} is missing, expected {self._words(expected_here)}"
        for name in held:
            path = f"{where}/{_shown(name)}"
            member = schema.members.get(name, schema.others)
            if member is None or isinstance(name, bytes):
                yield f"{path} does not belong here: expected " + (", ".join(schema.members)
                                                                   or "a name in UTF-8")
            elif not isinstance(group.get(name, getlink=True), h5py.HardLink):
                yield (f"{path} is a link to another place, expected {self._words(member)} in "
                       "this file")
            else:
                yield from self._object_problems(group[name], member, path)

    def _object_problems(self, item, member, path: str) -> Iterator[str]:
        """Compare with the alternative that is most alike."""
        choices = member if isinstance(member, tuple) else (member,)
        arrays = [choice for choice in choices if isinstance(choice, Array)]
        groups = [choice for choice in choices if isinstance(choice, Group)]
        if isinstance(item, h5py.Dataset) and arrays:
            yield from self._array_problems(item, arrays, member, path)
        elif isinstance(item, h5py.Group) and groups:
            group = next((choice for choice in groups if set(choice.members) <= set(item)),
                         groups[0])
            yield from self._attribute_problems(item, group.attributes, {}, f"{path}: ")
            yield from self._member_problems(item, group, path)
        else:
            yield f"{path} is a {type(item).__name__.lower()}, expected {self._words(member)}"

    def _array_problems(self, item: h5py.Dataset, choices: list[Array], member,
                        path: str) -> Iterator[str]:
        dtype = _dtype(item)
        if dtype is None or item.id.get_space().get_simple_extent_type() != h5py.h5s.SIMPLE:
            yield f"{path} is of {_strange(item)}, expected {self._words(member)}"
            return
        fitting = next((choice for choice in choices if _kind(dtype) in choice.types
                        and self._fits(item.shape, choice)), None)
        if fitting is None:
            yield f"{path} is {_kind(dtype)} of shape {item.shape}, expected {self._words(member)}"
            return
        self._bind(item.shape, fitting)
        yield from self._storage_problems(item, dtype, path)
        if "crc32" in item.attrs:
            yield from self._attribute_problems(item, {"crc32": _CRC}, {}, f"{path}: ")

    def _storage_problems(self, item: h5py.Dataset, dtype: np.dtype, path: str) -> Iterator[str]:
        """Data elsewhere, or more than the file has: nothing of it may be allocated, let alone
        read."""
        plist = item.id.get_create_plist()
        size = math.prod(item.shape) * dtype.itemsize
        if plist.get_layout() != h5py.h5d.CONTIGUOUS or plist.get_external_count():
            yield (f"{path} is virtual, external, compressed or in chunks, expected contiguous "
                   "data in this file")
        elif size and (item.id.get_offset() is None or item.id.get_storage_size() != size
                       or item.id.get_offset() + size > self._n_bytes):
            yield (f"{path} should take {size:,} bytes, which are not in this file of "
                   f"{self._n_bytes:,} bytes")
        elif size > self._left:
            yield f"{path} shares its data with another array, or the file is too short for both"
        self._left -= size

    def _fits(self, shape: tuple[int, ...], array: Array) -> bool:
        if array.shape is None:
            return len(shape) > 0
        return len(shape) == len(array.shape) and all(self._size(name) in (None, size)
                                                      for name, size in zip(array.shape, shape))

    def _bind(self, shape: tuple[int, ...], array: Array):
        for name, size in zip(array.shape or (), shape):
            if name != "*" and self._size(name) is None:
                self._sizes[name] = size

    def _size(self, dimension: str) -> int | None:
        """The number that a part of a shape stands for, None while it is free."""
        if dimension.isdigit():
            return int(dimension)
        name, _, more = dimension.partition(" + ")
        return None if name not in self._sizes else self._sizes[name] + int(more or 0)

    def _words(self, member) -> str:
        """What a member should be."""
        if isinstance(member, tuple):
            return " or ".join(self._words(choice) for choice in member)
        if isinstance(member, Group):
            return "a group" + (f" of {', '.join(member.members)}" if member.members else "")
        types = " or ".join(member.types) if len(member.types) < 5 else "numbers"
        if member.shape is None:
            return types
        sizes = ", ".join(name if self._size(name) is None else f"{name} = {self._size(name)}"
                          for name in member.shape)
        return f"{types} of shape ({sizes})"


def _dtype(item: h5py.Dataset) -> np.dtype | None:
    """The type of plain numbers (little-endian, whole bytes) or of fixed-length strings; None for
    any other."""
    held = item.id.get_type()
    if held.get_class() == h5py.h5t.STRING:
        return None if held.is_variable_str() else np.dtype(f"S{held.get_size()}")
    if held.get_class() not in (h5py.h5t.INTEGER, h5py.h5t.FLOAT):
        return None
    try:
        dtype = held.dtype
    except (TypeError, ValueError):      # a format that NumPy has not
        return None
    plain = dtype.kind in "iuf" and dtype.itemsize <= 8 and dtype.byteorder in "<=|"
    return dtype if plain and h5py.h5t.py_create(dtype).equal(held) else None


def _kind(dtype: np.dtype) -> str:
    return "bytes" if dtype.kind == "S" else dtype.name


_CLASSES = {h5py.h5t.INTEGER: "integers of an unusual kind",
            h5py.h5t.FLOAT: "numbers of an unusual kind",
            h5py.h5t.STRING: "strings of variable length", h5py.h5t.COMPOUND: "compound type",
            h5py.h5t.ENUM: "an enumeration", h5py.h5t.VLEN: "lists of variable length",
            h5py.h5t.OPAQUE: "opaque type", h5py.h5t.REFERENCE: "references",
            h5py.h5t.ARRAY: "arrays", h5py.h5t.BITFIELD: "bit fields", h5py.h5t.TIME: "times"}


def _strange(item: h5py.Dataset) -> str:
    """What an array that cannot be used is of."""
    if _dtype(item) is not None:
        return "one value or none instead of an array"
    return _CLASSES.get(item.id.get_type().get_class(), "an unknown type")


def _shown(name: str | bytes) -> str:
    """A name from a file, for a message; h5py leaves those that are not UTF-8 as bytes."""
    return printable(name.decode("ascii", "replace") if isinstance(name, bytes) else name, 60)


def _short(error: Exception) -> str:
    return str(error) if isinstance(error, Unfit) else f"unreadable ({error})"
