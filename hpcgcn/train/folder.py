"""The folder of a run: effective configuration, metrics, checkpoints, summary. Only rank 0 writes here, except checkpoints."""

from __future__ import annotations

import csv
import json
import os
import shutil

from hpcgcn.config import Config, to_toml
from hpcgcn.errors import CheckpointError, ConfigError, FileError
from hpcgcn.files.atomic import explained

COLUMNS = ("epoch", "loss", "train", "val", "test", "seconds", "wait_seconds", "bytes_sent", "bytes_received",
           "pack_seconds", "unpack_seconds", "allreduce_seconds", "compute_seconds", "bytes_parameters", "bytes_uncompressed",
           "stale_share", "hidden_share", "rate")


def run_name(config: Config, source) -> str:
    """The run's name: the user's, or one made from graph, model and method."""
    if config.name != "auto":
        if os.path.basename(config.name) != config.name or config.name in ("", ".", ".."):
            raise ConfigError(f"name = '{config.name}': a plain folder name, without slashes (output says where it goes)")
        return config.name
    stem = os.path.splitext(os.path.basename(os.fspath(source)))[0] if isinstance(source, (str, os.PathLike)) else "graph"
    return f"{stem}-{config.model}-{config.method}"


class RunFolder:
    """Paths and small files of one run."""

    def __init__(self, path: str):
        self.path = path
        self.metrics_path = os.path.join(path, "metrics.csv")
        self.checkpoints = os.path.join(path, "checkpoints")

    @classmethod
    def prepare(cls, config: Config, source) -> "RunFolder":
        """The folder to use, created; results of an earlier run are never overwritten unasked."""
        name = run_name(config, source)
        path = os.path.join(config.output, name)
        taken = os.path.exists(os.path.join(path, "config.toml"))
        if taken and config.resume == "never" and config.overwrite:
            shutil.rmtree(path)
        elif taken and config.resume == "never" and config.name == "auto":
            number = 2
            while os.path.exists(f"{path}-{number}"):
                number += 1
            path = f"{path}-{number}"
        elif taken and config.resume == "never":
            raise ConfigError(f"{path} holds a run already: continue it with --resume, choose another --name, or give "
                              f"--overwrite")
        if config.resume == "must" and not taken:
            raise CheckpointError(f"--resume: there is no run in {path}; check --name and --output, or leave --resume out")
        folder = cls(path)
        try:
            os.makedirs(folder.checkpoints, exist_ok=True)
            folder._write("config.toml", to_toml(config))
        except OSError as error:
            raise FileError(f"cannot write in {path}: {error.strerror}; choose another --output") from None
        return folder

    def _write(self, name: str, text: str):
        temporary = os.path.join(self.path, f".{name}.tmp")
        with explained(os.path.join(self.path, name)):
            with open(temporary, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, os.path.join(self.path, name))

    def write_choices(self, choices: dict):
        """What was chosen by measuring at start: a resumed run must not choose otherwise."""
        self._write("choices.json", json.dumps(choices) + "\n")

    def read_choices(self) -> dict:
        """What an earlier start chose; empty if there was none."""
        path = os.path.join(self.path, "choices.json")
        if not os.path.exists(path):
            return {}
        with open(path) as file:
            return json.load(file)

    def write_summary(self, summary: dict):
        """summary.json, whole or not at all."""
        self._write("summary.json", json.dumps(summary, indent=2) + "\n")

    def read_summary(self) -> dict | None:
        """The summary of a run that ended, or None."""
        path = os.path.join(self.path, "summary.json")
        if not os.path.exists(path):
            return None
        with open(path) as file:
            return json.load(file)


class MetricsFile:
    """metrics.csv: one row an epoch; a resumed run drops the rows after its checkpoint and goes on."""

    def __init__(self, path: str, extra_columns: list[str], first_epoch: int):
        kept = self._rows_before(path, first_epoch)
        self.path, self.columns = path, [*COLUMNS, *extra_columns]
        with explained(path):
            self.file = open(path, "w", newline="")
            self.writer = csv.DictWriter(self.file, self.columns, restval="", extrasaction="ignore")
            self.writer.writeheader()
            for row in kept:
                self.writer.writerow(row)
            self.file.flush()

    @staticmethod
    def _rows_before(path: str, first_epoch: int) -> list[dict]:
        if first_epoch == 0 or not os.path.exists(path):
            return []
        with open(path, newline="") as file:
            # A row that a crash cut short has no value in its last columns; its epoch is repeated anyway.
            return [row for row in csv.DictReader(file) if row["epoch"].isdigit() and int(row["epoch"]) < first_epoch]

    def write(self, row: dict):
        """One epoch; floats with as many digits as they have."""
        with explained(self.path):
            self.writer.writerow({k: repr(v) if isinstance(v, float) else v for k, v in row.items()})
            self.file.flush()

    def close(self):
        self.file.close()
