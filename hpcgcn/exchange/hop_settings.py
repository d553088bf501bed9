"""The settings that every hop and direction can have its own value of, read from their texts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hpcgcn.errors import ConfigError
from hpcgcn.exchange.codecs import CODEC_NAMES, fixed_rate
from hpcgcn.exchange.per_hop import HopFacts, PerHop, number, one_of, parse, whole_number
from hpcgcn.exchange.schedules import parse_schedule

# Codecs whose rate a schedule moves, and the schedule that they have if none is given.
DEFAULT_RATE = {"bits": "8", "adaptive": "2", "subset": "4", "nodes": "10"}


def _staleness(text: str) -> int:
    return int(one_of("0", "1")(text))


def _rate(text: str) -> str:
    if text.lower() in ("inf", "infinity"):
        raise ValueError(f"'{text}' would send nothing: that is codec = 'none' (method = "
                         "'no-communication'); any other ratio is finite")
    if text != "auto":
        try:
            parse_schedule(text, 1)
        except ConfigError as error:
            raise ValueError(str(error)) from None
    return text


# {key: (reader of one value, value where nothing is said)}
READERS: dict[str, tuple[Callable[[str], Any], Any]] = {
    "staleness": (_staleness, 0), "codec": (one_of(*CODEC_NAMES), "fp32"), "rate": (_rate, "auto"),
    "refresh_every": (whole_number(), 0), "smoothing": (number(below=1.0), 0.0),
    "stale_error": (number(infinite=True), math.inf)}


def read(key: str, text: str) -> PerHop:
    """The values of a setting; ValueError with the reason if its text is wrong."""
    return parse(text, *READERS[key])


@dataclass(frozen=True)
class HopSettings:
    """All of them; `texts` as they were written, for messages."""

    staleness: PerHop
    codec: PerHop
    rate: PerHop
    refresh_every: PerHop
    smoothing: PerHop
    stale_error: PerHop
    texts: dict[str, str]

    @classmethod
    def of(cls, config) -> HopSettings:
        """Those of a run."""
        texts = {key: str(getattr(config, key)) for key in READERS}
        return cls(**{key: read(key, text) for key, text in texts.items()}, texts=texts)

    def families(self) -> set[str]:
        """The codecs that some hop has, whatever their rates."""
        return {family_of(name) for name in self.codec.values()}

    def is_stale(self, direction: str = "") -> bool:
        """May some hop be stale (in this direction)?"""
        return any(self.staleness.values(direction))

    def check_hops(self, hops: list[HopFacts]):
        """Refuse hops that the model does not have."""
        for key, text in self.texts.items():
            wrong = [hop for hop in getattr(self, key).numbers() if hop > len(hops)]
            if wrong:
                there = (f"rows are exchanged at hops 1 to {len(hops)}" if hops
                         else "no rows are exchanged")
                raise ConfigError(f"{key} = '{text}': there is no hop {wrong[0]}; in this model "
                                  f"{there}")

    def codec_at(self, hop: HopFacts, direction: str) -> tuple[str, str]:
        """(codec family, rate schedule) of a hop and direction."""
        codec = self.codec.at(hop, direction)
        selector, rate = self.rate.entry(hop, direction)
        if selector.direction or selector.place:
            return codec_rate(codec, rate)
        return codec_rate(codec, rate if family_of(codec) in DEFAULT_RATE and not fixed_rate(codec)
                          else "auto")


def family_of(codec: str) -> str:
    """The codec without its rate: `4bit` is `bits`."""
    return "bits" if fixed_rate(codec) else codec


def codec_rate(codec: str, rate: str) -> tuple[str, str]:
    """(codec family, rate schedule) that a codec and a rate mean together."""
    bits = fixed_rate(codec)
    if bits:
        if rate != "auto":
            raise ConfigError(f"codec = '{codec}' fixes the rate at {bits}, but rate = '{rate}' is "
                              f"given; write codec = 'bits' to let the rate move")
        return "bits", str(bits)
    if codec not in DEFAULT_RATE and rate != "auto":
        raise ConfigError(f"codec = '{codec}' has no rate, but rate = '{rate}' is given; codecs "
                          f"with a rate are bits, adaptive, subset and nodes")
    return codec, DEFAULT_RATE.get(codec, "1") if rate == "auto" else rate
