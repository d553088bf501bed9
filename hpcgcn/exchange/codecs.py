"""How rows become bytes: the codecs (codec.py says what one is)."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpcgcn import philox
from hpcgcn.errors import ConfigError
from hpcgcn.exchange.adaptive import AdaptiveCodec
from hpcgcn.exchange.bit_widths import QUANTISED
from hpcgcn.exchange.codec import Codec, Draw, Rows

BIT_WIDTHS = (*QUANTISED, 16, 32)


class PlainCodec(Codec):
    """Rows as they are, or in 16 bits. fp32 is the arithmetic type: float64 runs send float64."""

    def __init__(self, name: str):
        self.name = name
        self.exact = name == "fp32"

    def storage(self, backend):
        """The type in which elements are sent."""
        return {"fp32": backend.dtype, "fp16": np.dtype(np.float16),
                "bf16": np.dtype(np.uint16)}[self.name]

    def nbytes(self, backend, rows, width, rate, draw):
        return len(rows) * width * self.storage(backend).itemsize

    def encode(self, backend, x, rows, rate, draw, data):
        out = data.view(self.storage(backend)).reshape(len(rows), x.shape[1])
        if rows.index is not None:
            backend.gather_rows(x, rows.index, out)
        elif self.exact:
            backend.copy(x, out)         # x may be some columns of longer rows
        else:
            backend.convert(x, out)

    def decode(self, backend, data, rows, rate, draw, out):
        backend.convert(data.view(self.storage(backend)).reshape(out.shape), out)


class BitsCodec(Codec):
    """1, 2, 4 or 8 bits per element, an offset and a scale per row; rates 16 and 32: bf16, fp32."""

    name = "bits"

    def __init__(self, wide_parameters: bool, nearest: bool):
        self.wide = wide_parameters
        self.nearest = nearest
        self.plain = {16: PlainCodec("bf16"), 32: PlainCodec("fp32")}

    @staticmethod
    def bits(rate: float) -> int:
        """The largest width that the rate pays for."""
        return max(b for b in BIT_WIDTHS if b <= max(rate, 1))

    def parameter_bytes(self, n_rows, rate):
        return n_rows * (8 if self.wide else 4) if self.bits(rate) in QUANTISED else 0

    def nbytes(self, backend, rows, width, rate, draw):
        bits = self.bits(rate)
        if bits in self.plain:
            return self.plain[bits].nbytes(backend, rows, width, rate, draw)
        return self.parameter_bytes(len(rows), rate) + len(rows) * (-(-width * bits // 8))

    def encode(self, backend, x, rows, rate, draw, data):
        bits = self.bits(rate)
        if bits in self.plain:
            return self.plain[bits].encode(backend, x, rows, rate, draw, data)
        key = None if self.nearest else draw.key(philox.ROUNDING, draw.stream)
        backend.quantise(x, rows.index, rows.ids, bits, key, self.wide, data)

    def decode(self, backend, data, rows, rate, draw, out):
        bits = self.bits(rate)
        if bits in self.plain:
            return self.plain[bits].decode(backend, data, rows, rate, draw, out)
        backend.dequantise(data, bits, self.wide, out)


class SubsetCodec(Codec):
    """A random subset of the columns, the same for all rows and both directions of a layer.

    The rate is the compression ratio, at least 1.
    """

    name = "subset"

    def __init__(self, rescale: bool):
        self.rescale = rescale
        # {what a draw depends on: the columns}: one draw serves all peers of an exchange
        self._drawn: dict[tuple, Any] = {}

    def columns(self, backend, width: int, rate: float, draw: Draw):
        """The columns of this epoch and layer, sorted, as a backend array."""
        n_columns = max(1, int(width / rate))
        which = (width, n_columns, draw.seed, draw.epoch, draw.layer)
        if which not in self._drawn:
            order = philox.permutation(draw.key(philox.COLUMNS), width)
            columns = np.sort(order[:n_columns]).astype(np.int32)
            self._drawn = {which: backend.from_host(columns)}
        return self._drawn[which]

    def nbytes(self, backend, rows, width, rate, draw):
        return len(rows) * max(1, int(width / rate)) * backend.dtype.itemsize

    def encode(self, backend, x, rows, rate, draw, data):
        columns = self.columns(backend, x.shape[1], rate, draw)
        index = rows.index if rows.index is not None else _all_rows(backend, len(rows))
        packed = data.view(backend.dtype).reshape(len(rows), len(columns))
        backend.pack_columns(x, index, columns, packed)

    def decode(self, backend, data, rows, rate, draw, out):
        columns = self.columns(backend, out.shape[1], rate, draw)
        scale = out.shape[1] / len(columns) if self.rescale else 1.0
        packed = data.view(backend.dtype).reshape(len(rows), len(columns))
        backend.unpack_columns(packed, columns, out, scale)


class NodesCodec(Codec):
    """A random subset of the boundary nodes, drawn each epoch, scaled up by the rate.

    For each receiver a draw of its own, of fixed size; the same for both directions and, where hops
    move the same rows, for all hops.
    """

    name = "nodes"
    leaves_out = by_message = True

    @staticmethod
    def n_chosen(n_rows: int, rate: float) -> int:
        """How many of a message's rows are sent; one at least, or their mean would be lost."""
        return min(max(int(n_rows / rate), 1), n_rows)

    def chosen(self, rows: Rows, rate: float, draw: Draw) -> np.ndarray:
        which = philox.key(draw.seed, draw.epoch, 0, philox.NODES, rows.reader), rate
        if rows.drawn[0] != which:
            # Needed for the size, coding and decoding of all layers' messages: drawn once.
            drawn = philox.bits16(which[0], rows.host_ids, 4).astype(np.uint64)
            order = drawn[:, 0] << 48 | drawn[:, 1] << 32 | drawn[:, 2] << 16 | drawn[:, 3]
            first = np.argsort(order, kind="stable")[:self.n_chosen(len(rows), rate)]
            rows.drawn = which, np.sort(first)
        return rows.drawn[1]

    def nbytes(self, backend, rows, width, rate, draw):
        return self.n_chosen(len(rows), rate) * width * backend.dtype.itemsize

    def encode(self, backend, x, rows, rate, draw, data):
        positions = self.chosen(rows, rate, draw).astype(np.int32)
        index = positions if rows.index is None else backend.to_host(rows.index)[positions]
        packed = data.view(backend.dtype).reshape(len(positions), x.shape[1])
        backend.gather_rows(x, backend.from_host(index), packed)

    def decode(self, backend, data, rows, rate, draw, out):
        positions = self.chosen(rows, rate, draw)
        received = data.view(backend.dtype).reshape(len(positions), out.shape[1])
        backend.axpby(len(rows) / max(len(positions), 1), received, 0.0, None, received)
        backend.clear(out)
        backend.scatter_add_rows(received, backend.from_host(positions.astype(np.int32)), out)


