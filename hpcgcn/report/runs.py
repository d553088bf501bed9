"""Reading run folders for a report: whatever is usable is used, and what is not becomes a note."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hpcgcn.config.toml import read_toml
from hpcgcn.errors import ConfigError, FileError
from hpcgcn.files.json_text import parse_json
from hpcgcn.files.marker import read_marker

NEEDED = ("epoch", "loss", "seconds")
SCORES = ("train", "val", "test")
_LARGEST = 1e300                         # whose sums and margins are finite, too
PHASES = ("compute", "pack", "unpack", "wait", "allreduce")


@dataclass
class Run:
    """One run, as far as its folder tells.

    Series hold one number per epoch; None where there is none.
    """

    path: str
    label: str
    series: dict[str, list]                  # by column of metrics.csv, all of the same length
    config: dict
    summary: dict | None                     # None: still going, or stopped without a clean end
    notes: list[str] = field(default_factory=list)

    @property
    def identity(self) -> str:
        """Tells this run from others, whatever its folder is called."""
        try:
            return read_marker(self.path)["uuid"]
        except FileError:                    # of an older release, or made by hand
            return hashlib.sha256(os.path.realpath(self.path).encode("utf-8",
                                                                     "replace")).hexdigest()

    @property
    def n_epochs(self) -> int:
        """Number of epochs in metrics.csv."""
        return len(self.series["epoch"])

    def column(self, name: str) -> list:
        """A column of metrics.csv, Nones if it is missing."""
        return self.series.get(name) or [None] * self.n_epochs

    def cumulative(self, name: str) -> list[float]:
        """Running total of a column, gaps counted as zero."""
        total, sums = 0.0, []
        for value in self.column(name):
            total += value or 0.0
            sums.append(total)
        return sums

    def fact(self, *keys: str):
        """A finite number of the summary, such as fact("best", "test"), or None."""
        value = self.summary
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value if is_number(value) else None

    def best(self) -> tuple[int, float | None, float | None] | None:
        """(epoch, val, test) at the highest validation score (without one: at the last evaluation),
        or None."""
        columns = zip(self.column("epoch"), self.column("val"), self.column("test"))
        rows = [row for row in columns if row[1] is not None or row[2] is not None]
        with_val = [row for row in rows if row[1] is not None]
        return max(with_val, key=lambda row: row[1]) if with_val else rows[-1] if rows else None

    def phases_by_rank(self) -> list[tuple[str, dict[str, float]]]:
        """(name, seconds of a mean epoch by phase) for each rank; without a summary one mean
        rank."""
        by_rank: list[tuple[str, dict[str, float]]] = []
        for row in self._ranks():
            seconds: dict[str, Any] = {phase: row.get(f"{phase}_seconds") for phase in PHASES
                                       } if isinstance(row, dict) else {}
            if seconds and all(map(is_number, seconds.values())):
                by_rank.append((f"rank {row.get('rank', len(by_rank))}",
                                {k: max(v, 0.0) for k, v in seconds.items()}))
        return by_rank or self._mean_rank()

    def _ranks(self) -> list:
        rows = (self.summary or {}).get("by_rank")
        return rows if isinstance(rows, list) else []

    def _mean_rank(self) -> list[tuple[str, dict[str, float]]]:
        # metrics.csv adds the phases up over ranks, and has the slowest rank's seconds: their
        # quotient is a mean rank.
        sums = {phase: sum(v or 0.0 for v in self.column(f"{phase}_seconds")) for phase in PHASES}
        total, seconds = sum(sums.values()), sum(v or 0.0 for v in self.column("seconds"))
        if total <= 0 or not self.n_epochs:
            return []
        scale = seconds / total / self.n_epochs
        return [("mean rank", {phase: max(value, 0.0) * scale for phase, value in sums.items()})]


def is_number(value) -> bool:
    """A finite int or float, not a truth value.

    Damaged files hold integers beyond every float, which `math.isfinite` cannot take.
    """
    return (isinstance(value, (int, float)) and not isinstance(value, bool)
            and abs(value) <= _LARGEST)


def read_runs(paths: list[str], skipped: list[str] | None = None) -> list[Run]:
    """The runs of these folders, in order, each once, with labels that differ.

    What is no run is left out, with a note in `skipped`; at least one has epochs to show.
    """
    unique = list({os.path.realpath(path): path for path in reversed(paths)}.values())[::-1]
    runs, reasons = [], []
    for path in unique:
        try:
            runs.append(read_run(path))
        except FileError as error:
            reasons.append(error)
    if not runs:
        raise reasons[0]
    if skipped is not None:
        skipped += [f"left out: {reason}" for reason in reasons]
    if not any(run.n_epochs for run in runs):
        raise FileError(f"{', '.join(unique)}: no epoch is complete yet, so there is nothing to "
                        "show; try again when metrics.csv has rows")
    for run, label in zip(runs, _labels([os.path.realpath(run.path) for run in runs])):
        run.label = label
    return runs


def read_run(path: str) -> Run:
    """One run folder; FileError if it is none."""
    metrics = os.path.join(path, "metrics.csv")
    if not os.path.isfile(metrics):
        raise FileError(f"{path} is not the folder of a run: it has no metrics.csv; {_hint(path)}")
    notes: list[str] = []
    series = _read_metrics(metrics, notes)
    config, summary = _read_config(path, notes), _read_summary(path, notes)
    return Run(path, os.path.basename(os.path.normpath(path)), series, config, summary, notes)


def _hint(path: str) -> str:
    if not os.path.isdir(path):
        return ("there is no such folder" if not os.path.exists(path)
                else "give the folder, not a file in it")
    inside = sorted(name for name in os.listdir(path)
                    if os.path.isfile(os.path.join(path, name, "metrics.csv")))
    if inside:
        others = " and others" if len(inside) > 1 else ""
        return f"it holds runs, though: give {os.path.join(path, inside[0])}{others}"
    return "give the folder that `hpcgcn train` names when it ends"


def _labels(paths: list[str]) -> list[str]:
    """The shortest endings of the paths that tell all of them apart."""
    for depth in range(1, max(path.count(os.sep) for path in paths) + 1):
        labels = [os.sep.join(path.split(os.sep)[-depth:]) for path in paths]
        if len(set(labels)) == len(labels):
            return labels
    return paths


def _read_metrics(path: str, notes: list[str]) -> dict[str, list]:
    try:
        with open(path, newline="", encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}") from None
    complete, newline, rest = text.rpartition("\n")
    reader = csv.DictReader(io.StringIO(complete + newline))
    names = _names(reader)
    missing = [name for name in NEEDED if name not in names]
    if missing:
        raise FileError(f"{path} is not the metrics of a run: its first line does not name "
                        f"{', '.join(missing)}")
    usable, unusable = [], int(bool(rest))
    for row in _rows(reader):
        if row is None:
            unusable += 1
            continue
        numbers = {name: _number(value) for name, value in row.items() if name is not None}
        cut = None in row or any(value is None for value in row.values())
        if cut or any(numbers[name] is None for name in NEEDED):
            unusable += 1
        else:
            usable.append(numbers)
    if unusable:
        notes.append(f"metrics.csv: {unusable} incomplete row{'s' * (unusable > 1)} left out, "
                     f"{len(usable)} used")
    if usable and not any(row.get(name) is not None for row in usable for name in ("val", "test")):
        notes.append("no evaluation yet: only the loss can be shown")
    if not usable:
        notes.append("no epoch is complete yet")
    return {name: [row.get(name) for row in usable] for name in names}


def _names(reader: csv.DictReader) -> list[str]:
    """The columns of a table; none if its first line is no line of a table."""
    try:
        return list(reader.fieldnames or [])
    except csv.Error:
        return []


def _rows(reader: csv.DictReader) -> Iterator[dict | None]:
    """The rows of a table; None for one that is no row of a table."""
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield None


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if abs(value) <= _LARGEST else None


def _read_config(path: str, notes: list[str]) -> dict:
    try:
        return read_toml(os.path.join(path, "config.toml"))
    except ConfigError:
        notes.append("config.toml is missing or damaged: its settings are not shown")
        return {}


def _read_summary(path: str, notes: list[str]) -> dict | None:
    name, summary = os.path.join(path, "summary.json"), None
    if not os.path.exists(name):
        notes.append("no summary.json: the run is still going, or did not end cleanly; what "
                     "metrics.csv holds is shown")
        return None
    with contextlib.suppress(OSError, ValueError):
        if os.path.isfile(name):             # a pipe would be waited for
            with open(name, encoding="utf-8") as file:
                summary = parse_json(file.read())
    if not isinstance(summary, dict):
        notes.append("summary.json is damaged: what metrics.csv holds is shown")
        return None
    if summary.get("stopped_early") is True:
        notes.append("stopped early; it can be continued with --resume")
    return summary
