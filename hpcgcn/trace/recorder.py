"""Recording what this rank does, and when, for a window of epochs.

A rank does one thing at a time: `switch` says what begins, and so ends what was going on before.
Each kind of activity is a number, made once by `activity`; recording is then one append to a ring
buffer, which forgets what is older than the window. What is not recorded costs an empty call: a
run without a trace has a `NullTrace` in its place, and no module asks which one it has.

Times are those of `time.perf_counter`, which all processes of a host share (clocks.py brings hosts
together).
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

MOST_EVENTS = 400_000                # of each kind, per rank: some tens of MiB

# Kinds of activity, and how the report and the profile call them.
KINDS = {"other": "other", "block": "row-wise steps", "interior": "aggregate interior",
         "boundary": "aggregate boundary", "halo": "aggregate halo", "aggregate": "aggregate",
         "weights": "weight gradients", "loss": "loss", "pack": "pack",
         "send": "hand over to MPI", "wait": "wait", "unpack": "unpack",
         "progress": "MPI progress", "allreduce": "all-reduce", "optimiser": "optimiser",
         "evaluation": "evaluation", "checkpoint": "checkpoint"}


class Activity(NamedTuple):
    """What a rank is doing."""

    kind: str                        # a key of KINDS
    hop: int = 0                     # of a block: its number in the model
    direction: str = ""              # forward, backward, stage_forward, ...


class ExchangeMarks(NamedTuple):
    """The activities of one exchange."""

    trace: NullTrace
    pack: int = 0
    send: int = 0
    wait: int = 0
    unpack: int = 0


def nothing():
    """Of a message whose arrival nobody records."""


class NullTrace:
    """Records nothing: what every run has that was not asked for a trace."""

    allreduce = progress = 0

    def activity(self, kind: str, hop: int = 0, direction: str = "") -> int:
        """The number of a kind of activity."""
        return 0

    def switch(self, activity: int, at: float | None = None) -> int:
        """This activity begins now, or at a time that was just read; returns the one that ends."""
        return 0

    def each(self, blocks: Iterable, activity: int, handed: int = -1) -> Iterable:
        """The same blocks; making each of them is the activity, and what is done with it is
        `handed`, if that is given."""
        return blocks

    def exchange(self, hop: int, direction: str = "") -> ExchangeMarks:
        """The activities of an exchange."""
        return ExchangeMarks(self)

    def sent(self, marks: ExchangeMarks, channel, started: float):
        """The messages of a channel were started, at this time."""

    def arrival(self, channel, k: int) -> Callable[[], None]:
        """What to call when a message of the channel's peer k has arrived."""
        return nothing

    def flight(self, marks: ExchangeMarks, started: float, waited: float, arrived: float):
        """An exchange's messages were in flight from `started` to `arrived`, waited for from
        `waited` on."""

    def phase(self, name: str, epoch: int):
        """A `with` block that is an epoch, an evaluation or a checkpoint."""
        return contextlib.nullcontext()


