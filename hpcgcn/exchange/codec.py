"""What a codec is: a pair encode/decode over one contiguous byte buffer per peer.

A codec is stateless. What both sides must know (rate, key, node ids) is a function of the epoch
they agree on, so no indices and no lengths are sent. `Rows` names the rows of a message on either
side.
"""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpcgcn import philox


@dataclass
class Draw:
    """What a message's random draws depend on; sender and receiver hold equal ones."""

    seed: int
    epoch: int
    layer: int
    stream: int = 0                    # tells apart the senders of gradients for the same node

    def key(self, purpose: int, stream: int = 0) -> tuple[int, int]:
        """The key of the generator for one purpose."""
        return philox.key(self.seed, self.epoch, self.layer, purpose, stream)


@dataclass
class Rows:
    """The rows of a message: where they are in the array (None: all, in order), and their ids."""

    index: Any                       # backend array (n,) int32, or None
    ids: Any                         # backend array (n,) int64
    host_ids: np.ndarray             # the same on the host, for draws that choose rows
    drawn: tuple = (None, None)      # the last draw that chose among them, and what it chose
    reader: int = 0                  # the rank that reads them, which has draws of its own
    # (n,) how much an error of each row adds to the receiver's sums; None: all alike.
    weights: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.host_ids)


class Codec:
    """Base: `rate` is what a schedule moves (bits, or a ratio); codecs without one ignore it."""

    name = "fp32"
    exact = False                    # True: what arrives is what was sent
    weighs_rows = False              # does it use Rows.weights?
    leaves_out = False               # are some rows not sent, so that they count as zeros?
    by_message = False               # does a row's code depend on the other rows of its message?

    def nbytes(self, backend, rows: Sized, width: int, rate: float, draw: Draw | None) -> int:
        """Bytes of the message for these rows; their number is enough, except for `nodes`."""
        raise NotImplementedError

    def parameter_bytes(self, n_rows: int, rate: float) -> int:
        """Bytes of quantisation scales and offsets in a message of that many rows."""
        return 0

    def chosen(self, rows: Rows, rate: float, draw: Draw) -> np.ndarray:
        """Positions of the rows that are sent, sorted."""
        return np.arange(len(rows))

    def encode(self, backend, x, rows: Rows, rate: float, draw: Draw, data):
        """data = the coded rows of x; data is a uint8 array of exactly nbytes."""
        raise NotImplementedError

    def decode(self, backend, data, rows: Rows, rate: float, draw: Draw, out):
        """out = the rows as the receiver sees them, (n, width)."""
        raise NotImplementedError
