"""Messages to people go through `logging`: a library prints nothing that its user did not ask for.

Two loggers by purpose: `hpcgcn.progress` has the lines about epochs and the summary of a run, all
others below `hpcgcn` have notes and warnings. Rank 0 speaks for the job. The command line shows
progress on stdout and notes on stderr; a script that wants to see them calls `show_messages()`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading

progress = logging.getLogger("hpcgcn.progress")

PATIENCE_SECONDS = 3.0               # after which a phase that prints nothing is named


class ConsoleHandler(logging.Handler):
    """Progress to stdout, notes to stderr, warnings and errors there after the program's name."""

    def emit(self, record: logging.LogRecord):
        """Write one message; a reader who has gone away (`| head`) must not end the run."""
        shown = record.name == progress.name
        try:
            text = record.getMessage()
            print(f"hpcgcn: {text}" if record.levelno >= logging.WARNING else text,
                  file=sys.stdout if shown else sys.stderr, flush=True)
        except BrokenPipeError:
            discard("stdout" if shown else "stderr")


def show_messages(rank: int = 0):
    """Show messages on the console: all of them on rank 0, warnings alone on the others."""
    root = logging.getLogger("hpcgcn")
    root.setLevel(logging.INFO if rank == 0 else logging.WARNING)
    progress.setLevel(logging.NOTSET)
    if not any(isinstance(handler, ConsoleHandler) for handler in root.handlers):
        root.addHandler(ConsoleHandler())


def show_no_notes():
    """Show progress and warnings, but no notes."""
    progress.setLevel(logging.INFO)
    logging.getLogger("hpcgcn").setLevel(logging.WARNING)


@contextlib.contextmanager
def named_if_slow(logger: logging.Logger, what: str, speaks: bool = True):
    """A block that says what it does if it takes longer than people wait; `speaks`: on this
    rank."""
    timer = threading.Timer(PATIENCE_SECONDS, logger.info, ("%s ...", what))
    timer.daemon = True
    if speaks:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def discard(name: str):
    """From now on nothing is written to stdout or stderr, whose reader has gone away."""
    stream = open(os.devnull, "w")           # it stays open as long as the process
    os.dup2(stream.fileno(), getattr(sys, name).fileno())
    setattr(sys, name, stream)
