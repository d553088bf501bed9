"""Damage of text files: tables, TOML, JSON, Matrix Market. Numbers, quotes, nesting, encodings,
lines."""

from __future__ import annotations

import random
import re

_TOKEN = re.compile(rb"[A-Za-z_][\w.:-]*|[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\"[^\"\n]*\"")
_PUNCTUATION = re.compile(rb"[,;\t :=\[\]{}\"'\n]")
_NUMBERS = [b"0", b"-1", b"1", b"2", b"3", b"7", b"0.5", b"-0.0", b"1e999", b"-1e999", b"1e38",
            b"3.5e38", b"1e-320", b"nan", b"NaN", b"inf", b"-inf", b"Infinity", b"2147483647",
            b"2147483648", b"4294967296", b"9223372036854775807", b"9223372036854775808",
            b"18446744073709551616", b"-9223372036854775809", b"9" * 30, b"9" * 400, b"9" * 5000,
            b"0x10", b"0b11", b"1_000", b"1_", b"00", b"+1", b"1.", b".5", b"1e", b"1e5",
            b"0" * 300 + b"1", b"1" + b"0" * 4299]
_WORDS = [b"", b"true", b"false", b"True", b"null", b"none", b"None", b"auto", b"label", b"split",
          b"train", b"id", b"x" * 300, b"y" * 100_000, b"\xc3\xa4", b"\xff\xfe", b"\x00",
          b"\x1b[31mred\x1b[0m", b"\x1b]0;title\x07", b"a\rb", b"\xe2\x80\xae", b'"', b'""', b"'",
          b'"unclosed', b"'''", b'"""', b"[]", b"{}", b"[1]", b'{"a": 1}', b"{a = 1}",
          b"1979-05-27", b"07:32:00", b"\\u0000", b'"\\u001b[2J"', b'"\\ud800"', b"../../x", b"%",
          b"#", b"=1+1", b"-", b"\t", b" ", b",", b";"]
_LINES = [b"", b",", b",,,,,,", b"\t", b"   ", b"#", b"%", b"[table]", b"[[array]]", b"a.b.c = 1",
          b"x = " + b"[" * 3000, b"x = " + b"{a=" * 2000, b"[" * 5000, b'{"a":' * 3000,
          b"x" * 70_000 + b" = 1", b"1," * 3000, b"1 2 3 4 5 6 7 8 9",
          b"x = '" + b"z" * 20_000 + b"'", b'"a\nb"', b"\x00", b"\xef\xbb\xbf",
          b"hidden = 1" + b"0" * 5000, b"lr = 1" + b"0" * 400]
_ENCODINGS = ("utf-16", "utf-32", "utf-8-sig", "cp500")


def change_text(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    """(the text with one change, what was changed)."""
    change = rng.choice(_CHANGES)
    return change(rng, data), change.__name__.strip("_")


def special(rng: random.Random) -> bytes:
    """A number or word that programs stumble over."""
    return rng.choice(_NUMBERS if rng.random() < 0.5 else _WORDS)


def _replace(rng, data: bytes, pattern) -> bytes:
    found = list(pattern.finditer(data))
    if not found:
        return data + special(rng)
    match = rng.choice(found)
    return data[: match.start()] + special(rng) + data[match.end() :]


def _token(rng, data):
    return _replace(rng, data, _TOKEN)


def _several_tokens(rng, data):
    for _ in range(rng.randint(2, 6)):
        data = _replace(rng, data, _TOKEN)
    return data


def _punctuation(rng, data):
    return _replace(rng, data, _PUNCTUATION)


def _lines(data: bytes) -> list[bytes]:
    return data.split(b"\n")


def _line_removed(rng, data):
    lines = _lines(data)
    del lines[rng.randrange(len(lines))]
    return b"\n".join(lines)


def _line_repeated(rng, data):
    lines = _lines(data)
    at = rng.randrange(len(lines))
    lines[at:at] = [lines[at]] * rng.choice((1, 1, 2, 1000))
    return b"\n".join(lines)


def _line_replaced(rng, data):
    lines = _lines(data)
    lines[rng.randrange(len(lines))] = rng.choice(_LINES)
    return b"\n".join(lines)


def _line_inserted(rng, data):
    lines = _lines(data)
    lines.insert(rng.randrange(len(lines) + 1), rng.choice(_LINES))
    return b"\n".join(lines)


def _lines_swapped(rng, data):
    lines = _lines(data)
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return b"\n".join(lines)


def _separators(rng, data):
    return data.replace(rng.choice((b",", b" ", b"\t", b"=")),
                        rng.choice((b";", b"\t", b" ", b",", b"  ", b":")))


def _line_ends(rng, data):
    return data.replace(b"\n", rng.choice((b"\r\n", b"\r", b"\n\n", b"\n\r")))


def _encoding(rng, data):
    return data.decode("utf-8", "replace").encode(rng.choice(_ENCODINGS), "replace")


def _nested(rng, data):
    depth = rng.choice((50, 2000, 50_000))
    opened, closed = rng.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"{a=", b"}")))
    match = rng.choice(list(_TOKEN.finditer(data)) or [re.match(b"", data)])
    middle = opened * depth + b"1" + (closed * depth if rng.random() < 0.7 else b"")
    return data[: match.start()] + middle + data[match.end() :]


def _without_end(rng, data):
    return data.rstrip(b"\n")


_CHANGES = (_token, _token, _token, _token, _several_tokens, _punctuation, _punctuation,
            _line_removed, _line_repeated, _line_replaced, _line_inserted, _lines_swapped,
            _separators, _line_ends, _encoding, _nested, _without_end)
