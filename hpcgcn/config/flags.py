"""One command-line flag per setting."""

from __future__ import annotations

import argparse
import dataclasses

from hpcgcn.config.config import FIELDS, GROUPS, RENAMED
from hpcgcn.config.old_keys import OLD_FIELDS
from hpcgcn.setting import described, flag_of, key_of
from hpcgcn.trace.window import ALONE

# What a flag without a value means; --resume: continue from the last checkpoint.
_ALONE = {"resume": "must", "trace": ALONE}


def add_flags(parser: argparse.ArgumentParser):
    """Flags named like the keys; absent ones leave no trace, so that presets and TOML can speak."""
    for name, group in GROUPS.items():
        words = (group.__doc__ or "").strip().rstrip(".")
        section = parser.add_argument_group(name, words)
        for spec in dataclasses.fields(group):
            text = described(spec).replace("%", "%%")
            _add(section, key_of(spec), spec, f"{text} [{_default(spec)}]")
    for old, key in RENAMED.items():
        _add(parser, old, FIELDS[key], argparse.SUPPRESS)
    for old, spec in OLD_FIELDS.items():
        _add(parser, old, spec, argparse.SUPPRESS)


def _add(section, key: str, spec: dataclasses.Field, text: str):
    options = {"dest": key, "default": argparse.SUPPRESS, "help": text}
    kind = type(spec.default)
    if kind is bool:
        section.add_argument(flag_of(key), action=argparse.BooleanOptionalAction, **options)
        return
    if key in _ALONE:
        options |= {"nargs": "?", "const": _ALONE[key]}
    section.add_argument(flag_of(key), type=kind, metavar=key.upper(), **options)


def _default(spec: dataclasses.Field) -> str:
    return str(spec.default).lower() if type(spec.default) is bool else str(spec.default)
