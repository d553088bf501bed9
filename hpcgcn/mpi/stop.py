"""Requests to stop: signals are remembered until the ranks agree on them at an epoch boundary."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any] | int | None

STOPPING = b"\nhpcgcn: stopping after this epoch, with a checkpoint; Ctrl-C again ends at once\n"


class StopRequest:
    """Remembers SIGTERM, SIGUSR1 and Ctrl-C; a second Ctrl-C interrupts as it always does."""

    SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)

    def __init__(self):
        self.received: str | None = None
        self._previous: dict[int, Handler] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():    # Python allows it there alone
            for number in self.SIGNALS:
                self._previous[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, *exc):
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _remember(self, number, frame):
        if number == signal.SIGINT:
            if self.received == "SIGINT":
                raise KeyboardInterrupt
            os.write(2, STOPPING)  # not by print or logging, which may be what was interrupted
        self.received = signal.Signals(number).name
