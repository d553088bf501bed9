"""Settings from TOML and back. Keys are flat: the groups of a file are comments."""

from __future__ import annotations

import dataclasses
import tomllib
from typing import Any

from hpcgcn.config.config import GROUPS, Config
from hpcgcn.config.setting import described, key_of
from hpcgcn.errors import ConfigError


def read_toml(path: str) -> dict[str, Any]:
    """{key: value} of a TOML file; the keys and values are not checked yet."""
    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except FileNotFoundError:
        raise ConfigError(f"no configuration file {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    for key, value in table.items():
        if isinstance(value, dict):
            raise ConfigError(f"[{key}] in {path}: keys are not grouped in tables; write them at "
                              f"the top level")
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
