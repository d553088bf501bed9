"""Runs of the same settings but for the seed: their results as mean and standard deviation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

from hpcgcn.report import scales, tables
from hpcgcn.report.runs import Run
from hpcgcn.report.svg import swatch

# Where runs of one experiment may differ; split_index: seed k may use split k.
_FREE = ("seed", "split_index", "trace", "tracker", "log_format", "time_limit",
         *tables.BOOKKEEPING)
_COLUMNS = (("val", "Best val", 100.0), ("test", "Test", 100.0), ("best_epoch", "At epoch", 1.0))


@dataclass
class Group:
    """Runs that differ in their seeds."""

    numbers: list[int]               # of the runs, in the order given
    runs: list[Run]
    settings: dict                   # that all of them have


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation (with n - 1) of n numbers."""

    mean: float
    deviation: float
    n: int

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        """Of some numbers, at least one."""
        mean = math.fsum(values) / len(values)
        squares = math.fsum((value - mean) * (value - mean) for value in values)
        return cls(mean, math.sqrt(squares / max(len(values) - 1, 1)), len(values))


def groups(runs: list[Run]) -> list[Group]:
    """Runs by their settings; runs without settings are alone."""
    by_settings: dict[str, Group] = {}
    for number, run in enumerate(runs):
        held = {name: value for name, value in tables.settings_of(run).items()
                if name not in _FREE}
        key = repr(sorted(held.items(), key=str)) if run.config else run.path
        group = by_settings.setdefault(key, Group([], [], held))
        group.numbers.append(number)
        group.runs.append(run)
    return list(by_settings.values())


def seeds_table(runs: list[Run]) -> str:
    """A row per group, if any has several runs; else nothing."""
    made = groups(runs)
    if all(len(group.runs) < 2 for group in made):
        return ""
    rows = tables.result_rows(runs)
    head = "<th>Settings</th><th>Runs</th><th>Seeds</th>" + "".join(
        f"<th>{title}</th>" for _, title, _ in _COLUMNS) + ("<th>Time / epoch</th>"
                                                             "<th>Bytes / epoch</th>")
    body = []
    for group in made:
        results = [rows[number] for number in group.numbers]
        cells = "".join(_cell(results, key, scale) for key, _, scale in _COLUMNS)
        cells += "".join(_mean(results, key, write) for key, write in (
            ("epoch_seconds", scales.duration), ("epoch_sent", scales.size)))
        body.append(f'<tr><th scope="row">{swatch(group.numbers[0])}<span>'
                    f'{escape(_name(group, made))}</span></th><td>{len(group.runs)}</td>'
                    f'<td>{escape(_seeds(group))}</td>{cells}</tr>')
    return tables.table("seeds", head, body)


def _name(group: Group, every: list[Group]) -> str:
    """The method, and what else tells the group from others."""
    differing = [name for name in group.settings
                 if len({repr(other.settings.get(name)) for other in every}) > 1]
    method = str(group.settings.get("method", group.runs[0].label))
    rest = [f"{name} {group.settings[name]}" for name in differing if name != "method"]
    return ", ".join([method, *rest[:4]])


def _seeds(group: Group) -> str:
    return ", ".join(str(run.config.get("seed", "?")) for run in group.runs[:8]) + (
        ", ..." if len(group.runs) > 8 else "")


def _cell(results: list[dict], key: str, scale: float) -> str:
    values = [scale * row[key] for row in results if row[key] is not None]
    if not values:
        return tables.NONE
    spread = Spread.of(values)
    unit = " %" if scale == 100.0 else ""
    digits = 2 if unit else 0
    deviation = f" ± {spread.deviation:.{digits}f}" if spread.n > 1 else ""
    return f"<td>{spread.mean:.{digits}f}{deviation}{unit}</td>"


def _mean(results: list[dict], key: str, write) -> str:
    values = [row[key] for row in results if row[key] is not None]
    return f"<td>{write(Spread.of(values).mean)}</td>" if values else tables.NONE
