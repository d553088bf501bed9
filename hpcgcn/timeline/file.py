"""trace.json in the folder of a run: what all ranks recorded, in rank 0's time.

    {"format": "hpcgcn-trace", "version": 1, "ranks": [
        {"rank": 0, "host": "a", "clock_error": 0.0,
         "activities": [[kind, hop, direction], ...],
         "switches": [[time, activity], ...],
         "sends": [[time, activity, [runtime, peer, tag], number, bytes], ...],
         "arrivals": [[time, [runtime, peer, tag], number], ...],
         "flights": [[activity, started, waited, arrived], ...],
         "phases": [[name, epoch, begin, end], ...],
         "work": [[hop, direction, multiply-adds of its sparse product per epoch], ...]}, ...]}

Times are seconds since the first event of the trace.
"""

from __future__ import annotations

import json
import socket

import numpy as np

from hpcgcn.mpi import large
from hpcgcn.timeline.clocks import Offset, measure_offset, to_rank_0
from hpcgcn.trace.recorder import Trace

NAME = "trace.json"
FORMAT, VERSION = "hpcgcn-trace", 1
DIGITS = 7                           # of seconds: a tenth of a microsecond
TIMES = {"switches": (0,), "sends": (0,), "arrivals": (0,), "flights": (1, 2, 3), "phases": (2, 3)}


class Recording:
    """A run that is traced: clocks are compared when it starts and when it is collected."""

    def __init__(self, comm, trace: Trace):
        """Collective."""
        self.comm, self.trace = comm, trace
        self.start = measure_offset(comm, trace.clock)

    def collect(self, work: list[tuple[int, str, int]]) -> str | None:
        """The text of the file, on rank 0; work: of this rank's sparse products. Collective."""
        end = measure_offset(self.comm, self.trace.clock)
        mine = {"rank": self.comm.rank, "host": socket.gethostname(),
                "clock_error": max(self.start.error, end.error), "work": work,
                **_shifted(self.trace.record(), self.start, end)}
        collected: list[bytes] = []
        line = np.frombuffer(json.dumps(mine).encode() + b"\n", np.uint8)
        large.gather_rows(self.comm, (line,), lambda data: collected.append(data.tobytes()))
        if self.comm.rank:
            return None
        return _as_text([json.loads(text) for text in b"".join(collected).splitlines()])


def _shifted(record: dict, start: Offset, end: Offset) -> dict:
    """The same with the times of rank 0's clock."""
    for name, places in TIMES.items():
        for place in places:
            times = to_rank_0(np.array([event[place] for event in record[name]]), start, end)
            for event, moment in zip(record[name], times.tolist()):
                event[place] = moment
    return record


def _as_text(ranks: list[dict]) -> str:
    """From the first event on, rounded; an event per line would be a long file."""
    first = min((event[places[0]] for rank in ranks for name, places in TIMES.items()
                 for event in rank[name]), default=0.0)
    for rank in ranks:
        for name, places in TIMES.items():
            for event in rank[name]:
                for place in places:
                    event[place] = round(event[place] - first, DIGITS)
    head = {"format": FORMAT, "version": VERSION}
    lines = ",\n".join(json.dumps(rank, separators=(",", ":")) for rank in ranks)
    return json.dumps(head)[:-1] + f', "ranks": [\n{lines}\n]}}\n'
