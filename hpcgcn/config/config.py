"""The settings of a run: nested groups in Python, flat names in flags, TOML and arguments."""

from __future__ import annotations

import dataclasses
import difflib
import logging
from dataclasses import dataclass
from typing import Any

from hpcgcn.config.groups import (
    ArchitectureSettings,
    CommunicationSettings,
    MachineSettings,
    RunSettings,
    TrainingSettings,
)
from hpcgcn.config.old_keys import OLD_FIELDS, REPLACED_BY, with_old
from hpcgcn.errors import ConfigError
from hpcgcn.exchange.presets import PRESETS
from hpcgcn.parallel import settings_groups
from hpcgcn.setting import THE_SETTINGS, SettingsGroup, checked, key_of

log = logging.getLogger(__name__)


# Every group by its name in Python; a strategy brings its own.
GROUPS: dict[str, type[SettingsGroup]] = {
    "architecture": ArchitectureSettings, "training": TrainingSettings,
    "communication": CommunicationSettings, **settings_groups(), "machine": MachineSettings,
    "run": RunSettings}
_Groups: type = dataclasses.make_dataclass("_Groups", GROUPS.items(), frozen=True, init=False)


@dataclass(frozen=True, init=False)
class Config(_Groups):
    """The settings of one run; they cannot be changed, `replace` makes others.

        Config(method="pipegcn", layers=4).training.epochs

    Every setting is read from its group, or by its own name (`config.epochs`).
    """

    def __init__(self, **settings):
        """Settings by name, over the preset of `method`; also whole groups by theirs."""
        groups = {name: settings.pop(name) for name in GROUPS if name in settings}
        chosen = _chosen_in(groups) | check_settings(settings, THE_SETTINGS)
        values = _over_preset(chosen)
        for name, group in GROUPS.items():
            own = {key_of(spec): spec.name for spec in dataclasses.fields(group)}
            object.__setattr__(self, name, group(**{own[key]: values[key]
                                                    for key in own if key in values}))
        for name in GROUPS:
            getattr(self, name).check(self)
        _note_renamed(settings, THE_SETTINGS, self)

    def replace(self, **changes) -> Config:
        """The same settings but for these.

        Another method brings its preset; what differed from the old method's preset stays.
        """
        return dataclasses.replace(self, **changes)

    def __getattr__(self, name: str) -> Any:
        key = name.rstrip("_")
        group = GROUP_OF_KEY.get(RENAMED.get(key, key))
        if group is None or group not in self.__dict__:
            raise AttributeError(f"there is no setting '{name}'")
        return getattr(self.__dict__[group], FIELDS[RENAMED.get(key, key)].name)

    def as_dict(self) -> dict[str, Any]:
        """All settings {key: value}."""
        return {key: getattr(self.__dict__[GROUP_OF_KEY[key]], spec.name)
                for key, spec in FIELDS.items()}


FIELDS = {key_of(spec): spec for group in GROUPS.values() for spec in dataclasses.fields(group)}
GROUP_OF_KEY = {key_of(spec): name for name, group in GROUPS.items()
                for spec in dataclasses.fields(group)}
# {old key: key}: old ones are understood, with a note.
RENAMED: dict[str, str] = {"ways": "partitions_per_stage"}


def field_named(key: str, where: str) -> dataclasses.Field:
    """The field of a key written by a user; an unknown one is an error that names the nearest."""
    name = str(key).replace("-", "_")
    name = RENAMED.get(name, name)
    if name in OLD_FIELDS:
        return OLD_FIELDS[name]
    name = name if name in FIELDS else name.rstrip("_")
    if name not in FIELDS:
        near = difflib.get_close_matches(name[:100], FIELDS, n=1)
        hint = f"did you mean '{near[0]}'?" if near else "hpcgcn config lists all keys"
        raise ConfigError(f"unknown key {str(key)[:80]!r} in {where}: {hint}")
    return FIELDS[name]


def check_settings(given: dict, where: str) -> dict[str, Any]:
    """{key: value} as the user wrote them, with keys that exist and values that are allowed."""
    chosen = {}
    for key, value in given.items():
        spec = field_named(key, where)
        chosen[key_of(spec)] = checked(spec, value, where)
    return chosen


def make_config(given: dict | None = None, toml_path: str | None = None,
                where: str = THE_SETTINGS) -> Config:
    """The effective settings from {key: value}, which `where` names, over an optional TOML file."""
    from hpcgcn.config.toml import read_toml
    if not isinstance(given, (dict, type(None))):
        raise ConfigError(f"settings cannot be a {type(given).__name__}: expected a Config or "
                          "{key: value}; make_config(toml_path=...) reads a TOML file")
    sources = [(read_toml(toml_path), toml_path)] if toml_path else []
    sources.append((given or {}, where))
    chosen: dict[str, Any] = {}
    for settings, place in sources:
        chosen |= check_settings(settings, place)
    config = Config(**chosen)
    for settings, place in sources:
        _note_renamed(settings, place, config)
    return config


def _note_renamed(given: dict, where: str, config: Config):
    """Tell the new names of old keys; only now is it known whether anybody wants to hear it."""
    for key in given:
        if not config.quiet and (name := RENAMED.get(str(key).replace("-", "_"))):
            log.info("'%s' in %s is now called '%s'", key, where, name)
    old = [key for key in (str(key).replace("-", "_") for key in given) if key in REPLACED_BY]
    if old and not config.quiet:
        log.info("%s in %s: now written as %s, by hop and direction (`hpcgcn methods`)",
                 ", ".join(old), where, ", ".join(dict.fromkeys(REPLACED_BY[key] for key in old)))


def _preset(method: str, chosen: dict) -> dict[str, Any]:
    settings = dict(PRESETS[method].settings)
    if "codec" in chosen:
        settings.pop("rate", None)       # it was meant for the preset's own codec
    return settings


def _over_preset(chosen: dict) -> dict[str, Any]:
    values = _preset(chosen.get("method", FIELDS["method"].default), chosen) | chosen
    return with_old(values, chosen, {key: str(FIELDS[key].default) for key in REPLACED_BY.values()})


def _chosen_in(groups: dict[str, Any]) -> dict[str, Any]:
    """What whole groups say beyond the defaults and the preset of their own method."""
    held: dict[str, Any] = {}
    for name, group in groups.items():
        if not isinstance(group, GROUPS[name]):
            raise ConfigError(f"{name} is a group of settings: expected "
                              f"{GROUPS[name].__name__}(...), or its settings by "
                              f"their own names")
        held |= {key_of(spec): getattr(group, spec.name) for spec in dataclasses.fields(group)}
    method = held.get("method", FIELDS["method"].default)
    implied = {key: spec.default for key, spec in FIELDS.items()} | PRESETS[method].settings
    return {key: value for key, value in held.items() if value != implied[key]}
