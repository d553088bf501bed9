"""The folder of a run: settings, metrics, checkpoints, summary, and a marker that lists them.

Only rank 0 writes here, except checkpoints.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid

from hpcgcn.config import Config, to_toml
from hpcgcn.errors import ConfigError
from hpcgcn.files.atomic import atomic_folder, atomic_text, explained
from hpcgcn.files.marker import FORMAT, MARKER, VERSION, read_marker, remove_listed
from hpcgcn.files.replace import ANY_OF_THE_RUN
from hpcgcn.files.tidy import remove_temporaries
from hpcgcn.timeline.file import NAME as TRACE
from hpcgcn.train import lock
from hpcgcn.train.checkpoint import files_of_checkpoint

LIVE = "live.json"
FILES = ("config.toml", "metrics.csv", "choices.json", "summary.json", TRACE, LIVE,
         LIVE + ".part", lock.NAME)
_MOST_BYTES = 64 << 20               # of a small file that is read back


def run_name(config: Config, source) -> str:
    """The run's name: the user's, or one made from graph, model and method."""
    if config.name != "auto":
        if os.path.basename(config.name) != config.name or config.name in ("", ".", ".."):
            raise ConfigError(f"name = {config.name!r}: expected a plain folder name, without "
                              "slashes (output says where it goes)")
        return config.name
    is_file = isinstance(source, (str, os.PathLike))
    stem = os.path.splitext(os.path.basename(os.fspath(source)))[0] if is_file else "graph"
    # A file may have any name; that of a run is shown, and typed: no line feeds, no escape codes.
    stem = "".join(c if c.isprintable() else "_" for c in stem)
    return f"{stem}-{config.model}-{config.method}"


class RunFolder:
    """Paths and small files of one run."""

    def __init__(self, path: str):
        self.path = path
        self.metrics_path = os.path.join(path, "metrics.csv")
        self.checkpoints = os.path.join(path, "checkpoints")

    @classmethod
    def create(cls, path: str, config: Config, graph: str, shape: dict) -> RunFolder:
        """A new folder with its marker and settings, whole or not at all."""
        with explained(path):
            os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        # A folder that is a link to an empty one, on another disk perhaps, is filled.
        with atomic_folder(os.path.realpath(path)) as made:
            cls(made).set_up(config, graph, shape)
        return cls(path)

    def set_up(self, config: Config, graph: str, shape: dict):
        """The marker and what a run begins with; graph: its uuid, "" if it may be any."""
        self._write_marker({"format": FORMAT, "version": VERSION, "uuid": str(uuid.uuid4()),
                            "graph": graph, "shape": shape, "files": list(FILES)})
        os.makedirs(self.checkpoints, exist_ok=True)
        self.write_config(config)

    def clear(self) -> list[str]:
        """Remove all that the marker lists; returns what else is there, which stays."""
        with explained(self.path):
            return remove_listed(self.path, keep=(lock.NAME,))

    def go_on(self, config: Config, graph: str):
        """Before more epochs: these settings from now on, and no summary of an earlier end."""
        marker = read_marker(self.path)
        if marker["graph"] != graph:
            self._write_marker(marker | {"graph": graph})
        self.write_config(config)
        with explained(self.path):
            os.makedirs(self.checkpoints, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.path, "summary.json"))
            remove_temporaries(self.path)        # of a start that was killed

    def list_checkpoint(self, epoch: int, n_ranks: int):
        """Enter the files of a checkpoint into the marker, before they are written."""
        marker = read_marker(self.path)
        there = [name for name in marker["files"]
                 if name in FILES or os.path.lexists(os.path.join(self.path, name))]
        new = [os.path.join("checkpoints", name) for name in files_of_checkpoint(epoch, n_ranks)]
        self._write_marker(marker | {"files": [*there, *(n for n in new if n not in there)]})

    def _write(self, name: str, text: str):
        atomic_text(os.path.join(self.path, name), text, ANY_OF_THE_RUN)

    def _write_marker(self, marker: dict):
        self._write(MARKER, json.dumps(marker, indent=1) + "\n")

    def write_config(self, config: Config):
        """config.toml: the effective settings."""
        self._write("config.toml", to_toml(config))

    def write_choices(self, choices: dict):
        """What was chosen by measuring at start: a resumed run must not choose otherwise."""
        self._write("choices.json", json.dumps(choices) + "\n")

    def write_trace(self, text: str | None):
        """trace.json: what all ranks recorded."""
        marker = read_marker(self.path)
        if TRACE not in marker["files"]:         # a run that an older release began
            self._write_marker(marker | {"files": [*marker["files"], TRACE]})
        self._write(TRACE, text or "")

    def write_summary(self, summary: dict):
        """summary.json, whole or not at all."""
        self._write("summary.json", json.dumps(summary, indent=2) + "\n")

    def read_choices(self, notes: list[str]) -> dict:
        """What an earlier start chose; empty if there was none, or it cannot be read."""
        choices = self._read_json("choices.json", notes)
        if all(map(_is_choice, (choices or {}).values())):
            return choices or {}
        notes.append(f"{os.path.join(self.path, 'choices.json')} is damaged: what it held is "
                     "chosen anew")
        return {}

    def read_summary(self, notes: list[str] | None = None) -> dict | None:
        """The summary of a run that ended; None if there is none, or it cannot be read."""
        return self._read_json("summary.json", [] if notes is None else notes)

    def _read_json(self, name: str, notes: list[str]) -> dict | None:
        path = os.path.join(self.path, name)
        if not os.path.lexists(path):
            return None
        try:
            if not os.path.isfile(path) or os.path.getsize(path) > _MOST_BYTES:
                raise ValueError
            with open(path, encoding="utf-8") as file:
                content = json.load(file)
            if isinstance(content, dict):
                return content
        except (OSError, ValueError, RecursionError):
            pass
        notes.append(f"{path} is damaged: it is not used")
        return None


def _is_choice(value) -> bool:
    """A count, or a list of them."""
    return all(type(n) is int and 0 < n < 1 << 31
               for n in (value if isinstance(value, list) else [value]))
