"""Messages to people go through `logging`: a library prints nothing that its user did not ask for.

Two loggers by purpose: `hpcgcn.progress` has the lines about epochs and the summary of a run, all
others below `hpcgcn` have notes and warnings. Rank 0 speaks for the job. The command line shows
progress on stdout and notes on stderr; a script that wants to see them calls `show_messages()`.
With `--log-format json` each message is one JSON object in a line of its own, on the same streams.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import threading
import time

progress = logging.getLogger("hpcgcn.progress")

PATIENCE_SECONDS = 3.0               # after which a phase that prints nothing is named
REDRAW_SECONDS = 0.1                 # between two states of the status line


class StatusLine:
    """The line at the bottom of a terminal that is drawn anew in place; messages go above it."""

    def __init__(self):
        self.text, self.drawn_at = "", 0.0

    def draw(self, text: str):
        """Show a line, if messages are shown, stderr is a terminal, and people had the time to
        read the last."""
        now = time.monotonic()
        if (not _console_handlers() or not sys.stderr.isatty()
                or now - self.drawn_at < REDRAW_SECONDS):
            return
        self.clear()
        text = text[:(os.get_terminal_size(sys.stderr.fileno()).columns or 80) - 1]
        self.text, self.drawn_at = text, now
        self._write(text)

    def clear(self):
        """Remove the line, before a message or at the end."""
        if self.text:
            self._write("\r" + " " * len(self.text) + "\r")
        self.text = ""

    def _write(self, text: str):
        with contextlib.suppress(OSError):       # a terminal that has gone ends no run
            sys.stderr.write(text)
            sys.stderr.flush()


status = StatusLine()


class ConsoleHandler(logging.Handler):
    """Progress to stdout, notes to stderr, warnings and errors there after the program's name."""

    format_name = "text"                 # or json

    def emit(self, record: logging.LogRecord):
        """Write one message; neither a reader who has gone away (`| head`) nor a full disk may
        end the run."""
        name = "stdout" if record.name == progress.name else "stderr"
        try:
            status.clear()
            print(self._line(record), file=getattr(sys, name), flush=True)
        except BrokenPipeError:
            discard(name)
        except OSError as error:
            discard(name)
            logging.getLogger(__name__).warning(
                "%s cannot be written (%s): this goes on without it", name, error.strerror)

    def _line(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if self.format_name == "json":
            facts = getattr(record, "facts", {"event": "message"})
            return json.dumps({"time": round(record.created, 3), "level": record.levelname.lower(),
                               **facts, "message": text})
        return f"hpcgcn: {text}" if record.levelno >= logging.WARNING else text


def tell(text: str, event: str, facts: dict):
    """A message about the progress of a run; facts: what a JSON log has of it beside the text."""
    progress.info("%s", text, extra={"facts": {"event": event, **facts}})


def set_console_format(name: str):
    """From now on, messages on the console are text or json."""
    for handler in _console_handlers():
        handler.format_name = name


def _console_handlers() -> list[ConsoleHandler]:
    return [handler for handler in logging.getLogger("hpcgcn").handlers
            if isinstance(handler, ConsoleHandler)]


def show_messages(rank: int = 0):
    """Show messages on the console: all of them on rank 0, warnings alone on the others."""
    root = logging.getLogger("hpcgcn")
    root.setLevel(logging.INFO if rank == 0 else logging.WARNING)
    progress.setLevel(logging.NOTSET)
    if not _console_handlers():
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
    """From now on nothing is written to stdout or stderr, which cannot be written to."""
    stream = open(os.devnull, "w")           # it stays open as long as the process
    given = getattr(sys, name)
    if given is not None:                    # so Python finds one that was closed (`>&-`)
        os.dup2(stream.fileno(), given.fileno())
    setattr(sys, name, stream)
