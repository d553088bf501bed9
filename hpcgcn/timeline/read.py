"""A trace read back: what each rank did from when to when, and the messages between ranks."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from hpcgcn.errors import FileError
from hpcgcn.files.json_text import parse_json
from hpcgcn.timeline.file import FORMAT, NAME, VERSION
from hpcgcn.trace.recorder import KINDS, Activity

SHORTEST = 1e-6                      # seconds: what is shorter was only passed through
_MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class Span:
    """An activity of a rank, from `start` to `stop`."""

    start: float
    stop: float
    activity: Activity

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.stop - self.start


@dataclass(frozen=True)
class Flight:
    """The messages of an exchange on a rank: in flight from start to stop, waited for from
    `waited` on."""

    start: float
    waited: float
    stop: float
    activity: Activity

    @property
    def hidden(self) -> float:
        """Seconds in which the rank did something else."""
        return self.waited - self.start


@dataclass(frozen=True)
class Phase:
    """An epoch, an evaluation or a checkpoint of a rank."""

    name: str
    epoch: int
    start: float
    stop: float

    def holds(self, moment: float) -> bool:
        """Is this moment in it?"""
        return self.start <= moment <= self.stop


@dataclass(frozen=True)
class Message:
    """From one rank to another; `arrived` is when the receiver noticed; None: after the trace."""

    sender: int
    receiver: int
    sent: float
    arrived: float | None
    n_bytes: int
    activity: Activity               # that of packing it


@dataclass
class RankTimeline:
    """What one rank did."""

    rank: int
    host: str
    spans: list[Span]
    flights: list[Flight]
    phases: list[Phase]
    work: dict[tuple[int, str], int]     # multiply-adds of sparse products, by hop and direction

    def epochs(self) -> list[Phase]:
        """The epochs, in order."""
        return [phase for phase in self.phases if phase.name == "epoch"]

    def in_epochs(self, epochs: Collection[int]) -> list[Span]:
        """The spans of these epochs, without those of evaluations and checkpoints."""
        inside = [phase for phase in self.epochs() if phase.epoch in epochs]
        return [span for span in self.spans
                if any(phase.holds((span.start + span.stop) / 2) for phase in inside)]


@dataclass
class Timeline:
    """What all ranks did, in the time of rank 0."""

    ranks: list[RankTimeline]
    messages: list[Message]
    clock_error: float               # seconds, at most

    def epochs(self) -> list[int]:
        """The epochs that all ranks have recorded."""
        numbers = [{phase.epoch for phase in rank.epochs()} for rank in self.ranks]
        return sorted(set.intersection(*numbers)) if numbers else []

    def hidden_share(self, epochs: Iterable[int]) -> float:
        """The share of the time of messages in flight in which ranks did something else."""
        chosen, hidden, flying = set(epochs), 0.0, 0.0
        for rank in self.ranks:
            inside = [phase for phase in rank.epochs() if phase.epoch in chosen]
            for flight in rank.flights:
                if any(phase.holds(flight.stop) for phase in inside):
                    hidden += flight.hidden
                    flying += flight.stop - flight.start
        return hidden / flying if flying else 0.0


def has_trace(folder: str) -> bool:
    """Has the run of this folder left a trace?"""
    return os.path.isfile(os.path.join(folder, NAME))


def read_timeline(folder: str) -> Timeline:
    """The timeline of a run's folder; FileError if it has none, or it is damaged."""
    path = os.path.join(folder, NAME)
    if not has_trace(folder):
        raise FileError(f"{folder} has no {NAME}: the run was not traced, or has not ended; train "
                        "with --trace to record its last epochs")
    try:
        if os.path.getsize(path) > _MOST_BYTES:
            raise ValueError("it is larger than any trace")
        with open(path, encoding="utf-8") as file:
            content = parse_json(file.read())
        return _timeline(content)
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
        raise FileError(f"{path} is damaged ({str(error)[:200]}): train again with "
                        "--trace") from None


def _timeline(content) -> Timeline:
    if content.get("format") != FORMAT or content.get("version") != VERSION:
        raise ValueError(f"its format is not {FORMAT} {VERSION}")
    ranks = [_rank(record) for record in content["ranks"]]
    if not ranks or [rank.rank for rank in ranks] != list(range(len(ranks))):
        raise ValueError("ranks are missing")
    errors = [_number(record["clock_error"]) for record in content["ranks"]]
    return Timeline(ranks, _messages(content["ranks"]), max(errors))


def _rank(record: dict) -> RankTimeline:
    activities = [_activity(item) for item in record["activities"]]
    phases = [Phase(str(name)[:20], int(epoch), _number(start), _number(stop))
              for name, epoch, start, stop in record["phases"]]
    moments = [(_number(at), _indexed(activities, number)) for at, number in record["switches"]]
    last = max([phase.stop for phase in phases], default=moments[-1][0] if moments else 0.0)
    stops = [at for at, _ in moments[1:]] + [last]
    spans = [Span(at, stop, activity) for (at, activity), stop in zip(moments, stops)
             if stop - at >= SHORTEST]
    flights = [Flight(_number(start), _number(waited), _number(stop), _indexed(activities, number))
               for number, start, waited, stop in record["flights"]]
    work = {(int(hop), str(direction)): int(n) for hop, direction, n in record["work"]}
    return RankTimeline(int(record["rank"]), str(record["host"]), spans, flights, phases, work)


def _messages(records: list[dict]) -> list[Message]:
    """Every message that was sent."""
    arrivals = {(record["rank"], peer, name, tag, number): _number(at)
                for record in records for at, (name, peer, tag), number in record["arrivals"]}
    messages = []
    for record in records:
        activities = [_activity(item) for item in record["activities"]]
        for at, number, (name, peer, tag), count, n_bytes in record["sends"]:
            arrived = arrivals.get((peer, record["rank"], name, tag, count))
            if type(peer) is not int or not 0 <= peer < len(records):
                raise ValueError("a message is to no rank")
            messages.append(Message(record["rank"], peer, _number(at), arrived, int(n_bytes),
                                    _indexed(activities, number)))
    return messages


def _activity(item) -> Activity:
    kind, hop, direction = item
    if kind not in KINDS or type(hop) is not int or not isinstance(direction, str):
        raise ValueError("an activity is of no known kind")
    return Activity(kind, hop, direction[:40])


def _indexed(activities: list[Activity], number) -> Activity:
    if type(number) is not int or number < 0:
        raise ValueError("an activity has no number")
    return activities[number]


def _number(value) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e12:
        raise ValueError("a time is no number")
    return float(value)
