"""What sender and receiver remember from message to message, so that a lossy codec loses less.

    DirectCoding      nothing: rows are coded as they are
    ErrorFeedback     the sender adds to its rows what earlier messages lost of them
    ResidualCoding    the sender codes the difference to what the receiver has, which adds it
    TriggeredCoding   the same for rows that moved, and no others (triggered.py)

`memory` holds one array per route, (rows sent, width).
"""

from __future__ import annotations

from typing import Any

from hpcgcn.exchange.codec import Codec, Draw, Rows


class DirectCoding:
    """Each message stands for itself."""

    shift = 0.0                      # what is coded is rows + shift * memory
    varies = False                   # may a message be shorter than `nbytes`?

    def __init__(self, backend, codec: Codec):
        self.backend, self.codec = backend, codec
        self.memory: list[Any] = []      # backend arrays
        self.n_coded = 0                 # rows of the last message, if messages vary

    def nbytes(self, rows: Rows, width: int, rate: float, draw: Draw) -> int:
        """Bytes of a message; the most that it may have if messages vary."""
        return self.codec.nbytes(self.backend, rows, width, rate, draw)

    def encode(self, k: int, rows, outgoing: Rows, rate: float, draw: Draw, data) -> int:
        """data = the message to route k for these rows (`outgoing.index` of them, or all).

        Returns the bytes that it has; so does `decode`.
        """
        self.codec.encode(self.backend, rows, outgoing, rate, draw, data)
        return len(data)

    def decode(self, data, incoming: Rows, rate: float, draw: Draw, target) -> int:
        """target = the rows that a message stands for."""
        self.codec.decode(self.backend, data, incoming, rate, draw, target)
        return len(data)


class ErrorFeedback(DirectCoding):
    """`memory` is what all messages so far lost."""

    shift = 1.0

    def __init__(self, backend, codec: Codec, shapes: list[tuple[int, int]]):
        """shapes: (rows sent, width) of each route."""
        super().__init__(backend, codec)
        self.memory = [backend.zeros(shape) for shape in shapes]
        largest = max((n_rows * width for n_rows, width in shapes), default=0)
        self._rows, self._decoded = backend.zeros((largest,)), backend.zeros((largest,))

    def encode(self, k, rows, outgoing, rate, draw, data):
        memory = self.memory[k]
        corrected, decoded = self._coded(k, rows, outgoing, rate, draw, data)
        self.backend.axpby(1.0, corrected, -1.0, decoded, memory)
        return len(data)

    def _coded(self, k, rows, outgoing, rate, draw, data):
        """Code rows + shift * memory; returns that sum and what the receiver decodes."""
        backend, memory = self.backend, self.memory[k]
        shifted, decoded = (scratch[:memory.size].reshape(memory.shape)
                            for scratch in (self._rows, self._decoded))
        if outgoing.index is not None:
            backend.gather_rows(rows, outgoing.index, shifted)
        else:
            backend.copy(rows, shifted)
        backend.axpby(1.0, shifted, self.shift, memory, shifted)
        packed = Rows(None, outgoing.ids, outgoing.host_ids, weights=outgoing.weights)
        self.codec.encode(backend, shifted, packed, rate, draw, data)
        self.codec.decode(backend, data, outgoing, rate, draw, decoded)
        return shifted, decoded


class ResidualCoding(ErrorFeedback):
    """`memory` is what the receiver has."""

    shift = -1.0

    def __init__(self, backend, codec: Codec, shapes: list[tuple[int, int]], largest_incoming: int):
        """largest_incoming: elements of the largest message that arrives."""
        super().__init__(backend, codec, shapes)
        self._change = backend.zeros((largest_incoming,))

    def encode(self, k, rows, outgoing, rate, draw, data):
        memory = self.memory[k]
        _, decoded = self._coded(k, rows, outgoing, rate, draw, data)
        self.backend.axpby(1.0, memory, 1.0, decoded, memory)
        return len(data)

    def decode(self, data, incoming, rate, draw, target):
        change = self._change[:target.size].reshape(target.shape)
        self.codec.decode(self.backend, data, incoming, rate, draw, change)
        self.backend.axpby(1.0, target, 1.0, change, target)
        return len(data)
