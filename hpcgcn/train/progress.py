"""How far a run is: a line per evaluation with the time that is left, and a bar on a terminal."""

from __future__ import annotations

import math
import time
from collections import deque

from hpcgcn.config import Config
from hpcgcn.logs import status, tell

RECENT = 50                          # epochs from which times are told
BAR_WIDTH = 24


class Progress:
    """Tells of the epochs of one start; speaks on rank 0 of a run that is not quiet."""

    def __init__(self, config: Config, speaks: bool):
        self.n_epochs, self.speaks = config.epochs, speaks and not config.quiet
        self.bar = self.speaks and config.log_format == "text"
        self.seconds: deque[float] = deque(maxlen=RECENT)            # of epochs alone
        self.ends: deque[float] = deque([time.perf_counter()], maxlen=RECENT + 1)

    def epoch_done(self, epoch: int, seconds: float):
        """Take in an epoch, with all that came since the one before, and move the bar."""
        self.seconds.append(seconds)
        self.ends.append(time.perf_counter())
        if self.bar:
            status.draw(f"{_bar(epoch / self.n_epochs)} {epoch}/{self.n_epochs}  "
                        f"{self._speed()}{self._left_in_words(epoch)}")

    def evaluated(self, epoch: int, loss: float, scores: dict[str, float]):
        """One line about an epoch that was evaluated."""
        if not self.speaks:
            return
        parts = "  ".join(f"{name} {value:.4f}" for name, value in scores.items())
        tell(f"epoch {epoch:>5}/{self.n_epochs}  loss {loss:.4f}  {parts}  {self._speed()}"
             f"{self._left_in_words(epoch)}", "epoch",
             {"epoch": epoch, "epochs": self.n_epochs, "loss": loss,
              **{name: None if math.isnan(value) else value for name, value in scores.items()},
              "seconds_per_epoch": self._typical(), "seconds_left": self.seconds_left(epoch)})

    def seconds_left(self, epoch: int) -> float:
        """At the pace of the recent epochs, with their evaluations and checkpoints."""
        pace = (self.ends[-1] - self.ends[0]) / max(len(self.ends) - 1, 1)
        return (self.n_epochs - epoch) * pace

    def close(self):
        """Remove the bar."""
        if self.bar:
            status.clear()

    def _typical(self) -> float:
        return sorted(self.seconds)[len(self.seconds) // 2]

    def _speed(self) -> str:
        return f"{1000 * self._typical():.1f} ms/epoch"

    def _left_in_words(self, epoch: int) -> str:
        return f", ETA {in_words(self.seconds_left(epoch))}" if epoch < self.n_epochs else ""


def in_words(seconds: float) -> str:
    """A duration as people say it: 8 s, 3 min 20 s, 2 h 05 min, 3 d 04 h."""
    whole = max(0, math.ceil(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 86400} d {whole % 86400 // 3600:02} h"


def _bar(share: float) -> str:
    filled = int(share * BAR_WIDTH)
    return "[" + "#" * filled + "." * (BAR_WIDTH - filled) + "]"
