"""Alternatives to a bound on the drift of stale rows, tried by benchmarks/staleness.py: received
rows that are used, or not, otherwise than the program does."""

from __future__ import annotations

import contextlib

import numpy as np

from hpcgcn.exchange import exchange
from hpcgcn.exchange.staleness import StalenessBuffer


class FreshAtFirst(StalenessBuffer):
    """Synchronous in the first epochs."""

    fresh_epochs = 0

    def begin(self, epoch: int) -> bool:
        if epoch < self.fresh_epochs:
            self.refresh_next()
        return super().begin(epoch)


class Extrapolating(StalenessBuffer):
    """Stale rows go on as they went: 2 h - h' of the last two epochs' rows."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._newest = self._before = None

    def complete(self):
        super().complete()
        if self.policy.staleness:
            self._before, self._newest = self._newest, np.array(self.received)

    def begin(self, epoch: int) -> bool:
        synchronous = super().begin(epoch)
        if not synchronous and self._before is not None:
            self._value = 2 * self._newest - self._before
        return synchronous


@contextlib.contextmanager
def buffers(kind: str):
    """Runs within have these: "", "fresh:EPOCHS" or "extrapolated"; on the CPU."""
    name, _, number = kind.partition(":")
    chosen = {"": StalenessBuffer, "extrapolated": Extrapolating,
              "fresh": type("Fresh", (FreshAtFirst,), {"fresh_epochs": int(number or 0)})}[name]
    exchange.StalenessBuffer = chosen
    try:
        yield
    finally:
        exchange.StalenessBuffer = StalenessBuffer
