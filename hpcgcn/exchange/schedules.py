"""How a codec's rate moves over training.

A schedule is written as text: `8`, `linear:128:1:5`, `step:1@0,2@50,32@150`, `cosine:64:1`,
`plateau:1:32:10`.
The rate is bits for the codec `bits` and a compression ratio for `subset` and `nodes`.
"""

from __future__ import annotations

import math

from hpcgcn.errors import ConfigError

FORMS = ("VALUE", "linear:FROM:TO[:SLOPE]", "step:VALUE@EPOCH,VALUE@EPOCH,...", "cosine:FROM:TO",
         "plateau:FROM:TO[:PATIENCE]")


class Schedule:
    """A constant rate; the base of the others."""

    def __init__(self, value: float):
        self.value = value

    def rate(self, epoch: int) -> float:
        """The rate of an epoch."""
        return self.value

    def extremes(self) -> tuple[float, float]:
        """The least and the greatest rate of any epoch, so that settings can be refused before."""
        return self.value, self.value

    def observe(self, loss: float):
        """Take in the global loss of an epoch; only adaptive schedules depend on it."""

    def state(self) -> list[float]:
        """What a checkpoint must hold to go on."""
        return []

    def restore(self, state: list[float]):
        """Go on from `state()`."""


class Linear(Schedule):
    """VARCO's: from `first` to `last`, reaching it at about epochs / slope."""

    def __init__(self, first: float, last: float, slope: float, n_epochs: int):
        self.first, self.last, self.slope = first, last, slope
        self.span = max(n_epochs - 2, 1)

    def rate(self, epoch):
        moved = self.first + self.slope * epoch * (self.last - self.first) / self.span
        return max(moved, self.last) if self.last < self.first else min(moved, self.last)

    def extremes(self):
        return min(self.first, self.last), max(self.first, self.last)


class Cosine(Schedule):
    """Half a cosine from `first` to `last` over all epochs: slow at both ends."""

    def __init__(self, first: float, last: float, n_epochs: int):
        self.first, self.last, self.span = first, last, max(n_epochs - 1, 1)

    def rate(self, epoch):
        done = min(epoch / self.span, 1.0)
        return self.last + (self.first - self.last) * 0.5 * (1.0 + math.cos(math.pi * done))

    def extremes(self):
        return min(self.first, self.last), max(self.first, self.last)


class Steps(Schedule):
    """Piecewise constant."""

    def __init__(self, steps: list[tuple[int, float]]):
        self.steps = sorted(steps)

    def rate(self, epoch):
        return [value for first, value in self.steps if first <= epoch][-1]

    def extremes(self):
        values = [value for _, value in self.steps]
        return min(values), max(values)


class Plateau(Schedule):
    """Doubles or halves towards `last` if the loss has not fallen by 1 % in `patience` epochs."""

    def __init__(self, first: float, last: float, patience: int):
        self.last, self.patience = last, patience
        self.value, self.best, self.since = first, math.inf, 0

    def rate(self, epoch):
        return self.value

    def extremes(self):
        return min(self.value, self.last), max(self.value, self.last)

    def observe(self, loss):
        if loss < 0.99 * self.best:
            self.best, self.since = loss, 0
            return
        self.since += 1
        if self.since >= self.patience:
            falls = self.last < self.value
            self.value = max(self.value / 2, self.last) if falls else min(self.value * 2, self.last)
            self.best, self.since = loss, 0

    def state(self):
        return [self.value, self.best, float(self.since)]

    def restore(self, state):
        self.value, self.best, self.since = float(state[0]), float(state[1]), int(state[2])


class Rates:
    """The schedules of a run: the common one, and those of hops that have another."""

    def __init__(self, family: str, text: str, n_epochs: int):
        """family, text: of the common one."""
        self.n_epochs, self._common_key = n_epochs, (family, text)
        self.common = parse_schedule(text, n_epochs)
        self._others: dict[tuple[str, str], Schedule] = {}

    def of(self, family: str, text: str) -> Schedule:
        """The schedule of a hop with this codec and rate."""
        if (family, text) == self._common_key:
            return self.common
        if (family, text) not in self._others:
            self._others[family, text] = parse_schedule(text, self.n_epochs)
        return self._others[family, text]

    def _all(self) -> list[Schedule]:
        return [self.common, *(self._others[key] for key in sorted(self._others))]

    def observe(self, loss: float):
        """Tell all of them the global loss, after each epoch."""
        for schedule in self._all():
            schedule.observe(loss)

    def state(self) -> list[float]:
        """What a checkpoint must hold to go on."""
        return [number for schedule in self._all() for number in schedule.state()]

    def restore(self, state: list[float]):
        """Go on from `state()`; that of other schedules is left aside."""
        if len(state) != len(self.state()):
            return
        for schedule in self._all():
            n = len(schedule.state())
            schedule.restore(state[:n])
            state = state[n:]


def parse_schedule(text: str, n_epochs: int) -> Schedule:
    """The schedule written as `text`; a clear ConfigError otherwise."""
    name, _, rest = str(text).partition(":")
    try:
        if not rest:
            return Schedule(_positive(name))
        if name == "step":
            return _parse_steps(rest)
        values = [_positive(v) for v in rest.split(":")]
        if name == "linear" and len(values) in (2, 3):
            return Linear(values[0], values[1], values[2] if len(values) == 3 else 1.0, n_epochs)
        if name == "cosine" and len(values) == 2:
            return Cosine(values[0], values[1], n_epochs)
        if name == "plateau" and len(values) in (2, 3):
            return Plateau(values[0], values[1], int(values[2]) if len(values) == 3 else 10)
    except ValueError:
        pass
    raise ConfigError(f"rate '{text}' is not a schedule; write one of: {', '.join(FORMS)}")


def _parse_steps(text: str) -> Steps:
    parts = (step.partition("@") for step in text.split(","))
    steps = [(int(epoch), _positive(value)) for value, _, epoch in parts]
    if min(epoch for epoch, _ in steps) != 0:
        raise ValueError("the first step must begin at epoch 0")
    return Steps(steps)


def _positive(text: str) -> float:
    value = float(text)
    if not value > 0 or math.isinf(value):
        raise ValueError("a rate is a positive number")
    return value
