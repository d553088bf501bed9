"""Attributes of HDF5 objects as plain Python values, whatever a file holds in their place."""

from __future__ import annotations

from typing import Any

import h5py

from hpcgcn.files.json_text import Unfit, parse_json
from hpcgcn.graph.schema import Attribute

_H5T = h5py.h5t
_NAMES = {"object": dict, "list": list}
_WORDS = {"int": "an integer", "float": "a floating-point number", "bool": "a boolean",
          "string": "a string",
          "object": "a string of JSON that is an object", "list": "a string of JSON that is a list"}


def expected(attribute: Attribute) -> str:
    """What the attribute must be, in words."""
    least = f" of at least {attribute.least}" if attribute.least is not None else ""
    return _WORDS[attribute.type] + least + (f" and at most {attribute.most}"
                                             if attribute.most is not None else "")


def read_attribute(item: h5py.Group | h5py.Dataset, name: str, attribute: Attribute):
    """The value of an attribute; Unfit if it is not what the schema says."""
    value: Any = plain_attribute(item, name)
    if attribute.type in _NAMES:
        value = parse_json(value) if isinstance(value, str) else value
        fits = isinstance(value, _NAMES[attribute.type])
    else:
        fits = type(value).__name__ == {"string": "str"}.get(attribute.type, attribute.type)
    if not fits:
        raise Unfit(f"a value of type {type(value).__name__}")
    if attribute.least is not None and value < attribute.least:
        raise Unfit(str(value))
    if attribute.most is not None and value > attribute.most:
        raise Unfit(str(value))
    return value


def plain_attribute(item: h5py.Group | h5py.Dataset, name: str) -> int | float | bool | str:
    """The value of an attribute that is one number, boolean or string; Unfit otherwise."""
    held = h5py.h5a.open(item.id, name.encode("utf-8", "surrogateescape"))
    if held.get_space().get_simple_extent_type() != h5py.h5s.SCALAR:
        raise Unfit("an array, or nothing")
    kind = held.get_type()
    if kind.get_class() == _H5T.STRING:
        return _text(item.attrs[name])
    if kind.get_class() == _H5T.ENUM:
        if kind.dtype != bool:
            raise Unfit("a value of an enumeration")
        return bool(item.attrs[name])
    if kind.get_class() == _H5T.INTEGER and kind.get_size() <= 8:
        return int(item.attrs[name])
    if kind.get_class() == _H5T.FLOAT and kind.get_size() in (2, 4, 8):
        return float(item.attrs[name])
    raise Unfit("a value of another type")


def _text(value: str | bytes) -> str:
    """A string that can be written anywhere."""
    try:
        return value.decode() if isinstance(value, bytes) else value.encode().decode()
    except UnicodeError:
        raise Unfit("a string that is not valid UTF-8") from None
