"""Where the time of an epoch went: a row for every operation of every layer, with its bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hpcgcn.timeline.read import Timeline
from hpcgcn.trace.recorder import KINDS, Activity

# Kinds in the order in which they come within a hop.
_ORDER = {kind: number for number, kind in enumerate(KINDS)}
PRODUCTS = ("aggregate", "interior", "boundary", "halo")
_STEMS = {"forward": 0, "stage_forward": 0, "backward": 1, "stage_backward": 1}


@dataclass(frozen=True)
class Row:
    """An operation of an average epoch."""

    activity: Activity
    mean_seconds: float              # over ranks
    most_seconds: float              # of the slowest rank
    share: float                     # of the ranks' time in epochs
    bytes_sent: float                # by all ranks; of packing


def kind_alone(activity: Activity) -> Activity:
    """To add up over hops and directions."""
    return Activity(activity.kind)


def profile(timeline: Timeline, epochs: Iterable[int],
            merge: Callable[[Activity], Activity] = lambda activity: activity) -> list[Row]:
    """The operations of these epochs, in the order of a pass: forward, backward, the rest.

    merge: activities for which it gives the same one are one row.
    """
    chosen = set(epochs)
    n_epochs, n_ranks = max(len(chosen), 1), len(timeline.ranks)
    by_rank: list[dict[Activity, float]] = []
    for rank in timeline.ranks:
        seconds: dict[Activity, float] = defaultdict(float)
        for span in rank.in_epochs(chosen):
            seconds[merge(span.activity)] += span.seconds / n_epochs
        by_rank.append(seconds)
    sent = _bytes(timeline, chosen, merge)
    whole = sum(sum(seconds.values()) for seconds in by_rank)
    rows = []
    for activity in sorted({activity for seconds in by_rank for activity in seconds}, key=_place):
        own = [seconds.get(activity, 0.0) for seconds in by_rank]
        rows.append(Row(activity, sum(own) / n_ranks, max(own), sum(own) / whole if whole else 0.0,
                        sent.get(activity, 0) / n_epochs))
    return rows


def _bytes(timeline: Timeline, epochs: set[int], merge) -> dict[Activity, int]:
    """Bytes of the messages that were sent in these epochs, by the activity of packing them."""
    sent: dict[Activity, int] = defaultdict(int)
    phases = [[phase for phase in rank.epochs() if phase.epoch in epochs]
              for rank in timeline.ranks]
    for message in timeline.messages:
        if any(phase.holds(message.sent) for phase in phases[message.sender]):
            sent[merge(message.activity)] += message.n_bytes
    return sent


def _place(activity: Activity) -> tuple:
    """Forward from the first hop to the last, backward the other way, then the whole epoch's."""
    way = next((number for stem, number in _STEMS.items() if activity.direction.startswith(stem)),
               2)
    place = -activity.hop if way == 1 else activity.hop
    after = activity.kind in ("block", "weights")        # block k comes after hop k
    return way, place, after != (way == 1), _ORDER[activity.kind], activity.direction


@dataclass(frozen=True)
class Product:
    """The sparse products of a hop and direction in an average epoch, over all ranks."""

    hop: int
    direction: str
    multiply_adds: int
    seconds: float                   # of ranks, added up

    @property
    def gigaflops(self) -> float:
        """Of a rank, while it computes these products."""
        return 2e-9 * self.multiply_adds / self.seconds if self.seconds else 0.0


def products(timeline: Timeline, epochs: Iterable[int]) -> list[Product]:
    """The arithmetic of aggregation, by hop and direction."""
    chosen = set(epochs)
    seconds: dict[tuple[int, str], float] = defaultdict(float)
    adds: dict[tuple[int, str], int] = defaultdict(int)
    for rank in timeline.ranks:
        for place, n in rank.work.items():
            adds[place] += n
        for span in rank.in_epochs(chosen):
            if span.activity.kind in PRODUCTS:
                place = span.activity.hop, span.activity.direction
                seconds[place] += span.seconds / max(len(chosen), 1)
    return [Product(*place, n, seconds[place]) for place, n in adds.items() if n]
