"""One setting: its type, bounds, choices and meaning; and the base of a group of them.

A group is a frozen dataclass whose fields are made by `setting`. It checks its values however it is
made, so a value that is out of range never gets further than the line that gave it.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from hpcgcn.errors import ConfigError

# Of a setting that names no other bound: MPI and kernels count in 32 bits.
LARGEST_INTEGER = 2 ** 31 - 1
# Where a value is from, in messages, if nothing better is known.
THE_SETTINGS = "the settings"


def setting(default: bool | int | float | str, help: str | Callable[[], str], *,
            choices: Iterable | Callable[[], Iterable] | None = None, low: float | None = None,
            high: float | None = None, below: float | None = None,
            parse: Callable[[str], Any] | None = None) -> Any:
    """A field with what flags, checks and documentation need.

    Bounds: low <= value <= high, value < below. choices and help may be functions, for what a
    registry in a heavier module knows. parse: for a text with a syntax of its own; it raises
    ValueError.
    """
    if type(default) is int and high is None:
        high = LARGEST_INTEGER
    return field(default=default, metadata={"help": help, "choices": choices, "low": low,
                                            "high": high, "below": below, "parse": parse})


@dataclass(frozen=True)
class SettingsGroup:
    """Base of all groups: values are checked, and brought to their types, when it is made."""

    def __post_init__(self):
        for spec in dataclasses.fields(self):
            value = checked(spec, getattr(self, spec.name), THE_SETTINGS)
            object.__setattr__(self, spec.name, value)

    def check(self, config):
        """Raise ConfigError for what does not go together; `config`: all settings."""


def key_of(spec: dataclasses.Field) -> str:
    """The TOML key of a field: `lambda` is `lambda_` in Python only."""
    return spec.name.rstrip("_")


def flag_of(key: str) -> str:
    """The command-line flag of a key."""
    return "--" + key.replace("_", "-")


def choices_of(spec: dataclasses.Field) -> tuple:
    """The values a setting may have; empty if it is free within its bounds."""
    choices = spec.metadata["choices"]
    return tuple(choices() if callable(choices) else choices or ())


def described(spec: dataclasses.Field) -> str:
    """The meaning of a setting with its choices, for help and TOML comments."""
    choices, text = choices_of(spec), spec.metadata["help"]
    text = text() if callable(text) else text
    return text + (f" ({' | '.join(map(str, choices))})" if choices else "")


_BOUNDS = (("low", operator.lt, "at least"), ("high", operator.gt, "at most"),
           ("below", operator.ge, "less than"))


def checked(spec: dataclasses.Field, value: Any, where: str) -> Any:
    """The value in the field's type and within its bounds; `where` it is from is for messages."""
    kind: Any = type(spec.default)
    given, key = value, key_of(spec)
    if getattr(value, "shape", None) == ():
        value = value.item()             # a number of NumPy, which scripts compute settings with
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = _as_float(value)
    if kind is str and isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)
    if type(value) is not kind:
        raise ConfigError(f"{key} = {_shown(given)} in {where}: expected {_type_name(kind)}")
    choices = choices_of(spec)
    if choices and value not in choices:
        near = difflib.get_close_matches(str(value)[:100], [str(c) for c in choices], n=1)
        hint = f" (did you mean '{near[0]}'?)" if near else ""
        raise ConfigError(f"{key} = {_shown(value)} in {where}: choose one of "
                          f"{', '.join(map(str, choices))}{hint}")
    if kind is float and not math.isfinite(value):
        raise ConfigError(f"{key} = {value!r} in {where}: expected a finite number")
    if kind is str:
        _check_text(key, value, where)
        _check_syntax(spec, value, where)
    for bound, wrong, words in _BOUNDS:
        limit = spec.metadata[bound]
        if limit is not None and wrong(value, limit):
            raise ConfigError(f"{key} = {_shown(value)} in {where}: must be {words} {limit}")
    return value


def _as_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _check_text(key: str, value: str, where: str):
    """Texts become file names, TOML and lines of a table: no line feeds, no escape codes."""
    if not value.isprintable():
        raise ConfigError(f"{key} = {_shown(value)} in {where}: expected printable characters, "
                          f"without line feeds")


def _check_syntax(spec: dataclasses.Field, value: str, where: str):
    if spec.metadata["parse"]:
        try:
            spec.metadata["parse"](value)
        except ValueError as error:
            raise ConfigError(f"{key_of(spec)} = {_shown(value)} in {where}: {error}") from None


def _shown(value) -> str:
    """A value for a message, which must not grow with it."""
    try:
        text = repr(value)
    except ValueError:                   # Python refuses to print integers of thousands of digits
        return "(a number of thousands of digits)"
    return text if len(text) <= 80 else text[:77] + "..."


def _type_name(kind: type) -> str:
    return {bool: "true or false", int: "a whole number", float: "a number",
            str: "a text in quotes"}[kind]
