"""Codec `adaptive`: 1, 2, 4 or 8 bits per row, more for rows that the receiver's sums feel most.

A message has the size of uniform bits at the same rate and 8 bytes more, whatever its rows hold, so
both sides know it. A word at its head tells how it goes on: with two bits per row for its width and
the rows grouped by width, each group as `quantise` writes it; or with uniform bits, where those
lose no more, because rows are alike or so short that their widths would cost too much.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpcgcn import philox
from hpcgcn.exchange.bit_widths import QUANTISED, choose_widths, row_bytes, row_errors
from hpcgcn.exchange.codec import Codec, Rows
from hpcgcn.exchange.row_extents import RowExtents

ALIGNED = 8                          # bytes: where groups begin, so that kernels may read pairs
WIDTHS_PER_BYTE = 4
HEAD = 8                             # bytes: 0, or the bits that all rows have


class AdaptiveCodec(Codec):
    """The rate is the mean of bits per element that a message pays for, 1 to 8."""

    name = "adaptive"
    weighs_rows = by_message = True

    def __init__(self, wide_parameters: bool, nearest: bool):
        self.wide, self.nearest = wide_parameters, nearest
        self._extents = RowExtents()
        self._grouped: Any = None                # decoded rows in the order of the message

    def parameter_bytes(self, n_rows, rate):
        return n_rows * (8 if self.wide else 4) + (HEAD if n_rows else 0)

    @staticmethod
    def _overhead(n_rows: int) -> int:
        """Bytes of the rows' widths, and between groups."""
        return _aligned(-(-n_rows // WIDTHS_PER_BYTE)) + 3 * (ALIGNED - 1)

    def nbytes(self, backend, rows, width, rate, draw):
        n, uniform = len(rows), row_bytes(width)[_uniform(rate)]
        elements = max(n * uniform, int(n * min(width * rate / 8, row_bytes(width)[-1])))
        return self.parameter_bytes(n, rate) + elements

    # -- coding ------------------------------------------------------------------------------------
    def encode(self, backend, x, rows, rate, draw, data):
        n, width = len(rows), x.shape[1]
        if not n:
            return
        widths = self._widths(backend, x, rows, rate, len(data) - self.parameter_bytes(n, rate))
        key = None if self.nearest else draw.key(philox.ROUNDING, draw.stream)
        if widths is None:
            bits = QUANTISED[_uniform(rate)]
            last = HEAD + self._group_bytes(n, width, bits)
            backend.copy(np.full(HEAD, bits, np.uint8), data[:HEAD])
            backend.quantise(x, rows.index, rows.ids, bits, key, self.wide, data[HEAD:last])
            backend.clear(data[last:])
            return
        at = self._write_widths(backend, widths, data)
        order, counts = _groups(widths)
        index = order if rows.index is None else np.asarray(backend.to_host(rows.index))[order]
        ids, first = np.asarray(backend.to_host(rows.ids))[order], 0
        for bits, count in zip(QUANTISED, counts):
            if count:
                group = slice(first, first + count)
                last = at + self._group_bytes(count, width, bits)
                backend.quantise(x, backend.from_host(index[group].astype(np.int32)),
                                 backend.from_host(ids[group]), bits, key, self.wide,
                                 data[at:last])
                at, first = self._next_group(backend, data, last), first + count
        backend.clear(data[at:])                 # what is left over must not tell of old messages

    def decode(self, backend, data, rows, rate, draw, out):
        n, width = out.shape
        if not n:
            return
        bits = int(backend.to_host(data[:1])[0])
        if bits:
            last = HEAD + self._group_bytes(n, width, bits)
            backend.dequantise(data[HEAD:last], bits, self.wide, out)
            return
        widths = self._read_widths(backend, data, n)
        order, counts = _groups(widths)
        if self._grouped is None or len(self._grouped) < n * width:
            self._grouped = backend.zeros(n * width)
        grouped = self._grouped[:n * width].reshape(n, width)
        at, first = HEAD + _aligned(-(-n // WIDTHS_PER_BYTE)), 0
        for bits, count in zip(QUANTISED, counts):
            if count:
                last = at + self._group_bytes(count, width, bits)
                backend.dequantise(data[at:last], bits, self.wide, grouped[first:first + count])
                at, first = _aligned(last), first + count
        place = np.empty(n, np.int32)
        place[order] = np.arange(n, dtype=np.int32)
        backend.gather_rows(grouped, backend.from_host(place), out)

    def _widths(self, backend, x, rows: Rows, rate: float, budget: int) -> np.ndarray | None:
        """Which of QUANTISED each row has; None: all alike, as the rate says."""
        width, budget = x.shape[1], budget - self._overhead(len(rows))
        if budget < len(rows) * row_bytes(width)[0]:
            return None
        importance, errors = self._importance(backend, x, rows), np.array(row_errors(self.nearest))
        widths = choose_widths(importance, width, budget, self.nearest)
        lost = float(importance @ errors[widths])
        return widths if lost < float(importance.sum()) * errors[_uniform(rate)] else None

    def _importance(self, backend, x, rows: Rows) -> np.ndarray:
        """(w R)^2 of each row; 0 where a value is not finite: such a row arrives as NaN anyway."""
        _, halves = self._extents.halves(backend, x, rows.index, rows.ids)
        felt = halves.astype(np.float64) * (1.0 if rows.weights is None else rows.weights)
        return np.nan_to_num(felt * felt, nan=0.0, posinf=0.0)

    # -- layout ------------------------------------------------------------------------------------
    def _group_bytes(self, count: int, width: int, bits: int) -> int:
        return count * ((8 if self.wide else 4) + -(-width * bits // 8))

    @staticmethod
    def _next_group(backend, data, last: int) -> int:
        """Where the group after one that ends here begins; what is between is cleared."""
        at = min(_aligned(last), len(data))
        backend.clear(data[last:at])
        return at

    @staticmethod
    def _write_widths(backend, widths: np.ndarray, data) -> int:
        """The head of a message; returns where the first group begins."""
        backend.clear(data[:HEAD])
        padded = np.zeros(_aligned(-(-len(widths) // WIDTHS_PER_BYTE)) * WIDTHS_PER_BYTE, np.uint8)
        padded[:len(widths)] = widths
        shifts = np.arange(0, 8, 2, dtype=np.uint8)
        packed = np.bitwise_or.reduce(padded.reshape(-1, WIDTHS_PER_BYTE) << shifts, axis=1)
        backend.copy(packed, data[HEAD:HEAD + len(packed)])
        return HEAD + len(packed)

    @staticmethod
    def _read_widths(backend, data, n: int) -> np.ndarray:
        packed = np.asarray(backend.to_host(data[HEAD:HEAD - (-n // WIDTHS_PER_BYTE)]))
        return ((packed[:, None] >> np.arange(0, 8, 2, dtype=np.uint8)) & 3).reshape(-1)[:n]


def _uniform(rate: float) -> int:
    """Which of QUANTISED uniform bits have at this rate."""
    return max(k for k, bits in enumerate(QUANTISED) if bits <= max(rate, 1))


def _aligned(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED


def _groups(widths: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """(rows in the order of their widths, how many have each)."""
    return (np.argsort(widths, kind="stable"),
            np.bincount(widths, minlength=len(QUANTISED)).tolist())
