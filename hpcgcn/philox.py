"""Counter-based random numbers: the same draws on any number of ranks, on any backend, with no
state to save.

NumPy's own Philox is the 4x64 variant and cannot be addressed element by element; this is 4x32-10
(Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), vectorised over counters.
"""

from __future__ import annotations

import functools

import numpy as np

# What a draw is for: part of every key, so that no two purposes share a stream.
DROPOUT, ROUNDING, COLUMNS, NODES, ORDER, INIT = range(6)

_MULTIPLY = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)


def philox_words(counter, key) -> tuple[np.ndarray, ...]:
    """The four 32-bit output words (as uint64 arrays) for four broadcastable counter words and a
    key of two words."""
    c0, c1, c2, c3 = np.broadcast_arrays(*(np.asarray(c, np.uint64) for c in counter))
    k0, k1 = int(key[0]), int(key[1])
    for _ in range(10):
        p0, p1 = _MULTIPLY[0] * c0, _MULTIPLY[1] * c2
        c0, c1, c2, c3 = ((p1 >> _SHIFT) ^ c1 ^ np.uint64(k0), p1 & _LOW,
                          (p0 >> _SHIFT) ^ c3 ^ np.uint64(k1), p0 & _LOW)
        k0, k1 = (k0 + _WEYL[0]) & 0xFFFFFFFF, (k1 + _WEYL[1]) & 0xFFFFFFFF
    return c0, c1, c2, c3


class Key(tuple):
    """The two words of one draw, and which draw it is."""

    draw: tuple[int, ...]                        # the arguments of `key`

    @property
    def epoch(self) -> int:
        """In which it is drawn."""
        return self.draw[1]

    def at(self, epoch: int) -> Key:
        """The key of the same draw in another epoch."""
        return key(self.draw[0], epoch, *self.draw[2:])


@functools.lru_cache(maxsize=4096)               # asked for again for every block of rows
def key(seed: int, epoch: int, layer: int, purpose: int, stream: int = 0) -> Key:
    """The key of one draw.

    `stream` separates draws that share everything else (forward and backward, say).
    """
    counter = (epoch & 0xFFFFFFFF, layer & 0xFFFFFFFF, purpose, stream & 0xFFFFFFFF)
    words = philox_words(counter, (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF))
    made = Key((int(words[0]), int(words[1])))
    made.draw = seed, epoch, layer, purpose, stream
    return made


def bits16(draw_key, ids: np.ndarray, width: int) -> np.ndarray:
    """The 16 random bits of every (id, column): (n, width) uint16, as backend/base.py defines
    them."""
    ids = np.asarray(ids).astype(np.uint64)[:, None]
    blocks = np.arange((width + 7) // 8, dtype=np.uint64)[None, :]
    words = philox_words((blocks, ids & _LOW, ids >> _SHIFT, 0), draw_key)
    halves = np.stack([half for w in words for half in (w & np.uint64(0xFFFF), w >> np.uint64(16))],
                      axis=-1)
    return np.ascontiguousarray(halves.reshape(len(ids),
                                               blocks.size * 8)[:, :width].astype(np.uint16))


def uniform(draw_key, n: int) -> np.ndarray:
    """n numbers in [0, 1) with 32 bits each, for the small draws that all ranks make alike."""
    words = philox_words((np.arange((n + 3) // 4), 0, 0, 1), draw_key)
    return (np.stack(words, axis=-1).reshape(-1)[:n]).astype(np.float64) / 2.0 ** 32


def normal(draw_key, n: int) -> np.ndarray:
    """n standard normal numbers (Box-Muller)."""
    pairs = (n + 1) // 2
    u = uniform(draw_key, 2 * pairs)
    radius, angle = np.sqrt(-2.0 * np.log1p(-u[:pairs])), 2.0 * np.pi * u[pairs:]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:n]


def permutation(draw_key, n: int) -> np.ndarray:
    """A random order of range(n)."""
    return np.argsort(uniform(draw_key, n), kind="stable")


def dropout_threshold(p: float) -> int:
    """Dropout probability as the 16-bit threshold that kernels compare with."""
    # all but never all: what is kept is scaled by 65536 / (65536 - threshold)
    return min(int(round(p * 65536)), 65535)


def dropout_scale(threshold: int) -> float:
    """What kept elements are multiplied by."""
    return float(np.float32(65536.0 / (65536 - threshold)))
