"""Recording what streams are given, and running it again: CUDA graphs, with their manners.

While a stream records, nothing runs. A stream that waits for an event of the recording records
too, and must be waited for before the recording ends. Whatever asks for an answer in between is an
error: a synchronisation, a question to an event, a copy to the host that waits, memory, a pageable
copy, an event from outside. A recorded launch has the arguments that it was given; what they point
to is looked at when it runs, and must be there then: a graph keeps no memory alive.
"""

from __future__ import annotations

from collections import deque

from . import settings

MODE_GLOBAL, MODE_THREAD_LOCAL, MODE_RELAXED = range(3)


class CaptureError(RuntimeError):
    """What CUDA refuses while a stream records, or of what was recorded."""


_active: list[Capture] = []


def refuse_while_recording(what: str):
    """For calls that no stream may see while it records."""
    if _active:
        _active[-1].broken = True
        raise CaptureError(f"{what} while a stream records")


def recording() -> bool:
    """Does any stream record?"""
    return bool(_active)


class Capture:
    """From begin_capture to end_capture of one stream."""

    def __init__(self, origin):
        self.origin, self.operations, self.broken, self.over = origin, [], False, False
        # How much of each stream comes before what a stream does next: {stream: {stream: count}}.
        self._before = {origin: {origin: 0}}
        _active.append(self)

    def add(self, stream, operation):
        """Operations are calls; events are added by `event` and `wait`."""
        self._before[stream][stream] += 1
        self.operations.append((stream, "call", operation))

    def event(self, stream, ticket):
        ticket.capture, ticket.before = self, dict(self._before[stream])
        self.operations.append((stream, "event", ticket))

    def wait(self, stream, ticket):
        if ticket is None or ticket.capture is not self:
            self.broken = True
            raise CaptureError("a stream that records waits for an event that is not of its "
                               "recording")
        mine = self._before.setdefault(stream, {stream: 0})
        for other, count in ticket.before.items():
            mine[other] = max(mine.get(other, 0), count)
        stream._capture = self
        self.operations.append((stream, "wait", ticket))

    def end(self) -> Graph:
        """The graph; an error if a stream that joined was not waited for."""
        _active.remove(self)
        self.over = True
        for stream in self._before:
            stream._capture = None
        if self.broken:
            raise CaptureError("the recording was broken by a call that it does not allow")
        known = self._before[self.origin]
        if any(known.get(stream, 0) < before[stream] for stream, before in self._before.items()):
            raise CaptureError("a stream joined the recording and was not waited for")
        return Graph(self)


class Graph:
    """What was recorded. cupy.cuda.Graph"""

    def __init__(self, capture: Capture):
        self._operations, self._origin = list(capture.operations), capture.origin

    def launch(self, stream=None):
        from . import streams
        refuse_while_recording("a launch of a graph")
        streams.enqueue(self._run, stream)

    def _run(self):
        """Each stream's operations in their order, streams as far apart as their waits allow."""
        queues: dict = {}
        for stream, kind, operation in self._operations:
            queues.setdefault(stream, deque()).append((kind, operation))
        done: set = set()

        def step(stream):
            kind, operation = queues[stream].popleft()
            if kind == "event":
                done.add(operation)
            elif kind == "wait":
                while operation not in done:
                    step(operation.stream)
            else:
                operation()
        eager = settings.schedule()
        order = sorted(queues, key=lambda stream: f"stream{stream._number % 2}" != eager)
        for stream in order:
            while queues[stream]:
                step(stream)
