"""Axes: ranges, round ticks, and numbers in the unit that suits them."""

from __future__ import annotations

import math
from dataclasses import dataclass

_SI = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True)
class Scale:
    """Maps low..high to first..last pixels, linearly or by logarithm."""

    low: float
    high: float
    first: float
    last: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = (math.log10(self.low),
                     math.log10(self.high)) if self.log else (self.low, self.high)
        share = ((math.log10(value) if self.log else value) - low) / (high - low)
        return self.first + share * (self.last - self.first)

    def ticks(self, most: int = 6) -> list[float]:
        """Round values within the range."""
        return _log_ticks(self.low, self.high,
                          most) if self.log else _linear_ticks(self.low, self.high, most)


def _linear_ticks(low: float, high: float, most: int) -> list[float]:
    exponent = math.floor(math.log10((high - low) / most))
    step = next(s for e in (exponent, exponent + 1)
                for s in (10.0 ** e, 2 * 10.0 ** e, 5 * 10.0 ** e) if (high - low) / s <= most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        ticks = [d * 10.0 ** e for e in exponents
                 for d in digits if low * 0.999 <= d * 10.0 ** e <= high * 1.001]
        if len(ticks) <= most:
            return ticks if len(ticks) > 1 else _linear_ticks(low, high, most)
    return ticks[::math.ceil(len(ticks) / most)]


def padded(values: list[float], share: float = 0.04) -> tuple[float, float]:
    """A range a little wider than the values; never empty."""
    low, high = min(values), max(values)
    if high == low:
        margin = abs(high) * 0.1 or 1.0
        return low - margin, high + margin
    return low - share * (high - low), high + share * (high - low)


def number(value: float, digits: int = 3) -> str:
    """A number with so many significant digits, without exponent where that is readable."""
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        text = (f"{value:.{max(digits - 1 - math.floor(math.log10(abs(value))), 0)}f}" if value
                else "0")
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.{digits - 1}e}"


def size(n_bytes: float, digits: int = 3) -> str:
    """Bytes with a decimal prefix: 1.5 GB."""
    for factor, prefix in _SI:
        if n_bytes >= factor:
            return f"{number(n_bytes / factor, digits)} {prefix}B"
    return f"{number(n_bytes, digits)} B"


def duration(seconds: float, digits: int = 3) -> str:
    """Seconds in the unit that suits them: 12 ms, 3.4 s, 1 h 05 min."""
    if seconds >= 3600:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min"
    if seconds >= 300:
        return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= factor:
            return f"{number(seconds / factor, digits)} {unit}"
    return f"{number(seconds, digits)} s"
