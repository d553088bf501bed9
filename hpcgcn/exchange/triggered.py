"""Change-triggered rows: residual coding of those rows alone that moved since they were last sent.

A row is sent if an element is off by more than `threshold` times the row's largest one, against
what the receiver has. A message is a bit per row, then the differences of the rows that are sent,
as the codec writes them. So its length differs from epoch to epoch: `encode` and `decode` tell how
much of the room they used.
"""

from __future__ import annotations

import numpy as np

from hpcgcn.exchange.codec import Codec, Rows
from hpcgcn.exchange.coding import ResidualCoding
from hpcgcn.exchange.row_extents import RowExtents

ALIGNED = 8                          # bytes: where rows begin


class TriggeredCoding(ResidualCoding):
    """`memory` is what the receiver has."""

    varies = True

    def __init__(self, backend, codec: Codec, shapes: list[tuple[int, int]], largest_incoming: int,
                 threshold: float):
        super().__init__(backend, codec, shapes, largest_incoming)
        self.threshold, self._extents = threshold, RowExtents()
        largest = max((n_rows * width for n_rows, width in shapes), default=0)
        self._moved = backend.zeros((largest,))

    def nbytes(self, rows, width, rate, draw):
        return head_bytes(len(rows)) + super().nbytes(rows, width, rate, draw)

    def moved(self, now, change, ids) -> np.ndarray:
        """Which rows are sent: positions of those whose change is too large; or not a number."""
        size = self._extents.largest(self.backend, now, None, ids)
        off = self._extents.largest(self.backend, change, None, ids)
        return np.flatnonzero(~(off <= self.threshold * size))

    def encode(self, k, rows, outgoing, rate, draw, data):
        backend, memory = self.backend, self.memory[k]
        now, change = (scratch[:memory.size].reshape(memory.shape)
                       for scratch in (self._rows, self._decoded))
        if outgoing.index is not None:
            backend.gather_rows(rows, outgoing.index, now)
        else:
            backend.copy(rows, now)
        backend.axpby(1.0, now, -1.0, memory, change)
        sent = self.moved(now, change, outgoing.ids)
        self.n_coded = len(sent)
        head = head_bytes(len(outgoing))
        backend.copy(_bitmap(sent, len(outgoing)), data[:head])
        part, width = _some(backend, outgoing, sent), memory.shape[1]
        used = head + self.codec.nbytes(backend, part, width, rate, draw)
        index = backend.from_host(sent.astype(np.int32))
        differences = self._moved[:len(sent) * width].reshape(len(sent), width)
        backend.gather_rows(change, index, differences)
        self.codec.encode(backend, differences, part, rate, draw, data[head:used])
        self.codec.decode(backend, data[head:used], part, rate, draw, differences)
        backend.scatter_add_rows(differences, index, memory)
        return used

    def decode(self, data, incoming, rate, draw, target):
        backend, (n_rows, width) = self.backend, target.shape
        head = head_bytes(n_rows)
        bits = np.unpackbits(np.asarray(backend.to_host(data[:head])), bitorder="little")
        sent = np.flatnonzero(bits[:n_rows])
        part = _some(backend, incoming, sent)
        used = head + self.codec.nbytes(backend, part, width, rate, draw)
        change = self._change[:len(sent) * width].reshape(len(sent), width)
        self.codec.decode(backend, data[head:used], part, rate, draw, change)
        backend.scatter_add_rows(change, backend.from_host(sent.astype(np.int32)), target)
        return used

    def keep_moved(self, now, change, ids):
        """change = 0 for rows that are not sent: what becomes of a sample of rows."""
        sent = self.moved(now, change, ids)
        index = self.backend.from_host(sent.astype(np.int32))
        kept = self.backend.zeros((len(sent), change.shape[1]))
        self.backend.gather_rows(change, index, kept)
        self.backend.clear(change)
        self.backend.scatter_add_rows(kept, index, change)


def head_bytes(n_rows: int) -> int:
    """Bytes of the bits that tell which rows are sent."""
    return -(-n_rows // (8 * ALIGNED)) * ALIGNED


def _bitmap(sent: np.ndarray, n_rows: int) -> np.ndarray:
    bits = np.zeros(8 * head_bytes(n_rows), np.uint8)
    bits[sent] = 1
    return np.packbits(bits, bitorder="little")


def _some(backend, rows: Rows, positions: np.ndarray) -> Rows:
    """These rows of a message, in place."""
    ids = np.asarray(backend.to_host(rows.ids))[positions]
    weights = None if rows.weights is None else rows.weights[positions]
    return Rows(None, backend.from_host(ids), rows.host_ids[positions], weights=weights)
