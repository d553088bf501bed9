"""Damage of safetensors and of torch's zip files, below the level of bytes."""

from __future__ import annotations

import json
import random
import struct

from fuzz.change_arrays import read_zip, write_zip
from fuzz.change_bytes import change_bytes
from fuzz.change_pickles import random_program
from fuzz.change_text import change_text, special

_TYPES = ("F64", "F32", "F16", "BF16", "I64", "U8", "BOOL", "F8_E4M3", "X", "", 3, None, "C64")
_SHAPES = ([], [0], [1], [-1], [2**40, 2**40], [10**30], ["3"], None, [1.5], [3, 5, 1], [1] * 50,
           "3")
_OFFSETS = ([0, 0], [0, 2**63], [-4, 0], [8, 0], [0, 10**30], [], None, ["0", "4"], [0, 4, 8])


def change_safetensors(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    """A header with other names, types, shapes, offsets or notes; or text that is no such
    header."""
    length = struct.unpack("<Q", data[:8])[0]
    text, body = data[8 : 8 + length], data[8 + length :]
    kind = rng.randrange(8)
    if kind == 0:
        text, what = change_text(rng, text)
    elif kind == 1:
        text, what = change_bytes(rng, text)
    elif kind == 2:
        body, what = change_bytes(rng, body)
    else:
        text, what = _other_entry(rng, text)
    size = len(text) if rng.random() < 0.95 else rng.choice((0, len(text) + 1, 2**40, 2**64 - 1))
    return struct.pack("<Q", size) + text + body, what


def _other_entry(rng, text: bytes) -> tuple[bytes, str]:
    header = json.loads(text)
    name = rng.choice(sorted(name for name in header if name != "__metadata__"))
    kind = rng.randrange(6)
    if kind == 0:
        header[name]["dtype"] = rng.choice(_TYPES)
    elif kind == 1:
        header[name]["shape"] = rng.choice(_SHAPES)
    elif kind == 2:
        header[name]["data_offsets"] = rng.choice(_OFFSETS)
    elif kind == 3:
        new = rng.choice(
            ("", "weight", "\x1b[31m.weight", "a\nb.weight", "x" * 5000,
             "convs.99999999999999999999.lin.weight", "conv1", "norms.0.weight",
             "convs.0.lin_l.weight", "9" * 5000 + ".weight", "convs." + "9" * 5000 + ".bias",
             special(rng).decode("latin1"))
        )
        header[new] = header.pop(name)
    elif kind == 4:
        notes = header.get("__metadata__", {})
        notes[rng.choice(sorted(notes) or ["format"])] = rng.choice(
            ("", "nan", "-1", "1e999", "9" * 5000, "x", "\x1b[2J", "2", "0.5", 3, None)
        )
        header["__metadata__"] = notes
    else:
        header[name] = rng.choice((None, 3, [], {}, header[rng.choice(sorted(header))]))
    return json.dumps(header).encode(), f"{name}"


def change_torch(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    """The pickle within, the records of numbers, or the members of the zip file."""
    if not data.startswith(b"PK"):
        return change_bytes(rng, data)
    members = read_zip(data)
    pickled = next(name for name in members if name.endswith("data.pkl"))
    name, kind = rng.choice(sorted(members)), rng.randrange(10)
    if kind < 3:
        members[pickled], what = change_bytes(rng, members[pickled])
    elif kind < 5:
        members[pickled], what = _program_inside(rng, members[pickled])
    elif kind < 8:
        members[name], what = change_bytes(rng, members[name])
    elif kind == 8:
        del members[name]
        what = f"no {name}"
    else:
        members[name], what = members[rng.choice(sorted(members))], f"another {name}"
    return write_zip(rng, members, 0 if rng.random() < 0.8 else None), what


def _program_inside(rng, pickled: bytes) -> tuple[bytes, str]:
    """Another program, alone or within the sound one; opcodes of frames and memo entries are left
    to fit or not."""
    while True:
        program, what = (
            (random_program(rng), "random program") if rng.random() < 0.4 else _crafted(rng)
        )
        if rng.random() < 0.5:
            return b"\x80\x02" + program, what
        at = rng.randrange(2, len(pickled))
        return pickled[:at] + program.rstrip(b".") + pickled[at:], f"{what} within"


def _crafted(rng) -> tuple[bytes, str]:
    from fuzz.change_pickles import _PROGRAMS

    change = rng.choice(_PROGRAMS)
    return change(rng), change.__name__.strip("_")
