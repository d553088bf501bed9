"""From settings to the policies of a run's exchanges; contradictions are refused."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hpcgcn.errors import ConfigError
from hpcgcn.exchange.budget import SPAN, budget_schedule, budget_span, parse_bytes
from hpcgcn.exchange.codecs import fixed_rate, make_codec
from hpcgcn.exchange.hop_settings import DEFAULT_RATE, HopSettings, codec_rate, family_of
from hpcgcn.exchange.per_hop import HopFacts
from hpcgcn.exchange.schedules import Rates, Schedule, parse_schedule
from hpcgcn.exchange.types import Policy


def check_combination(config):
    """Refuse settings that contradict each other, whatever the model."""
    settings = HopSettings.of(config)
    _check_staleness(settings)
    if config.error_feedback and config.residual:
        raise ConfigError("error_feedback and residual exclude each other: coding the difference "
                          "to what the receiver has already carries over what was lost")
    _check_rates(config, settings)
    if config.change_threshold:
        _check_threshold(config)
    if config.rescale and "subset" not in settings.families():
        raise ConfigError(f"rescale is for codec = 'subset', not '{config.codec}'")
    if config.mpi == "cuda-aware" and config.backend != "cuda":
        raise ConfigError("mpi = 'cuda-aware' needs backend = 'cuda'")
    if config.transport == "nccl":
        _check_nccl(config)


def _check_threshold(config):
    if not config.residual:
        raise ConfigError("change_threshold needs residual: rows that are not sent stay as the "
                          "receiver has them, which residual coding keeps account of")
    if config.transport == "nccl":
        raise ConfigError("change_threshold does not go with transport = 'nccl', whose receiver "
                          "must know the length of a message before: use transport = 'mpi'")
    if parse_bytes(config.byte_budget):
        raise ConfigError("byte_budget does not go with change_threshold: how many rows move is "
                          "not known before")


def _check_nccl(config):
    """NCCL matches messages by their order: every rank must start the same ones in turn."""
    if config.backend != "cuda":
        raise ConfigError("transport = 'nccl' needs backend = 'cuda'")
    if config.parallel not in ("auto", "single", "partition", "features"):
        raise ConfigError(f"transport = 'nccl' does not go with parallel = '{config.parallel}', "
                          "whose ranks exchange in different orders: use transport = 'mpi'")
    if config.sparse_ranks:
        raise ConfigError("transport = 'nccl' does not go with sparse_ranks, whose roles exchange "
                          "in different orders: use transport = 'mpi'")
    if config.mpi != "staged":
        raise ConfigError(f"transport = 'nccl' leaves nothing for mpi = '{config.mpi}': give one "
                          "of them")


def _check_staleness(settings: HopSettings):
    for direction, what in (("forward", "features"), ("backward", "gradients")):
        if any(settings.smoothing.values(direction)) and not settings.is_stale(direction):
            raise ConfigError(f"smoothing = '{settings.texts['smoothing']}' needs stale {what} "
                              f"(staleness = '1', or '{what}=1'): a synchronous exchange uses "
                              f"what was just sent, there is nothing to smooth")
    if any(bound < math.inf for bound in settings.stale_error.values()) and not settings.is_stale():
        raise ConfigError(f"stale_error = {settings.texts['stale_error']} needs staleness: without "
                          f"it every epoch is synchronous")
    if any(settings.refresh_every.values()) and not settings.is_stale():
        raise ConfigError(f"refresh_every = {settings.texts['refresh_every']} needs staleness: "
                          f"without it every epoch is synchronous")


def _check_rates(config, settings: HopSettings):
    """Every codec of the settings with every rate that could meet it."""
    budget = parse_bytes(config.byte_budget)
    moving = [name for name in settings.codec.values()
              if family_of(name) in DEFAULT_RATE and not fixed_rate(name)]
    if not moving:
        codec_rate(settings.codec.base, settings.rate.base)  # refuses a rate that moves nothing
    if budget:
        _check_budget(config, settings)
    if config.error_feedback or config.residual:
        _check_feedback(config, settings)
    for family in dict.fromkeys(moving):
        for rate in settings.rate.values():
            _check_range(family, rate, extremes(config, family, rate))


def extremes(config, family: str, rate: str) -> tuple[float, float]:
    """The least and the greatest rate that a codec with this schedule can have."""
    schedule = parse_schedule(DEFAULT_RATE[family] if rate == "auto" else rate,
                              max(config.epochs, 1))
    has_budget = parse_bytes(config.byte_budget) > 0
    rates = budget_span(family, schedule) if has_budget else schedule.extremes()
    return min(rates), max(rates)


def _check_range(family: str, rate: str, extremes: tuple[float, float]):
    if family in ("subset", "nodes") and extremes[0] < 1:
        raise ConfigError(f"rate = '{rate}': a compression ratio is at least 1 (1 sends "
                          f"everything)")
    if family == "adaptive" and not 1 <= extremes[0] <= extremes[1] <= 8:
        raise ConfigError(f"rate = '{rate}': codec 'adaptive' divides a mean of 1 to 8 bits per "
                          f"element among rows")
    if family == "bits" and extremes[1] > 32:
        raise ConfigError(f"rate = '{rate}': codec 'bits' sends at most 32 bits per element")


def _check_budget(config, settings: HopSettings):
    codec, rate = settings.codec.base, settings.rate.base
    if family_of(codec) == "adaptive":
        raise ConfigError("byte_budget does not go with codec = 'adaptive', which has a budget of "
                          "its own: the rate is the mean of bits per element of each message")
    if family_of(codec) not in SPAN:
        raise ConfigError(f"byte_budget needs a codec with a rate (bits, subset or nodes), not "
                          f"'{codec}'")
    if fixed_rate(codec):
        raise ConfigError(f"byte_budget moves the rate, but codec = '{codec}' fixes it; write "
                          f"codec = 'bits'")
    if rate.partition(":")[0] in ("cosine", "step", "plateau"):
        raise ConfigError(f"byte_budget makes a linear schedule, but rate = '{rate}' is another; "
                          f"give its ends as rate = 'linear:FROM:TO', or leave rate out")


def _check_feedback(config, settings: HopSettings):
    what = "error_feedback" if config.error_feedback else "residual"
    families = settings.families()
    if families == {"fp32"} and not config.change_threshold:
        raise ConfigError(f"{what} has nothing to do with codec = 'fp32': nothing is lost")
    if "none" in families:
        raise ConfigError(f"{what} does not go with codec = 'none': what was never sent would pile "
                          f"up without bound")
    if "nodes" in families or ("subset" in families and config.rescale):
        raise ConfigError(f"{what} does not go with rescaled samples: what is scaled up is not a "
                          f"loss to make up for, and the feedback would grow without bound")
    lowest: list[float] = [bits for name in settings.codec.values() if (bits := fixed_rate(name))]
    if "bits" in settings.codec.values():
        lowest += [extremes(config, "bits", rate)[0] for rate in settings.rate.values()]
    if "adaptive" in families:
        lowest.append(1)                         # some rows have 1 bit at any rate
    if config.rounding == "stochastic" and min(lowest, default=8) < 2:
        raise ConfigError(f"{what} with 1 bit and stochastic rounding grows without bound: one "
                          f"message's error exceeds the message; add rounding = 'nearest'")


@dataclass
class Policies:
    """The policy of each hop and direction of training.

    Hops of equal rate share its schedule, so that an adaptive one observes each loss once.
    """

    config: Any                      # all settings of the run
    settings: HopSettings
    hops: list[HopFacts]
    rates: Rates
    most_copies: int = 1             # of one node's row in an exchange: ranks but its own

    def __call__(self, number: int, direction: str) -> Policy:
        """number: of the hop; what follows the last hop is like the last."""
        config, settings, hop = self.config, self.settings, self._hop(number)
        family, rate = settings.codec_at(hop, direction)
        codec = make_codec(family, wide_parameters=config.code_parameters == "fp32",
                           nearest=config.rounding == "nearest",
                           rescale=config.rescale and family == "subset")
        bound = settings.stale_error.at(hop, direction)
        # An error of 0 allows nothing: that is synchronous, and needs no buffer of its own.
        stale = settings.staleness.at(hop, direction) if bound else 0
        residual = config.residual and (not codec.exact or config.change_threshold > 0)
        measured = {"all": True, "none": bool(stale) and bound < math.inf}.get(
            config.measure_error, bool(stale) or not codec.exact or residual)
        return Policy(codec, self.rates.of(family, rate), staleness=stale,
                      refresh_every=settings.refresh_every.at(hop, direction) if stale else 0,
                      first_epoch=config.first_epoch,
                      smoothing=settings.smoothing.at(hop, direction) if stale else 0.0,
                      smoothing_correction=config.smooth_correction,
                      error_feedback=config.error_feedback and not codec.exact,
                      residual=residual, change_threshold=config.change_threshold,
                      stale_error=bound if stale else math.inf, measured=measured)

    def _hop(self, number: int) -> HopFacts:
        if not self.hops:
            return HopFacts(number, 0, last=True)
        return self.hops[min(number, len(self.hops)) - 1]

    def exchanges(self) -> list[tuple[HopFacts, str]]:
        """Every hop and direction in which rows are sent."""
        return [(hop, direction) for hop in self.hops for direction in ("forward", "backward")
                if direction == "forward" or hop.gradients]

    def check(self, n_ranks: int):
        """Refuse what does nothing with this model."""
        self.settings.check_hops(self.hops)
        policies = [self(hop.number, direction) for hop, direction in self.exchanges()]
        lossy = not make_codec(family_of(self.settings.codec.base)).exact
        if n_ranks > 1 and lossy and policies and all(p.codec.exact for p in policies):
            raise ConfigError(f"codec = '{self.config.codec}' compresses nothing: this model "
                              f"exchanges rows at {len(self.hops)} hop"
                              f"{'s' if len(self.hops) > 1 else ''} only, and they are left out; "
                              f"write codec = '{self.settings.codec.base}' to compress them")


def make_policies(config, hops: list[HopFacts], itemsize: int = 4, n_ranks: int = 2) -> Policies:
    """The policies of a run whose model has these hops."""
    settings = HopSettings.of(config)
    family, text = codec_rate(settings.codec.base, settings.rate.base
                              if not fixed_rate(settings.codec.base)
                              and settings.codec.base in DEFAULT_RATE else "auto")
    policies = Policies(config, settings, hops, Rates(family, text, max(config.epochs, 1)),
                        max(n_ranks - 1, 1))
    policies.check(n_ranks)
    budget = parse_bytes(config.byte_budget)
    if budget:
        policies.rates.common = budget_schedule(policies, family, budget, itemsize)
    return policies


def plain_policy() -> Policy:
    """Exact and synchronous: evaluation, and all that happens once."""
    return Policy(make_codec("fp32"), Schedule(1.0))
