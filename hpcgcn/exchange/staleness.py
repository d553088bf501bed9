"""The rows that an exchange received, and which of them an epoch uses: its own, or older ones.

    begin(epoch)     is this epoch synchronous? If not, `value` is what is here now
    complete()       the rows of the messages that were awaited are in `arrays`
    value()          the rows to use
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpcgcn.exchange.types import Policy, Route


class MovingAverage:
    """PipeGCN's smoothing: an exponential moving average of the rows received."""

    def __init__(self, backend, shape: tuple[int, int], decay: float, bias_corrected: bool):
        self.backend, self.decay = backend, decay
        self.average = backend.zeros(shape)
        self._corrected = backend.zeros(shape) if bias_corrected else None
        self.n_averaged = 0

    def add(self, received):
        """The rows of one more epoch."""
        self.backend.axpby(self.decay, self.average, 1.0 - self.decay, received, self.average)
        self.n_averaged += 1

    def value(self):
        """The average now; valid until rows are added."""
        if self._corrected is None or not self.n_averaged:
            return self.average
        factor = 1.0 / (1.0 - self.decay ** self.n_averaged)
        self.backend.axpby(factor, self.average, 0.0, None, self._corrected)
        return self._corrected


class StalenessBuffer:
    """Holds received rows from one epoch to the next where the policy says so."""

    def __init__(self, backend, policy: Policy, routes: list[Route], shape: tuple[int, int],
                 receive_arrays: list | None = None):
        """shape: of all rows received. receive_arrays: of the caller's, one per route, instead."""
        self.backend, self.policy = backend, policy
        self.received = None                     # the caller's arrays hold the rows
        if receive_arrays is None:
            received = self.received = backend.zeros(shape)
            receive_arrays = [received[route.receive_slice] for route in routes]
        self.arrays: list[Any] = receive_arrays  # one per route: where its rows are decoded to
        self.average = (MovingAverage(backend, shape, policy.smoothing, policy.smoothing_correction)
                        if policy.smoothing else None)
        self.synchronous = True                  # this epoch
        self._refresh_next = False
        self.expected_error = math.inf           # of this epoch, if it were stale
        self._value = self.received

    def begin(self, epoch: int) -> bool:
        """Start an epoch; messages of the last one are complete. Does it use its own rows?"""
        self.synchronous = (self.policy.synchronous(epoch) or self._refresh_next
                            or self.expected_error > self.policy.stale_error)
        self._refresh_next = False
        if self.synchronous or self.average is None:
            self._value = self.received
        else:
            self._value = self.average.value()
        return self.synchronous

    def complete(self):
        """All rows of an epoch have been decoded into `arrays`."""
        if self.average is not None:
            self.average.add(self.received)

    def value(self):
        """The rows to use this epoch, or None if they are in arrays of the caller's."""
        return self._value

    def refresh_next(self):
        """Nothing is known of earlier epochs: the next is synchronous, not computed with zeros."""
        self._refresh_next = True

    # -- checkpoint -----------------------------------------------------------------------------
    def state_arrays(self, peers: list[int]) -> dict:
        """The arrays that a checkpoint must hold, by name."""
        if self.received is not None:
            arrays = {"received": self.received}
        else:
            arrays = {f"received_{peer}": array for peer, array in zip(peers, self.arrays)}
        return arrays if self.average is None else arrays | {"average": self.average.average}

    def state_numbers(self) -> dict[str, np.ndarray]:
        """What a checkpoint must hold besides."""
        n_averaged = self.average.n_averaged if self.average is not None else 0
        return {"n_averaged": np.array([n_averaged]),
                "expected_error": np.array([self.expected_error])}

    def restore_numbers(self, state: dict[str, np.ndarray]):
        """Go on from `state_numbers()`."""
        if self.average is not None:
            self.average.n_averaged = int(state["n_averaged"][0])
        self.expected_error = float(state.get("expected_error", [math.inf])[0])
