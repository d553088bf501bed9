"""Streams and events that do nothing until they must.

A launch or an asynchronous copy is queued. It runs when the host waits for it: a synchronisation,
or a blocking copy. Within a stream the order is kept; between streams only events order anything.
So work that nobody waited for has not happened when MPI reads its result, and a missing event shows
as a wrong number. The schedules `stream0` and `stream1` (streams count from 0 in the order of
creation) run one stream as early as its waits allow, the other as late as possible: whatever two
streams may legally do to one another, one of the three schedules does.
"""

from __future__ import annotations

from collections import deque

from . import capture, settings
from .capture import CaptureError


class _Ticket:
    """One recording of an event."""

    def __init__(self, stream: Stream):
        self.stream, self.done, self.asked = stream, False, False
        self.capture = None              # the recording that it belongs to


class Stream:
    """A queue of operations.

    Only streams made by the program exist: there is no default stream to fall back to.
    """

    _all: list[Stream] = []
    _current: list[Stream] = []

    def __init__(self, null=False, non_blocking=False, ptds=False):
        if null or ptds or not non_blocking:
            raise ValueError("the stand-in has non-blocking streams only")
        self._queue: deque = deque()
        self._number = len(Stream._all)
        self._outer = []
        self._capture = None             # the recording that it takes part in
        Stream._all.append(self)

    @property
    def ptr(self) -> int:
        return self._number + 1

    @classmethod
    def _with_ptr(cls, ptr: int) -> Stream:
        return cls._all[ptr - 1]

    # -- what CuPy offers --------------------------------------------------------------------------
    def use(self):
        Stream._current[:] = [self]
        return self

    def __enter__(self):
        self._outer.append(list(Stream._current))
        return self.use()

    def __exit__(self, *_):
        Stream._current[:] = self._outer.pop()

    def synchronize(self):
        capture.refuse_while_recording("a synchronisation")
        while self._queue:
            self._step()

    def record(self, event=None):
        event = event or Event()
        event._ticket = _Ticket(self)
        if self._capture:
            self._capture.event(self, event._ticket)
        else:
            self._push(event._ticket)
        return event

    def wait_event(self, event):
        ticket = event._ticket
        theirs = ticket.capture if ticket else None
        joins = theirs if theirs and not theirs.over else None
        recorder = self._capture or joins
        if recorder:
            recorder.wait(self, ticket)
        elif theirs:
            raise CaptureError("an event that was recorded in a graph has nothing to wait for")
        elif ticket is not None:         # waiting for an event that was never recorded is no wait
            self._push(("wait", ticket))

    def begin_capture(self, mode=None):
        if mode not in (capture.MODE_GLOBAL, capture.MODE_THREAD_LOCAL):
            raise ValueError("the stand-in records in the strict modes only")
        capture.refuse_while_recording("begin_capture")
        self._capture = capture.Capture(self)

    def end_capture(self):
        if self._capture is None or self._capture.origin is not self:
            raise CaptureError("end_capture of a stream that did not begin one")
        return self._capture.end()

    def is_capturing(self) -> bool:
        return self._capture is not None

    # -- the queue ---------------------------------------------------------------------------------
    def _push(self, operation):
        if self._capture:
            self._capture.add(self, operation)
            return
        self._queue.append(operation)
        eager = settings.schedule()
        if eager != "lazy":
            for stream in Stream._all:
                if f"stream{stream._number % 2}" == eager:
                    stream._run_ahead()

    def _run_ahead(self):
        while self._queue and not self._blocked(self._queue[0]):
            self._step()

    @staticmethod
    def _blocked(operation) -> bool:
        return isinstance(operation, tuple) and not operation[1].done

    def _step(self):
        operation = self._queue.popleft()
        if isinstance(operation, _Ticket):
            operation.done = True
        elif isinstance(operation, tuple):
            operation[1].stream._run_until(operation[1])
        else:
            operation()

    def _run_until(self, ticket: _Ticket):
        while not ticket.done:
            self._step()


class Event:
    """A point in a stream that others can wait for."""

    def __init__(self, block=False, disable_timing=False, interprocess=False):
        self._ticket = None

    @property
    def done(self) -> bool:
        """An answer without waiting.

        A device goes on working: the first answer of a recording is no, whoever asks again finds
        it done.
        """
        ticket = self._ticket
        self._refuse_recorded("a question to an event of a recording")
        if ticket is None or ticket.done:
            return True
        if ticket.asked:
            ticket.stream._run_until(ticket)
        ticket.asked = True
        return ticket.done

    def record(self, stream=None):
        (stream or get_current_stream()).record(self)

    def synchronize(self):
        self._refuse_recorded("a wait for an event of a recording")
        if self._ticket is not None:
            self._ticket.stream._run_until(self._ticket)

    def _refuse_recorded(self, what: str):
        capture.refuse_while_recording(what)
        if self._ticket is not None and self._ticket.capture:
            raise CaptureError(what)


def get_current_stream() -> Stream:
    if not Stream._current:
        raise RuntimeError("no current stream: the default stream is not for this program, use() "
                           "one first")
    return Stream._current[-1]


def enqueue(operation, stream: Stream | None = None):
    """Put a call without arguments at the end of a stream, by default the current one."""
    (stream or get_current_stream())._push(operation)
