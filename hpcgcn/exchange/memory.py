"""What an exchange remembers from message to message: feedback at the sender, a running average at the receiver."""

from __future__ import annotations

from hpcgcn.exchange.codecs import Codec, Rows


class Feedback:
    """For each route what the code lost so far (error feedback), or what the receiver already has (residual coding)."""

    def __init__(self, backend, codec: Codec, residual: bool, shapes: list[tuple[int, int]]):
        self.backend, self.codec, self.residual = backend, codec, residual
        self.memory = [backend.zeros(shape) for shape in shapes]
        largest = max((n_rows * width for n_rows, width in shapes), default=0)
        self._wanted, self._seen = backend.zeros((largest,)), backend.zeros((largest,))

    def encode(self, k: int, rows, outgoing: Rows, rate, draw, data):
        """Code what route k's receiver should get now, and remember what it does not get, or what it now has."""
        backend, memory = self.backend, self.memory[k]
        wanted, seen = (scratch[:memory.size].reshape(memory.shape) for scratch in (self._wanted, self._seen))
        if outgoing.index is not None:
            backend.gather_rows(rows, outgoing.index, wanted)
        else:
            backend.copy(rows, wanted)
        backend.axpby(1.0, wanted, -1.0 if self.residual else 1.0, memory, wanted)
        self.codec.encode(backend, wanted, Rows(None, outgoing.ids, outgoing.host_ids), rate, draw, data)
        self.codec.decode(backend, data, outgoing, rate, draw, seen)
        if self.residual:
            backend.axpby(1.0, memory, 1.0, seen, memory)
        else:
            backend.axpby(1.0, wanted, -1.0, seen, memory)


class RunningAverage:
    """PipeGCN's smoothing: an exponential average of the rows received; corrected, it does not lean to its start at zero."""

    def __init__(self, backend, shape: tuple[int, int], gamma: float, correct: bool):
        self.backend, self.gamma = backend, gamma
        self.average = backend.zeros(shape)
        self._corrected = backend.zeros(shape) if correct else None
        self.n_averaged = 0

    def add(self, received):
        """Take in the rows of an epoch."""
        self.backend.axpby(self.gamma, self.average, 1.0 - self.gamma, received, self.average)
        self.n_averaged += 1

    def value(self):
        """The average now; valid until rows are added."""
        if self._corrected is None or not self.n_averaged:
            return self.average
        self.backend.axpby(1.0 / (1.0 - self.gamma ** self.n_averaged), self.average, 0.0, None, self._corrected)
        return self._corrected
