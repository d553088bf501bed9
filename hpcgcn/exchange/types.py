"""Which rows of an exchange go where (Route), and when and how they are used (Policy)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hpcgcn.exchange.codec import Codec, Rows
from hpcgcn.exchange.schedules import Schedule


@dataclass
class Route:
    """One peer of an exchange: what goes to it, and where what comes from it is received."""

    peer: int
    outgoing: Rows
    source: slice | None             # a slice of the array; None: its rows outgoing.index
    incoming: Rows
    receive_slice: slice | None      # of the exchange's own array; None: the caller gives one
    source_columns: slice | None = None      # send only these columns
    out_width: int | None = None     # where it is not the exchange's width
    in_width: int | None = None
    out_stream: int = 0              # tells apart messages whose draws would otherwise be the same
    in_stream: int = 0               # the out_stream of what arrives


@dataclass
class Policy:
    """When and how messages are used: the settings of the exchanges of one hop and direction."""

    codec: Codec
    rate: Schedule
    staleness: int = 0
    refresh_every: int = 0           # 0: never
    first_epoch: str = "zeros"
    smoothing: float = 0.0
    smoothing_correction: bool = False
    error_feedback: bool = False
    residual: bool = False
    change_threshold: float = 0.0    # with residual: rows that moved less are not sent
    stale_error: float = math.inf    # the expected error above which an epoch is synchronous
    measured: bool = False           # are changes and coding errors of its rows measured?

    @property
    def exact(self) -> bool:
        """Does every epoch use the very rows that were sent in it?"""
        return self.codec.exact and self.staleness == 0 and not self.residual

    @property
    def lossy(self) -> bool:
        """May what arrives differ from what was sent?"""
        return not self.codec.exact or self.residual

    def synchronous(self, epoch: int) -> bool:
        """Are this epoch's messages used in the epoch itself?"""
        if self.staleness == 0:
            return True
        if self.refresh_every and (epoch + 1) % self.refresh_every == 0:
            return True
        return epoch == 0 and self.first_epoch == "sync"
