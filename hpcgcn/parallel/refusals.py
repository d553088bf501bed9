"""What settings of several strategies are checked by.

No heavy imports: the configuration uses it.
"""

from __future__ import annotations

from dataclasses import fields

from hpcgcn.errors import ConfigError
from hpcgcn.setting import SettingsGroup


def codec_family(config) -> str:
    """The codec that the settings mean, whatever its rate."""
    from hpcgcn.exchange.policies import codec_rate
    return codec_rate(config)[0]


def has_budget(config) -> bool:
    """Is there a byte budget?"""
    from hpcgcn.exchange.policies import parse_bytes
    return parse_bytes(config.byte_budget) > 0


def changed(group: SettingsGroup) -> list[str]:
    """Names of the settings that are not the defaults."""
    return [spec.name for spec in fields(group) if getattr(group, spec.name) != spec.default]


def refuse(strategy: str, reasons: tuple[tuple[object, str], ...]):
    """Raise ConfigError with the first reason whose condition holds."""
    for wrong, reason in reasons:
        if wrong:
            raise ConfigError(f"parallel = '{strategy}': {reason}")
