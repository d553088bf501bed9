"""From settings to the policies of a run's exchanges; contradictions are refused."""

from __future__ import annotations

import contextlib
import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpcgcn.errors import ConfigError
from hpcgcn.exchange.codecs import NodesCodec, fixed_rate, make_codec
from hpcgcn.exchange.schedules import Linear, Schedule, parse_schedule
from hpcgcn.exchange.types import Policy

DEFAULT_RATE = {"bits": "8", "subset": "4", "nodes": "10"}
BUDGET_SPAN = {"bits": (1.0, 32.0), "subset": (128.0, 1.0), "nodes": (100.0, 1.0)}
UNITS = {"": 1, "B": 1, "KB": 10 ** 3, "MB": 10 ** 6, "GB": 10 ** 9, "TB": 10 ** 12}


def codec_rate(config) -> tuple[str, str]:
    """(codec family, rate schedule) that the settings mean."""
    bits = fixed_rate(config.codec)
    if bits:
        if config.rate != "auto":
            raise ConfigError(f"codec = '{config.codec}' fixes the rate at {bits}, but rate = "
                              f"'{config.rate}' is given; write codec = 'bits' to let the rate "
                              f"move")
        return "bits", str(bits)
    if config.codec not in DEFAULT_RATE and config.rate != "auto":
        raise ConfigError(f"codec = '{config.codec}' has no rate, but rate = '{config.rate}' is "
                          f"given; codecs with a rate are bits, subset and nodes")
    usual = DEFAULT_RATE.get(config.codec, "1")
    return config.codec, usual if config.rate == "auto" else config.rate


def check_combination(config):
    """Refuse settings that contradict each other."""
    family, rate = codec_rate(config)
    schedule = parse_schedule(rate, max(config.epochs, 1))
    stale = config.staleness_features or config.staleness_gradients
    for staleness, smooth, what in (
            (config.staleness_features, config.smooth_features, "features"),
            (config.staleness_gradients, config.smooth_gradients, "gradients")):
        if smooth and not staleness:
            raise ConfigError(f"smooth_{what} = {smooth} needs staleness_{what} = 1: a synchronous "
                              f"exchange uses what was just sent, there is nothing to smooth")
    if config.refresh_every and not stale:
        raise ConfigError(f"refresh_every = {config.refresh_every} needs staleness: without it "
                          f"every epoch is synchronous")
    if config.error_feedback and config.residual:
        raise ConfigError("error_feedback and residual exclude each other: coding the difference "
                          "to what the receiver has already carries over what was lost")
    budget = parse_bytes(config.byte_budget)
    if budget and family not in BUDGET_SPAN:
        raise ConfigError(f"byte_budget needs a codec with a rate (bits, subset or nodes), not "
                          f"'{config.codec}'")
    if budget and fixed_rate(config.codec):
        raise ConfigError(f"byte_budget moves the rate, but codec = '{config.codec}' fixes it; "
                          f"write codec = 'bits'")
    if budget and str(rate).partition(":")[0] in ("cosine", "step", "plateau"):
        raise ConfigError(f"byte_budget makes a linear schedule, but rate = '{rate}' is another; "
                          f"give its ends as rate = 'linear:FROM:TO', or leave rate out")
    low, high = budget_span(family, schedule) if budget else schedule.extremes()
    if config.error_feedback or config.residual:
        _check_feedback(config, family, min(low, high))
    if config.rescale and family != "subset":
        raise ConfigError(f"rescale is for codec = 'subset', not '{config.codec}'")
    if family in ("subset", "nodes") and min(low, high) < 1:
        raise ConfigError(f"rate = '{rate}': a compression ratio is at least 1 (1 sends "
                          f"everything)")
    if family == "bits" and max(low, high) > 32:
        raise ConfigError(f"rate = '{rate}': codec 'bits' sends at most 32 bits per element")
    if config.mpi == "cuda-aware" and config.backend != "cuda":
        raise ConfigError("mpi = 'cuda-aware' needs backend = 'cuda'")


def _check_feedback(config, family: str, lowest_rate: float):
    what = "error_feedback" if config.error_feedback else "residual"
    if family == "fp32":
        raise ConfigError(f"{what} has nothing to do with codec = 'fp32': nothing is lost")
    if family == "nodes" or (family == "subset" and config.rescale):
        raise ConfigError(f"{what} does not go with rescaled samples: what is scaled up is not a "
                          f"loss to make up for, and the feedback would grow without bound")
    if family == "bits" and config.rounding == "stochastic" and lowest_rate < 2:
        raise ConfigError(f"{what} with 1 bit and stochastic rounding grows without bound: one "
                          f"message's error exceeds the message; add rounding = 'nearest'")


