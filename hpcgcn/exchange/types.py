"""The terms of an exchange: which rows go where (Route), when and how they are used (Policy), what it cost (Meter)."""

from __future__ import annotations

from dataclasses import dataclass, field

from hpcgcn.exchange.codecs import Codec, Rows
from hpcgcn.exchange.schedules import Schedule


@dataclass
class Route:
    """One peer of an exchange: what goes to it and where what comes from it lands."""

    peer: int
    outgoing: Rows
    source: slice | None             # send a slice of the array, or (None) the rows outgoing.index of it
    incoming: Rows
    receive_slice: slice | None            # rows of the exchange's own array; None if the caller gives an array to land in
    source_columns: slice | None = None     # send only these columns
    out_width: int | None = None     # where it is not the exchange's width
    in_width: int | None = None
    out_stream: int = 0                # tells apart messages whose draws would otherwise be the same
    in_stream: int = 0                 # the out_stream of what arrives


@dataclass
class Policy:
    """When and how messages are used; one object serves all exchanges of a direction."""

    codec: Codec
    rate: Schedule
    staleness: int = 0
    refresh_every: int = 0           # 0: never
    first_epoch: str = "zeros"
    smoothing: float = 0.0
    smoothing_correction: bool = False
    error_feedback: bool = False
    residual: bool = False

    def synchronous(self, epoch: int) -> bool:
        """Are this epoch's messages used in the epoch itself?"""
        if self.staleness == 0:
            return True
        if self.refresh_every and (epoch + 1) % self.refresh_every == 0:
            return True
        return epoch == 0 and self.first_epoch == "sync"


@dataclass
class Meter:
    """What one exchange cost, since the last reset."""

    bytes_sent: int = 0
    bytes_received: int = 0
    bytes_parameters: int = 0        # the share of bytes_sent that is zero points and steps
    bytes_plain: int = 0             # what fp32 would have sent
    seconds: dict = field(default_factory=lambda: {"wait": 0.0, "pack": 0.0, "unpack": 0.0})
    flight: float = 0.0              # from the start of messages to the end of the wait for them
    stale_uses: int = 0
    uses: int = 0