class NoCodec(Codec):
    """Nothing is sent: the receiver has zeros, as if edges to other ranks were cut."""

    name = "none"
    leaves_out = True

    def chosen(self, rows, rate, draw):
        return np.zeros(0, np.int64)

    def nbytes(self, backend, rows, width, rate, draw):
        return 0

    def encode(self, backend, x, rows, rate, draw, data):
        pass

    def decode(self, backend, data, rows, rate, draw, out):
        backend.clear(out)


def _all_rows(backend, n: int):
    return backend.from_host(np.arange(n, dtype=np.int32))


CODEC_NAMES = ("fp32", "fp16", "bf16", "bits", "8bit", "4bit", "2bit", "1bit", "adaptive", "subset",
               "nodes", "none")


def make_codec(name: str, *, wide_parameters: bool = False, nearest: bool = False,
               rescale: bool = False) -> Codec:
    """The codec of that name; `1bit` ... `8bit` are `bits` at a constant rate (see fixed_rate)."""
    if name in ("fp32", "fp16", "bf16"):
        return PlainCodec(name)
    if name == "bits" or fixed_rate(name):
        return BitsCodec(wide_parameters, nearest)
    if name == "adaptive":
        return AdaptiveCodec(wide_parameters, nearest)
    if name == "subset":
        return SubsetCodec(rescale)
    if name == "nodes":
        return NodesCodec()
    if name == "none":
        return NoCodec()
    raise ConfigError(f"codec '{name}' is unknown; choose one of {', '.join(CODEC_NAMES)}")


def fixed_rate(name: str) -> int | None:
    """The bits that a name like `4bit` fixes, or None."""
    return int(name[:-3]) if name.endswith("bit") and name[:-3].isdigit() else None
