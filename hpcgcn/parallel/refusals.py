"""What settings of several strategies are checked by.

No heavy imports: the configuration uses it.
"""

from __future__ import annotations

from dataclasses import fields

from hpcgcn.errors import ConfigError
from hpcgcn.setting import SettingsGroup


def codec_families(config) -> set[str]:
    """The codecs of some hop, whatever their rates."""
    from hpcgcn.exchange.hop_settings import HopSettings
    return HopSettings.of(config).families()


def is_stale(config) -> bool:
    """May some hop be stale?"""
    from hpcgcn.exchange.hop_settings import HopSettings
    return HopSettings.of(config).is_stale()


def smooths(config) -> bool:
    """Is something smoothed?"""
    from hpcgcn.exchange.hop_settings import HopSettings
    return any(HopSettings.of(config).smoothing.values())


def has_budget(config) -> bool:
    """Is there a byte budget?"""
    from hpcgcn.exchange.budget import parse_bytes
    return parse_bytes(config.byte_budget) > 0


def attends(config) -> bool:
    """Are the coefficients of the model's aggregations computed from activations?"""
    from hpcgcn.nn.models import MODELS
    return MODELS[config.model].attends


def changed(group: SettingsGroup) -> list[str]:
    """Names of the settings that are not the defaults."""
    return [spec.name for spec in fields(group) if getattr(group, spec.name) != spec.default]


def refuse(strategy: str, reasons: tuple[tuple[object, str], ...]):
    """Raise ConfigError with the first reason whose condition holds."""
    for wrong, reason in reasons:
        if wrong:
            raise ConfigError(f"parallel = '{strategy}': {reason}")
