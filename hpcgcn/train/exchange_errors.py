"""What stale and coded rows are off by, over all ranks: summed once per epoch.

The sums of squares that exchanges measured go with the loss into the all-reduce at the end of an
epoch. Every rank gets the same numbers, so all decide alike whether the next epoch may be stale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hpcgcn.exchange.sampled_error import Sums

HIGH_DRIFT = 0.5                     # of stale rows between epochs: what may cost accuracy
N_SUMS = len(Sums().as_list())


class ExchangeErrors:
    """The relative errors of the last epoch, by hop and direction. Collective to make."""

    def __init__(self, comm, exchanges: list):
        """exchanges: (hop, direction, Exchange) of training on this rank."""
        self.exchanges = [(f"{direction}_{hop}", exchange) for hop, direction, exchange in exchanges
                          if exchange.error is not None]
        mine = [(name, exchange.policy.lossy) for name, exchange in self.exchanges]
        entries_of_all = sorted({entry for entries in comm.allgather(mine) for entry in entries})
        self.names = list(dict.fromkeys(name for name, _ in entries_of_all))
        self.lossy = [name for name, lossy in entries_of_all if lossy]
        self.change: dict[str, float] = {}
        self.drift: dict[str, float] = {}
        self.coding: dict[str, float] = {}
        self.counts: dict[str, Counts] = {name: Counts() for name in self.names}
        # What the rows of an exchange are off by does not depend on who measured it: ranks that
        # send nothing must decide like the others.
        self.listening = [(f"{direction}_{hop}", exchange) for hop, direction, exchange in exchanges
                          if exchange.policy.measured]

    @property
    def columns(self) -> list[str]:
        """Of metrics.csv."""
        return ([f"{what}_{name}" for what in ("change", "drift") for name in self.names]
                + [f"coding_error_{name}" for name in self.lossy])

    def sums(self) -> np.ndarray:
        """What this rank measured in the epoch whose kernels are done."""
        sums = np.zeros((len(self.names), N_SUMS))
        place = {name: k for k, name in enumerate(self.names)}
        for name, exchange in self.exchanges:
            sums[place[name]] += exchange.error.sums().as_list()
        return sums.reshape(-1)

    def take_sums(self, sums: np.ndarray):
        """Take in the sums over all ranks; exchanges learn what to expect of the next epoch."""
        for name, (change, of_two, sent, coding) in zip(self.names, sums.reshape(-1, N_SUMS)):
            self.change[name] = _relative(change, sent)
            self.drift[name] = _relative(min(change, max(of_two - change, 0.0)), sent)
            self.coding[name] = _relative(coding, sent)
            self.counts[name].add(self.change[name], self.drift[name], self.coding[name])
        for name, exchange in self.listening:
            if name in self.drift:
                self.counts[name].use(self.drift[name], exchange.buffer.synchronous)
                exchange.expect_error(self.drift[name])

    def row(self) -> dict[str, float]:
        """The last epoch's values of `columns`."""
        return ({f"change_{name}": value for name, value in self.change.items()}
                | {f"drift_{name}": value for name, value in self.drift.items()}
                | {f"coding_error_{name}": self.coding[name] for name in self.lossy
                   if name in self.coding})


    def summary(self) -> dict[str, dict]:
        """What the summary tells: means over the epochs of this start, and how many were stale."""
        return {name: counts.facts(name in self.lossy) for name, counts in self.counts.items()
                if counts.epochs}


@dataclass
class Counts:
    """Of one hop and direction, over epochs."""

    epochs: int = 0
    change: float = 0.0
    drift: float = 0.0
    coding: float = 0.0
    stale: int = 0                   # uses of stale rows, one per epoch and exchange
    drifted: int = 0                 # of them, those whose rows drifted by more than HIGH_DRIFT

    def add(self, change: float, drift: float, coding: float):
        """One more epoch."""
        self.epochs += 1
        self.change, self.drift, self.coding = (self.change + change, self.drift + drift,
                                                self.coding + coding)

    def use(self, drift: float, synchronous: bool):
        """An exchange of this hop and direction was used."""
        self.stale += not synchronous
        self.drifted += not synchronous and drift > HIGH_DRIFT

    def facts(self, lossy: bool) -> dict:
        """For the summary."""
        means = {"mean_change": self.change / self.epochs, "mean_drift": self.drift / self.epochs,
                 "stale_uses": self.stale, "stale_uses_with_high_drift": self.drifted}
        return means | ({"mean_coding_error": self.coding / self.epochs} if lossy else {})


def _relative(square: float, of: float) -> float:
    return math.sqrt(square / of) if of > 0 else 0.0
