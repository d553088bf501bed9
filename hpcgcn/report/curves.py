"""Which curves a report shows: every score and the loss, each against epochs, seconds and bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hpcgcn.report import scales
from hpcgcn.report.runs import Run

MOST_POINTS = 400          # a line in a chart of 300 pixels gains nothing from more


@dataclass(frozen=True)
class Metric:
    """What goes up in a chart."""

    column: str
    title: str
    percent: bool


@dataclass(frozen=True)
class Axis:
    """What goes to the right in a chart; `kind` names how its numbers are written."""

    kind: str
    title: str


METRICS = (Metric("val", "Validation accuracy", True), Metric("test", "Test accuracy", True),
           Metric("loss", "Training loss", False))
AXES = (Axis("epochs", "Epochs"), Axis("seconds", "Training time"),
        Axis("bytes", "Bytes sent, all ranks"))


@dataclass
class Line:
    """The curve of one run: points (x, y), and the one at the best validation score if it is
    marked."""

    number: int                              # of the run, in the order given
    points: list[tuple[float, float]]
    best: tuple[float, float] | None


@dataclass
class Chart:
    """Lines of all runs that have any, and the ranges that show them well."""

    metric: Metric
    axis: Axis
    lines: list[Line]
    x_range: tuple[float, float] = (0.0, 1.0)
    y_range: tuple[float, float] = (0.0, 1.0)
    log_x: bool = False
    log_y: bool = False


def make_charts(runs: list[Run]) -> list[list[Chart]]:
    """One row of charts a metric (one chart an axis); a row has the same y range throughout."""
    rows = []
    for metric in METRICS:
        row = [Chart(metric, axis, _lines(runs, metric, axis)) for axis in AXES]
        if not any(chart.lines for chart in row):
            continue
        _choose_y(row)
        for chart in row:
            if chart.lines:
                _choose_x(chart)
        rows.append(row)
    return rows


def make_chart(runs: list[Run], metric: Metric, axis: Axis) -> Chart:
    """A chart with ranges of its own."""
    chart = Chart(metric, axis, _lines(runs, metric, axis))
    if chart.lines:
        _choose_y([chart])
        _choose_x(chart)
    return chart


def _lines(runs: list[Run], metric: Metric, axis: Axis) -> list[Line]:
    lines = []
    for number, run in enumerate(runs):
        xs, best = _positions(run, axis), run.best()
        points, mark = [], None
        for epoch, x, y in zip(run.column("epoch"), xs, run.column(metric.column)):
            if y is None or (axis.kind == "bytes" and x <= 0):
                continue
            y = 100 * y if metric.percent else y
            points.append((x, y))
            if metric.percent and best and epoch == best[0]:
                mark = (x, y)
        if points:
            lines.append(Line(number, thinned(points), mark))
    return lines


def _positions(run: Run, axis: Axis) -> list[float]:
    if axis.kind == "epochs":
        return run.column("epoch")
    return run.cumulative("seconds" if axis.kind == "seconds" else "bytes_sent")


def thinned(points: list[tuple[float, float]],
            most: int = MOST_POINTS) -> list[tuple[float, float]]:
    """At most so many points, which keep every peak and dip: the extremes of each stretch, and both
    ends."""
    if len(points) <= most:
        return points
    stretch = 2 * len(points) / (most - 2)
    kept = {0, len(points) - 1}
    for k in range((most - 2) // 2):
        indices = range(int(k * stretch), min(int((k + 1) * stretch), len(points)))
        kept |= {min(indices, key=lambda i: points[i][1]), max(indices, key=lambda i: points[i][1])}
    return [points[i] for i in sorted(kept)]


def _choose_y(row: list[Chart]):
    values = [y for line in row[0].lines for _, y in line.points]
    if row[0].metric.percent:
        y_range, log = _score_range(row[0].lines), False
    else:
        # a range that floats can hold: the margins must not end at 0 or at infinity
        log = min(values) > 1e-300 and 20 < max(values) / min(values) < math.inf
        y_range = _log_range(values) if log else scales.padded(values)
    for chart in row:
        chart.y_range, chart.log_y = y_range, log


def _score_range(lines: list[Line]) -> tuple[float, float]:
    """Room for what comes after the first, steep epochs, which would press all that is worth
    comparing into the top."""
    later = [y for line in lines for _, y in line.points[len(line.points) // 2:]]
    everything = [y for line in lines for _, y in line.points]
    low, high = min(later), max(everything)
    low = max(low - 0.8 * (high - low), min(everything))
    return scales.padded([low, high], 0.05)


def _choose_x(chart: Chart):
    last_x = [line.points[-1][0] for line in chart.lines]
    first = min(line.points[0][0] for line in chart.lines)
    # Methods differ in bytes by orders of magnitude: on a linear axis the thrifty ones would be a
    # vertical line.
    chart.log_x = chart.axis.kind == "bytes" and max(last_x) > 4 * min(last_x) and first > 0
    if chart.log_x:
        chart.x_range = _log_range([first, max(last_x)])
    elif max(last_x) > 0:
        chart.x_range = (0.0, max(last_x) * 1.02)
    else:                                # one point at 0, or the numbers of a damaged table
        chart.x_range = scales.padded([first, *last_x])


def _log_range(values: list[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = (high / low) ** 0.03 if high > low else 2.0
    return low / margin, high * margin
