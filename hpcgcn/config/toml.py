"""Settings from TOML and back. Keys are flat: the groups of a file are comments."""

from __future__ import annotations

import dataclasses
import os
import tomllib
from typing import Any

from hpcgcn.config.config import GROUPS, Config
from hpcgcn.errors import ConfigError, printable
from hpcgcn.setting import described, key_of

MOST_BYTES = 1 << 20       # of a file of settings

def read_toml(path: str) -> dict[str, Any]:
    """{key: value} of a TOML file; the keys and values are not checked yet."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise ConfigError(f"cannot read {path}: it is no file; expected a TOML file of settings")
    try:
        with open(path, "rb") as file:
            text = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"no configuration file {path}") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    return parse_toml(text, path)


def parse_toml(text: bytes | str, where: str) -> dict[str, Any]:
    """{key: value} of the text of a TOML file; `where` it is from is for messages."""
    if len(text) > MOST_BYTES:
        raise ConfigError(f"{where} has more than {MOST_BYTES:,} bytes; expected a TOML file of "
                          f"settings, one for each line")
    try:
        table = tomllib.loads(text.decode() if isinstance(text, bytes) else text)
    except ValueError as error:          # not TOML, not UTF-8, or an integer of thousands of digits
        words = printable(error, 200).partition("; use sys.")[0]
        raise ConfigError(f"{where} is not valid TOML: {words}") from None
    except RecursionError:
        raise ConfigError(f"{where} is not valid TOML here: brackets within brackets, too deep; "
                          f"expected key = value in each line") from None
    for key, value in table.items():
        if isinstance(value, dict):
            raise ConfigError(f"[{printable(key, 80)}] in {where}: keys are not grouped in tables; "
                              f"write them at the top level")
        if isinstance(value, int) and not -2 ** 63 <= value < 2 ** 63:
            raise ConfigError(f"{printable(key, 80)} in {where}: an integer of more than 64 bits; "
                              f"expected a smaller one")
    return table


def to_toml(config: Config, comments: bool = False) -> str:
    """All settings as TOML, grouped; with `comments` each with its meaning."""
    blocks = []
    for name, group in GROUPS.items():
        lines = [f"# {name}"]
        for spec in dataclasses.fields(group):
            line = f"{key_of(spec)} = {_toml_value(getattr(getattr(config, name), spec.name))}"
            lines.append(f"{line:<32} # {described(spec)}" if comments else line)
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


def _toml_value(value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(value)