@dataclass
class Policies:
    """The policy of each hop and direction of training.

    The rate's schedule is shared by all, so that an adaptive one observes each loss once.
    """

    config: Any                      # all settings of the run
    rate: Schedule
    n_hops: int
    most_copies: int = 1             # of one node's row in an exchange: ranks but its own

    def __call__(self, hop: int, direction: str) -> Policy:
        config, forward = self.config, direction == "forward"
        family, _ = codec_rate(config)
        stale = config.staleness_features if forward else config.staleness_gradients
        compressed = config.compress_last or hop < self.n_hops
        codec = make_codec(family if compressed else "fp32",
                           wide_parameters=config.code_parameters == "fp32",
                           nearest=config.rounding == "nearest", rescale=config.rescale)
        return Policy(codec, self.rate, staleness=stale,
                      refresh_every=config.refresh_every if stale else 0,
                      first_epoch=config.first_epoch,
                      smoothing=config.smooth_features if forward else config.smooth_gradients,
                      smoothing_correction=config.smooth_correction,
                      error_feedback=config.error_feedback and compressed,
                      residual=config.residual and compressed)


def make_policies(config, rows_sent: int, widths: list[tuple[int, int]], itemsize: int = 4,
                  n_ranks: int = 2) -> Policies:
    """The policies of a run.

    rows_sent: halo rows over all ranks; widths: (hop, width) of every training exchange.
    """
    family, text = codec_rate(config)
    n_hops = max((hop for hop, _ in widths), default=0)
    schedule = parse_schedule(text, max(config.epochs, 1))
    policies = Policies(config, schedule, n_hops, max(n_ranks - 1, 1))
    budget = parse_bytes(config.byte_budget)
    if budget:
        policies.rate = budget_schedule(policies, family, text, budget, rows_sent, widths, itemsize)
    return policies


def plain_policy() -> Policy:
    """Exact and synchronous: evaluation, and all that happens once."""
    return Policy(make_codec("fp32"), Schedule(1.0))


def parse_bytes(text: str) -> int:
    """A number of bytes from text such as 1500000, 20MB, 1.5GB."""
    match = re.fullmatch(r"\s*([0-9.]+)\s*([KMGT]?B?)\s*", str(text), re.IGNORECASE)
    if match:
        with contextlib.suppress(KeyError, ValueError, OverflowError):     # 5K, 1.5.2, 9e999
            return int(float(match[1]) * UNITS[match[2].upper()])
    raise ConfigError(f"byte_budget = '{text}': write a number of bytes, such as 1500000, 20MB "
                      f"or 1.5GB")


def run_bytes(policies: Policies, schedule: Schedule, rows_sent: int, widths, itemsize: int) -> int:
    """Bytes of all training exchanges of all ranks; a bound, for codecs that draw."""
    codecs = [(policies(hop, "forward").codec, width) for hop, width in widths]
    table = _Itemsize(itemsize)
    n_epochs = Counter(schedule.rate(epoch) for epoch in range(policies.config.epochs))
    drawn = [width for codec, width in codecs if isinstance(codec, NodesCodec)]
    fixed = [(codec, width) for codec, width in codecs if not isinstance(codec, NodesCodec)]
    total = sum(n * codec.nbytes(table, range(rows_sent), width, rate, None)
                for rate, n in n_epochs.items() for codec, width in fixed)
    return total + _most_rows(policies, n_epochs, rows_sent) * sum(drawn) * itemsize


def _most_rows(policies: Policies, n_epochs: Counter, rows_sent: int) -> int:
    """Rows that codec `nodes` sends in the run, plus four standard deviations.

    A node's copies are drawn together.
    """
    shares = [(NodesCodec.share(rate), n) for rate, n in n_epochs.items()]
    mean = sum(n * rows_sent * p for p, n in shares)
    variance = sum(n * rows_sent * p * (1 - p) for p, n in shares) * policies.most_copies
    return math.ceil(mean + 4 * math.sqrt(variance))


class _Itemsize:
    """The part of a backend that message sizes depend on."""

    def __init__(self, itemsize: int):
        self.dtype = np.dtype(f"f{itemsize}")


def budget_span(family: str, given: Schedule) -> tuple[float, float]:
    """The ends of a budget's schedule: those of a linear one if given, or the codec's range."""
    return (given.first, given.last) if isinstance(given, Linear) else BUDGET_SPAN[family]


def budget_schedule(policies, family, text, budget, rows_sent, widths, itemsize) -> Schedule:
    """The linear schedule whose messages over the run add up to the budget.

    Compressed first, the full rate as early as it is paid for.
    """
    given = parse_schedule(text, max(policies.config.epochs, 1))
    first, last = budget_span(family, given)

    def at_slope(slope):
        schedule = Linear(first, last, slope, policies.config.epochs)
        return schedule, run_bytes(policies, schedule, rows_sent, widths, itemsize)

    low, high = 0.0, float(max(policies.config.epochs, 2)) * 4
    if at_slope(low)[1] > budget:
        raise ConfigError(f"byte_budget = {budget} is less than the {at_slope(low)[1]} bytes that "
                          f"codec '{family}' sends at its strongest setting {first:g} over "
                          f"{policies.config.epochs} epochs; raise the budget, or run fewer epochs")
    if at_slope(high)[1] <= budget:
        return at_slope(high)[0]
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if at_slope(middle)[1] <= budget else (low, middle)
    return at_slope(low)[0]