class Trace(NullTrace):
    """Records this rank's activities, messages and phases of the last epochs of a window."""

    def __init__(self, first: int, last: int, n_kept: int, clock: Callable[[], float]
                 = time.perf_counter, most: int = MOST_EVENTS):
        """Epochs from `first` to `last` are recorded, and the newest `n_kept` of them are kept."""
        self.window, self.clock = range(first, last + 1), clock
        self.activities: list[Activity] = [Activity("other")]
        self._numbers = {self.activities[0]: 0}
        self.current, self._recording = 0, False
        self.switches: deque[tuple[float, int]] = deque(maxlen=most)
        # (time, activity of packing, key, number, bytes) and (time, key, number)
        self.sends: deque[tuple] = deque(maxlen=most)
        self.arrivals: deque[tuple] = deque(maxlen=most)
        # (activity of waiting, started, waited, arrived)
        self.flights: deque[tuple] = deque(maxlen=most)
        self.phases: deque[tuple[str, int, float, float]] = deque(maxlen=3 * n_kept + 3)
        self.n_kept = n_kept
        self.allreduce, self.progress = self.activity("allreduce"), self.activity("progress")

    def activity(self, kind: str, hop: int = 0, direction: str = "") -> int:
        what = Activity(kind, hop, direction)
        if what not in self._numbers:
            self._numbers[what] = len(self.activities)
            self.activities.append(what)
        return self._numbers[what]

    def switch(self, activity: int, at: float | None = None) -> int:
        before, self.current = self.current, activity
        if self._recording:
            self.switches.append((self.clock() if at is None else at, activity))
        return before

    def each(self, blocks: Iterable, activity: int, handed: int = -1) -> Iterator:
        iterator = iter(blocks)
        while True:
            self.switch(activity)
            try:
                block = next(iterator)
            except StopIteration:
                return
            if handed >= 0:
                self.switch(handed)
            yield block

    def exchange(self, hop: int, direction: str = "") -> ExchangeMarks:
        return ExchangeMarks(self, *(self.activity(kind, hop, direction)
                                     for kind in ("pack", "send", "wait", "unpack")))

    def sent(self, marks: ExchangeMarks, channel, started: float):
        if not self._recording:
            return
        for key, n_bytes in zip(channel.keys, channel.sent_bytes()):
            if n_bytes:
                self.sends.append((started, marks.pack, key, channel.n_started, n_bytes))

    def arrival(self, channel, k: int) -> Callable[[], None]:
        key = channel.keys[k]

        def arrived():
            if self._recording:
                self.arrivals.append((self.clock(), key, channel.n_started))
        return arrived

    def flight(self, marks: ExchangeMarks, started: float, waited: float, arrived: float):
        if self._recording:
            self.flights.append((marks.wait, started, waited, arrived))

    @contextlib.contextmanager
    def phase(self, name: str, epoch: int):
        if name == "epoch":
            self._recording = epoch in self.window
        if not self._recording:
            yield
            return
        begun = self.clock()
        self.switch(self.activity(name) if name in KINDS else 0)
        try:
            yield
        finally:
            self.switch(0)
            self.phases.append((name, epoch, begun, self.clock()))

    def kept_from(self) -> float:
        """The time from which on everything is there: the begin of the oldest epoch that is
        kept."""
        full = [events[0] for events in (self.switches, self.sends, self.arrivals)
                if len(events) == events.maxlen]
        oldest = max((event[0] for event in full), default=float("-inf"))
        begins = [begun for name, _, begun, _ in self.phases
                  if name == "epoch" and begun >= oldest]
        return begins[-self.n_kept] if len(begins) >= self.n_kept else min(begins,
                                                                           default=float("inf"))

    def record(self) -> dict[str, Any]:
        """All that was recorded of the epochs that are kept, as plain lists."""
        start = self.kept_from()
        return {"activities": [list(activity) for activity in self.activities],
                "switches": [list(event) for event in self.switches if event[0] >= start],
                "sends": [list(event) for event in self.sends if event[0] >= start],
                "arrivals": [list(event) for event in self.arrivals if event[0] >= start],
                "flights": [list(event) for event in self.flights if event[3] >= start],
                "phases": [list(phase) for phase in self.phases if phase[2] >= start]}


class PassMarks:
    """The activities of a pass through a model: its blocks and hops, forward and backward."""

    def __init__(self, trace: NullTrace, n_hops: int):
        self.trace = trace
        hops = range(n_hops + 1)
        self._block = [trace.activity("block", k, "forward") for k in hops]
        self._aggregate = [trace.activity("aggregate", k, "forward") for k in hops]
        self._block_back = [trace.activity("block", k, "backward") for k in hops]
        self._aggregate_back = [trace.activity("aggregate", k, "backward") for k in hops]
        self._weights = [trace.activity("weights", k, "backward") for k in hops]
        self._loss = trace.activity("loss")

    def forward(self, number: int, blocks: Iterable) -> Iterable:
        """Blocks of rows that a hop makes complete, on which block `number` of the model runs."""
        return self.trace.each(blocks, self._aggregate[number], self._block[number])

    def backward(self, number: int, blocks: Iterable) -> Iterable:
        """The same of their gradients."""
        hop = min(number + 1, len(self._aggregate_back) - 1)
        return self.trace.each(blocks, self._aggregate_back[hop], self._block_back[number])

    def weights(self, number: int):
        """Weight gradients of a block begin."""
        self.trace.switch(self._weights[number])

    def loss(self):
        """The loss is computed."""
        self.trace.switch(self._loss)


class HopMarks(NamedTuple):
    """The activities of a hop over owned and halo rows."""

    trace: NullTrace
    interior: int
    boundary: int
    halo: int

    @classmethod
    def of(cls, trace: NullTrace, hop: int, direction: str) -> HopMarks:
        """Those of a hop and direction."""
        return cls(trace, *(trace.activity(kind, hop, direction)
                            for kind in ("interior", "boundary", "halo")))

    def each_interior(self, blocks: Iterable) -> Iterable:
        """Blocks of interior rows."""
        return self.trace.each(blocks, self.interior)

    def each_boundary(self, blocks: Iterable) -> Iterable:
        """Blocks of boundary rows, as far as owned rows are read."""
        return self.trace.each(blocks, self.boundary)

    def each_halo(self, blocks: Iterable) -> Iterable:
        """Blocks of rows, as far as halo rows are read."""
        return self.trace.each(blocks, self.halo)


def traced(phase: str):
    """For methods of a trainer: they are an epoch, an evaluation or a checkpoint."""
    def decorate(method):
        @functools.wraps(method)
        def inner(self, *args, **kwargs):
            # An epoch counts itself in the end; what comes after it belongs to it.
            epoch = self.epoch + (phase == "epoch")
            with self.runtime.trace.phase(phase, epoch):
                return method(self, *args, **kwargs)
        return inner
    return decorate
