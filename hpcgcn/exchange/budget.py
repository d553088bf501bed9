"""A byte budget: the rate schedule whose messages over the run add up to it."""

from __future__ import annotations

import contextlib
import math
import re
from collections import Counter

import numpy as np

from hpcgcn.errors import ConfigError
from hpcgcn.exchange.codecs import NodesCodec
from hpcgcn.exchange.schedules import Linear, Schedule

SPAN = {"bits": (1.0, 32.0), "subset": (128.0, 1.0), "nodes": (100.0, 1.0)}
UNITS = {"": 1, "B": 1, "KB": 10 ** 3, "MB": 10 ** 6, "GB": 10 ** 9, "TB": 10 ** 12}


def parse_bytes(text: str) -> int:
    """A number of bytes from text such as 1500000, 20MB, 1.5GB."""
    match = re.fullmatch(r"\s*([0-9.]+)\s*([KMGT]?B?)\s*", str(text), re.IGNORECASE)
    if match:
        with contextlib.suppress(KeyError, ValueError, OverflowError):     # 5K, 1.5.2, 9e999
            return int(float(match[1]) * UNITS[match[2].upper()])
    raise ConfigError(f"byte_budget = '{text}': write a number of bytes, such as 1500000, 20MB "
                      f"or 1.5GB")


class _Itemsize:
    """The part of a backend that message sizes depend on."""

    def __init__(self, itemsize: int):
        self.dtype = np.dtype(f"f{itemsize}")


def run_bytes(policies, schedule: Schedule, itemsize: int) -> int:
    """Bytes of all training exchanges of all ranks, with `schedule` in the place of the common
    rate; a bound, for codec `nodes`, which sends a row at least of each message."""
    n_epochs, table, total = policies.config.epochs, _Itemsize(itemsize), 0
    n_messages = policies.most_copies * (policies.most_copies + 1)       # of an exchange, at most
    for hop, direction in policies.exchanges():
        policy = policies(hop.number, direction)
        moved = schedule if policy.rate is policies.rates.common else policy.rate
        for rate, n in _epochs_by_rate(moved, n_epochs).items():
            if isinstance(policy.codec, NodesCodec):
                most_rows = min(math.floor(hop.rows / rate) + n_messages, hop.rows)
                total += n * most_rows * hop.width * itemsize
            else:
                total += n * policy.codec.nbytes(table, range(hop.rows), hop.width, rate, None)
    return total


def _epochs_by_rate(schedule: Schedule, n_epochs: int) -> Counter:
    return Counter(schedule.rate(epoch) for epoch in range(n_epochs))


def budget_span(family: str, given: Schedule) -> tuple[float, float]:
    """The ends of a budget's schedule: those of a linear one if given, or the codec's range."""
    return (given.first, given.last) if isinstance(given, Linear) else SPAN[family]


def budget_schedule(policies, family: str, budget: int, itemsize: int) -> Schedule:
    """The linear schedule whose messages over the run add up to the budget.

    Compressed first, the full rate as early as it is paid for.
    """
    first, last = budget_span(family, policies.rates.common)
    n_epochs = policies.config.epochs

    def at_slope(slope):
        schedule = Linear(first, last, slope, n_epochs)
        return schedule, run_bytes(policies, schedule, itemsize)

    low, high = 0.0, float(max(n_epochs, 2)) * 4
    if at_slope(low)[1] > budget:
        raise ConfigError(f"byte_budget = {budget} is less than the {at_slope(low)[1]} bytes that "
                          f"codec '{family}' sends at its strongest setting {first:g} over "
                          f"{n_epochs} epochs; raise the budget, or run fewer epochs")
    if at_slope(high)[1] <= budget:
        return at_slope(high)[0]
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if at_slope(middle)[1] <= budget else (low, middle)
    return at_slope(low)[0]
