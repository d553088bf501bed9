"""A progress bar on the terminal: how much is done, how fast, how long it will take."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator


class ProgressBar:
    """Redraws one line of a terminal at most every 0.2 s."""

    def __init__(self, label: str, total: int, stream=None):
        self.label, self.total, self.stream = label, max(total, 1), stream or sys.stderr
        self.began = time.perf_counter()
        self.drawn = 0.0

    def update(self, done: int, rows: int):
        """`done` of the total (bytes of the files) and the rows read so far."""
        now = time.perf_counter()
        if now - self.drawn < 0.2:
            return
        self.drawn = now
        print("\r" + self.text(done, rows, now - self.began), end="", file=self.stream, flush=True)

    def text(self, done: int, rows: int, seconds: float) -> str:
        """The line: share, bar, rate, remaining time."""
        share = min(done / self.total, 1.0)
        left = seconds * (1 - share) / share if share else float("inf")
        bar = "#" * int(30 * share)
        remaining = (f"{left / 60:.0f} min" if 120 <= left < float("inf") else f"{left:.0f} s"
                     if left < 120 else "?")
        return (f"{self.label} {100 * share:5.1f}% [{bar:<30}] {rows:,} edges, "
                f"{rows / max(seconds, 1e-9) / 1e6:.2f} M/s, {remaining} left  ")

    def close(self):
        """Leave the line."""
        if self.drawn:
            print(file=self.stream, flush=True)


class NullProgressBar:
    """Where nobody watches."""

    def update(self, done: int, rows: int):
        """Nothing is shown."""

    def close(self):
        """Nothing was shown."""


def shown(lines, blocks) -> Iterator:
    """Blocks of (sources, targets) as they come from a file of lines, with a bar that shows how far
    it has been read.

    The bar's line is left before a message about what is wrong with the file.
    """
    bar, n_edges = progress_bar("edges", lines.size), 0
    try:
        for block in blocks:
            n_edges += len(block[0])
            bar.update(lines.done, n_edges)
            yield block
    finally:
        bar.close()


def progress_bar(label: str, total: int):
    """A bar if the standard error is a terminal."""
    return ProgressBar(label, total) if sys.stderr.isatty() else NullProgressBar()
