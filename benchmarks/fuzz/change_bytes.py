"""Damage that needs no knowledge of a format: bits, bytes, blocks and lengths."""

from __future__ import annotations

import random

NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1,
           2**63, 2**64 - 1)


def change_bytes(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    """(the data with one change, what was changed)."""
    if not data:
        return rng.randbytes(rng.randint(1, 64)), "filled an empty file"
    change = rng.choice(_CHANGES)
    return bytes(change(rng, bytearray(data))), change.__name__.strip("_")


def _place(rng: random.Random, data: bytearray) -> int:
    """Anywhere, but more often near the beginning, where headers are."""
    return rng.randrange(min(len(data), 512)) if rng.random() < 0.3 else rng.randrange(len(data))


def _flip_bit(rng, data):
    data[_place(rng, data)] ^= 1 << rng.randrange(8)
    return data


def _flip_bits(rng, data):
    for _ in range(rng.randint(2, 16)):
        _flip_bit(rng, data)
    return data


def _set_byte(rng, data):
    data[_place(rng, data)] = rng.randrange(256)
    return data


def _set_number(rng, data):
    width, at = rng.choice((1, 2, 4, 8)), _place(rng, data)
    number = rng.choice(NUMBERS) % 256**width
    data[at : at + width] = number.to_bytes(width, rng.choice(("little", "big")))
    return data


def _truncate(rng, data):
    return data[: rng.randrange(len(data))]


def _cut_front(rng, data):
    return data[rng.randint(1, min(len(data), 64)) :]


def _zero_block(rng, data):
    at, length = _place(rng, data), rng.randint(1, 256)
    data[at : at + length] = bytes(len(data[at : at + length]))
    return data


def _fill_block(rng, data):
    at, length = _place(rng, data), rng.randint(1, 64)
    data[at : at + length] = b"\xff" * len(data[at : at + length])
    return data


def _splice(rng, data):
    source, target, length = _place(rng, data), _place(rng, data), rng.randint(1, 512)
    block = data[source : source + length]
    data[target : target + len(block)] = block
    return data


def _insert(rng, data):
    at = _place(rng, data)
    data[at:at] = rng.randbytes(rng.randint(1, 32))
    return data


def _repeat(rng, data):
    at, length = _place(rng, data), rng.randint(1, 256)
    data[at:at] = data[at : at + length] * rng.randint(1, 20)
    return data


def _remove(rng, data):
    at = _place(rng, data)
    del data[at : at + rng.randint(1, 64)]
    return data


def _append(rng, data):
    return data + rng.randbytes(rng.randint(1, 256))


_CHANGES = (_flip_bit, _flip_bit, _flip_bits, _set_byte, _set_number, _set_number, _truncate,
            _cut_front, _zero_block, _fill_block, _splice, _insert, _repeat, _remove, _append)
