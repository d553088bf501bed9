"""A timeline as a file of Chrome's trace event format, for Perfetto and chrome://tracing.

A rank is a process of it: its activities are one thread, epochs and evaluations another; exchanges
in flight are asynchronous events, and messages arrows from the sender to the receiver.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from hpcgcn.timeline.read import Timeline
from hpcgcn.trace.recorder import KINDS, Activity

ACTIVITIES, PHASES = 1, 0            # threads


def in_words(activity: Activity) -> str:
    """What people call an activity: "aggregate interior, hop 2, backward"."""
    place = ("block" if activity.kind in ("block", "weights") else "hop") + f" {activity.hop}"
    parts = [KINDS[activity.kind]]
    if activity.direction:
        parts += [place, activity.direction.replace("_", " ")]
    return ", ".join(parts)


def chrome_trace(timeline: Timeline, title: str) -> str:
    """The text of the file."""
    events = ",\n".join(json.dumps(event, separators=(",", ":")) for event in _events(timeline))
    return (f'{{"displayTimeUnit": "ms", "otherData": {json.dumps({"run": title})},\n'
            f'"traceEvents": [\n{events}\n]}}\n')


def _events(timeline: Timeline) -> Iterator[dict]:
    for rank in timeline.ranks:
        yield _meta("process_name", rank.rank, 0, f"rank {rank.rank} ({rank.host})")
        yield {"ph": "M", "name": "process_sort_index", "pid": rank.rank, "tid": 0,
               "args": {"sort_index": rank.rank}}
        yield _meta("thread_name", rank.rank, PHASES, "epochs")
        yield _meta("thread_name", rank.rank, ACTIVITIES, "activities")
        for phase in rank.phases:
            yield _complete(f"{phase.name} {phase.epoch}", "phase", rank.rank, PHASES, phase.start,
                            phase.stop)
        for span in rank.spans:
            yield _complete(in_words(span.activity), span.activity.kind, rank.rank, ACTIVITIES,
                            span.start, span.stop)
        for number, flight in enumerate(rank.flights):
            common = {"cat": "in flight", "id": f"{rank.rank}.{number}", "pid": rank.rank,
                      "name": in_words(flight.activity).replace("wait", "in flight", 1)}
            yield {"ph": "b", "ts": _us(flight.start), "tid": ACTIVITIES, **common,
                   "args": {"hidden_us": round(1e6 * flight.hidden, 1)}}
            yield {"ph": "e", "ts": _us(flight.stop), "tid": ACTIVITIES, **common}
    yield from _arrows(timeline)


def _arrows(timeline: Timeline) -> Iterator[dict]:
    for number, message in enumerate(timeline.messages):
        if message.arrived is None:          # it would point nowhere
            continue
        name = in_words(message.activity).replace("pack", "message", 1)
        common = {"cat": "message", "name": name, "id": number, "tid": ACTIVITIES}
        yield {"ph": "s", "ts": _us(message.sent), "pid": message.sender, **common,
               "args": {"bytes": message.n_bytes, "to": message.receiver}}
        yield {"ph": "f", "bp": "e", "ts": _us(message.arrived), "pid": message.receiver, **common}


def _complete(name: str, category: str, rank: int, thread: int, start: float, stop: float) -> dict:
    return {"ph": "X", "name": name, "cat": category, "pid": rank, "tid": thread, "ts": _us(start),
            "dur": round(1e6 * (stop - start), 1)}


def _meta(kind: str, rank: int, thread: int, name: str) -> dict:
    return {"ph": "M", "name": kind, "pid": rank, "tid": thread, "args": {"name": name}}


def _us(seconds: float) -> float:
    return round(1e6 * seconds, 1)
