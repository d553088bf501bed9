"""Writes the pages of the reference from the code: commands, settings, presets, Python.

docs/build.py calls it for every build, so these pages are never older than the code.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import os
import pathlib

import hpcgcn
from hpcgcn.cli import COMMANDS, command_parser
from hpcgcn.config.config import GROUPS
from hpcgcn.exchange.presets import PRESETS
from hpcgcn.setting import described, flag_of, key_of


def commands() -> str:
    """Every command with its help."""
    os.environ["COLUMNS"] = "100"
    parts = ["# Commands\n\nGenerated from the code: what `hpcgcn COMMAND --help` prints. The "
             "settings of `train` are on [a page of their own](settings.md).\n"]
    for name, text in COMMANDS.items():
        parser = command_parser(name)
        parts.append(f"\n## {name}\n\n{text[0].upper()}{text[1:]}.\n\n```text\n"
                     f"{_help(parser)}```\n")
        for inner, sub in _subcommands(parser).items():
            parts.append(f"\n### {name} {inner}\n\n```text\n{sub.format_help()}```\n")
    return "".join(parts)


def _help(parser: argparse.ArgumentParser) -> str:
    """Its help, without the settings that `train` has a page for."""
    for group in parser._action_groups:
        if group.title in GROUPS:
            parser._action_groups = [g for g in parser._action_groups if g.title not in GROUPS]
            parser.usage = "%(prog)s GRAPH [--config RUN.toml] [settings]"
            break
    return parser.format_help()


def _subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return {name: sub for action in parser._actions
            if isinstance(action, argparse._SubParsersAction)
            for name, sub in action.choices.items()}


def settings() -> str:
    """Every setting: flag, default, meaning."""
    parts = ["# Settings\n\nGenerated from the code. A setting has the same name as a flag "
             "(`--stale-error 0.3`), in TOML (`stale_error = 0.3`) and in Python "
             "(`Config(stale_error=0.3)`). `hpcgcn config` prints them as TOML to start from, "
             "`hpcgcn config --check run.toml` checks a file.\n"]
    for name, group in GROUPS.items():
        parts.append(f"\n## {name}\n\n{inspect.getdoc(group)}\n\n| setting | default | meaning |\n"
                     "|---|---|---|\n")
        for spec in dataclasses.fields(group):
            default = str(spec.default).lower() if type(spec.default) is bool else spec.default
            parts.append(f"| `{flag_of(key_of(spec))}` | `{default}` | "
                         f"{_cell(described(spec))} |\n")
    return "".join(parts)


def presets() -> str:
    """Every method with the settings that it stands for."""
    rows = [f"| `{name}` | {_cell(preset.summary)} | "
            + ", ".join(f"`{key} = {value}`" for key, value in preset.settings.items()) + " |\n"
            for name, preset in PRESETS.items()]
    return ("# Method presets\n\nGenerated from the code. `--method NAME` stands for these "
            "settings; each can be changed on its own.\n\n| method | what it is | settings |\n"
            "|---|---|---|\n" + "".join(rows))


def python() -> str:
    """What `hpcgcn` exports."""
    parts = ["# Python\n\nGenerated from the code: all that `import hpcgcn` offers.\n"]
    for name in hpcgcn.__all__:
        thing = getattr(hpcgcn, name)
        if inspect.isfunction(thing) or inspect.isclass(thing):
            parts.append(f"\n## {name}\n\n{_described(name, thing)}")
            parts += [f"\n### {name}.{inner}\n\n{_described(inner, method)}"
                      for inner, method in _methods(thing)]
    return "".join(parts)


def _described(name: str, thing) -> str:
    try:
        signature = str(inspect.signature(thing)).replace("'", "")
    except (TypeError, ValueError):
        signature = "(...)"
    text = inspect.getdoc(thing) or ""
    return f"```python\n{name}{signature}\n```\n\n```text\n{text}\n```\n"


def _methods(thing) -> list[tuple[str, object]]:
    if not inspect.isclass(thing) or issubclass(thing, Exception):
        return []
    return [(name, getattr(thing, name)) for name, value in vars(thing).items()
            if not name.startswith("_")
            and (inspect.isfunction(value) or isinstance(value, (classmethod, staticmethod)))]


def _cell(text: str) -> str:
    """A text for a cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;").replace("*", "\\*")


PAGES = {"commands.md": commands, "settings.md": settings, "presets.md": presets,
         "python.md": python}


def write(folder: pathlib.Path):
    """All pages into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in PAGES.items():
        (folder / name).write_text(make(), encoding="utf-8")
