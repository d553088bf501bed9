"""Damage of pickles: programs of the pickle machine that are small and ask for much, and objects of
other kinds."""

from __future__ import annotations

import pickle
import random

import numpy as np

from fuzz.change_arrays import change_array
from fuzz.change_bytes import change_bytes


def change_pickle(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    """(another pickle, what it is)."""
    kind = rng.randrange(10)
    if kind < 3:
        return change_bytes(rng, data)
    if kind < 6:
        return _other_contents(rng, data)
    if kind < 8:
        change = rng.choice(_PROGRAMS)
        return change(rng), change.__name__.strip("_")
    return random_program(rng), "random program"


def _other_contents(rng, data: bytes) -> tuple[bytes, str]:
    """The same kind of object with other arrays in it; the sound pickles are our own."""
    value = pickle.loads(data)
    if isinstance(value, dict):
        key = rng.choice(list(value))
        value[key] = rng.choice(
            ([], [-1], [10**30], ["a"], [None], {}, 3, "text", [[1]], (1, 2), [1.5], [2**31],
             [True])
        )
        if rng.random() < 0.3:
            value[rng.choice(("a", -1, 10**30, None, (1, 2), 1.5))] = [1]
        what = "adjacency"
    elif isinstance(value, np.ndarray):
        value, what = change_array(rng, value)
    else:
        name = rng.choice(("data", "indices", "indptr"))
        array, what = change_array(rng, getattr(value, name))
        state = value.__dict__ | {name: array}
        if rng.random() < 0.3:
            state["_shape"] = rng.choice(
                ((0, 0), (2**40, 3), (-1, 3), (3,), "ab", None, (1.5, 2), (10**30, 1))
            )
        value.__dict__.update(state)
    return pickle.dumps(value, protocol=rng.choice((0, 1, 2, 2, 3, 4, 5))), what


# -- programs --------------------------------------------------------------------------------------


def _doubled_tuple_key(rng) -> bytes:
    """A tuple of twice a tuple of twice a tuple ..., as a key: its hash takes 2^n steps."""
    return b"}" + b")" + b"2\x86" * rng.randint(20, 200) + b"K\x01s."


def _memo_tuple_key(rng) -> bytes:
    body = b")q\x00"
    for _ in range(rng.randint(20, 100)):
        body += b"h\x00h\x00\x86q\x00"
    return b"}" + body + b"K\x01s."


def _deep_tuple_key(rng) -> bytes:
    """A hash that goes as deep as the tuple."""
    return b"}" + b")" + b"\x85" * rng.choice((1000, 100_000)) + b"K\x01s."


def _deep_list(rng) -> bytes:
    return b"]" * 3000 + b"a" * 2999 + b"."


def _doubled_lists(rng) -> bytes:
    return b"]q\x00" + b"]q\x01h\x00ah\x00aq\x00" * rng.randint(20, 100) + b"."


def _own_list(rng) -> bytes:
    return b"]q\x00h\x00a."


def _own_dict(rng) -> bytes:
    return b"}q\x00K\x00h\x00s."


def _shared_rows(rng) -> bytes:
    """Adjacency lists that are all the same list: edges grow with the square of the file."""
    n = rng.choice((100, 2000))
    row = b"(" + b"K\x01" * n + b"e"
    return (
        b"}]q\x00"
        + row
        + b"0"
        + b"("
        + b"".join(b"M" + (k % 65536).to_bytes(2, "little") + b"h\x00" for k in range(n))
        + b"u."
    )


def _long_number(rng) -> bytes:
    return rng.choice(
        (b"I" + b"9" * 100_000 + b"\n.", b"L" + b"9" * 5000 + b"L\n.",
         b"\x8b\xff\xff\xff\x7f" + b"\x01" * 10 + b".", b"}I" + b"9" * 4000 + b"\n]s.")
    )


def _long_text(rng) -> bytes:
    return rng.choice(
        (b"X\xff\xff\xff\x7fabc.", b"\x8d" + b"\xff" * 8 + b"abc.",
         b"\x8e" + b"\xff" * 7 + b"\x7f" + b"abc.")
    )


def _called(rng) -> bytes:
    """Calls of what may be called, with other arguments than expected."""
    module, name = rng.choice(
        ((b"numpy", b"dtype"), (b"numpy.core.multiarray", b"_reconstruct"), (b"_codecs", b"encode"),
         (b"collections", b"defaultdict"), (b"builtins", b"list"), (b"builtins", b"bytes"),
         (b"numpy", b"ndarray"), (b"scipy.sparse._csr", b"csr_matrix"), (b"os", b"system"),
         (b"builtins", b"eval"), (b"numpy.core.multiarray", b"scalar"), (b"builtins", b"bytearray"))
    )
    arguments = rng.choice(
        (b")", b"(K\x05t", b"(X\x02\x00\x00\x00i8K\x00K\x01t", b"(]t", b"(NNNt", b"((((tttt",
         b"(J\xff\xff\xff\x7ft")
    )
    state = rng.choice(
        (b"", b"Nb", b"}b", b"(K\x01K\x02tb", b"]b", b"(K\x01(J\xff\xff\xff\x7ftNI00\nC\x00tb")
    )
    return b"\x80\x02c" + module + b"\n" + name + b"\n" + arguments + b"R" + state + b"."


_PROGRAMS = (_doubled_tuple_key, _memo_tuple_key, _deep_tuple_key, _deep_list, _doubled_lists,
             _own_list, _own_dict, _shared_rows, _long_number, _long_text, _called, _called,
             _called)
_PIECES = [b"]", b"}", b")", b"(", b"t", b"\x85", b"\x86", b"\x87", b"a", b"e", b"s", b"u", b"l",
           b"d", b"0", b"1", b"2", b"N", b"\x88", b"\x89", b"K\x05", b"M\x01\x02", b"I7\n",
           b"L9L\n", b"\x8a\x02\x01\x01", b"F1.5\n", b"U\x01a", b"X\x01\x00\x00\x00b", b"C\x01c",
           b"q\x00", b"q\x01", b"h\x00", b"h\x01", b"\x94", b"R", b"b", b"\x81", b"cnumpy\ndtype\n",
           b"cnumpy\nndarray\n", b"cnumpy.core.multiarray\n_reconstruct\n",
           b"ccollections\ndefaultdict\n", b"c__builtin__\nlist\n", b"c_codecs\nencode\n"]


def random_program(rng: random.Random) -> bytes:
    """Opcodes in any order."""
    return b"\x80\x02" + b"".join(rng.choice(_PIECES) for _ in range(rng.randint(1, 60))) + b"."
