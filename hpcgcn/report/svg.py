"""Charts and bars as inline SVG.

Colours come from the page's style, so that light, dark and print all fit.
"""

from __future__ import annotations

from html import escape

from hpcgcn.report import scales
from hpcgcn.report.curves import Chart
from hpcgcn.report.runs import PHASES, Run
from hpcgcn.report.scales import Scale

WIDTH, HEIGHT = 400, 246
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 10, 40
COLOURS = 7  # of the style; further runs repeat them with another dash
DASHES = ("", "6 3", "2 2.5")
PHASE_NAMES = {"compute": "compute", "pack": "pack", "unpack": "unpack", "wait": "wait",
               "allreduce": "all-reduce"}


def line_style(number: int) -> str:
    """Class and dash of a run's lines."""
    dash = DASHES[number // COLOURS % len(DASHES)]
    return f'class="line c{number % COLOURS}"' + (f' stroke-dasharray="{dash}"' if dash else "")


def swatch(number: int) -> str:
    """A short sample of a run's line, for legends and tables."""
    return (f'<svg class="swatch" viewBox="0 0 24 10" width="24" height="10" aria-hidden="true">'
            f'<line x1="1" y1="5" x2="23" y2="5" {line_style(number)}/></svg>')


def write_x(kind: str, value: float) -> str:
    """A value of an x axis, in words short enough for a tick."""
    if value == 0:
        return "0"
    if kind == "bytes":
        return scales.size(value)
    return scales.duration(value) if kind == "seconds" else scales.number(value)


def chart(spec: Chart, ident: str) -> str:
    """One line chart, or a note in its place."""
    if not spec.lines:
        return '<p class="empty">No bytes were sent: one rank has nobody to send to.</p>'
    x = Scale(*spec.x_range, LEFT, WIDTH - RIGHT, spec.log_x)
    y = Scale(*spec.y_range, HEIGHT - BOTTOM, TOP, spec.log_y)
    data = (f'data-kind="{spec.axis.kind}" data-percent="{int(spec.metric.percent)}" '
            f'data-x="{_range(x)}" data-y="{_range(y)}"')
    title = f"{spec.metric.title} against {spec.axis.title.lower()}"
    parts = [f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
             f'aria-label="{escape(title)}" {data}>',
             f'<clipPath id="{ident}"><rect x="{LEFT}" y="{TOP - 4}" '
             f'width="{WIDTH - LEFT - RIGHT + 4}" '
             f'height="{HEIGHT - TOP - BOTTOM + 4}"/></clipPath>',
             *_grid(spec, x, y), f'<g clip-path="url(#{ident})">']
    for line in spec.lines:
        points = " ".join(f"{x(a):.2f},{y(b):.3f}" for a, b in line.points)
        parts.append(f'<g class="run r{line.number}" data-run="{line.number}"><polyline '
                     f'points="{points}" '
                     f'{line_style(line.number)}/>{_single(line, x, y)}{_best(line, x, y)}</g>')
    parts.append('</g>')
    parts.append(f'<line class="cursor" y1="{TOP}" y2="{HEIGHT - BOTTOM}" '
                 'visibility="hidden"/></svg>')
    return "".join(parts)


def _range(scale: Scale) -> str:
    return f"{scale.low!r} {scale.high!r} {scale.first} {scale.last} {int(scale.log)}"


def _single(line, x: Scale, y: Scale) -> str:
    """A line of one point would be invisible."""
    if len(line.points) > 1:
        return ""
    return _circle("dot", line.number, x(line.points[0][0]), y(line.points[0][1]), 3)


def _best(line, x: Scale, y: Scale) -> str:
    if line.best is None:
        return ""
    return _circle("best", line.number, x(line.best[0]), y(line.best[1]), 3.4)


def _circle(kind: str, number: int, x: float, y: float, radius: float) -> str:
    return f'<circle class="{kind} c{number % COLOURS}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>'


def _grid(spec: Chart, x: Scale, y: Scale) -> list[str]:
    parts = []
    for value in y.ticks(6):
        at, text = f"{y(value):.1f}", scales.number(value) + (" %" if spec.metric.percent else "")
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}"/>'
                     f'<text x="{LEFT - 6}" y="{at}" dy=".32em" text-anchor="end">{text}</text>')
    bottom = HEIGHT - BOTTOM
    for value in x.ticks(5):
        at = f"{x(value):.1f}"
        parts.append(f'<line class="tick" x1="{at}" x2="{at}" y1="{bottom}" '
                     f'y2="{bottom + 4}"/><text x="{at}" y="{bottom + 16}" '
                     f'text-anchor="middle">{write_x(spec.axis.kind, value)}</text>')
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" '
                 f'y2="{bottom}"/>')
    log = " (log scale)" if spec.log_x else ""
    parts.append(f'<text class="title" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" '
                 f'text-anchor="middle">{escape(spec.axis.title + log)}</text>')
    return parts


def phase_legend() -> str:
    """The colours of the phases."""
    return "".join(f'<span class="key"><i class="box p-{phase}"></i>{name}</span>'
                   for phase, name in PHASE_NAMES.items())


def phase_bars(runs: list[Run]) -> str:
    """Where a mean epoch's time goes: a stacked bar per rank, all runs on one scale."""
    groups = [(number, run, run.phases_by_rank()) for number, run in enumerate(runs)]
    groups = [group for group in groups if group[2]]
    if not groups:
        return '<p class="empty">No run has timings.</p>'
    longest = max(sum(seconds.values()) for _, _, ranks in groups for _, seconds in ranks)
    most_bars = max(len(ranks) for _, _, ranks in groups)
    thick = 13 if most_bars <= 8 else 8 if most_bars <= 16 else 4
    left, right, width, gap = 296, 78, 1180, 12
    x = Scale(0.0, longest * 1.001 or 1.0, left, width - right)
    parts, top = [], 4.0
    for number, run, ranks in groups:
        height = len(ranks) * (thick + 2)
        parts.append(f'<g class="run r{number}" data-run="{number}">'
                     f'{_sample(number, top + height / 2)}'
                     f'<text class="name" x="32" y="{top + height / 2:.1f}" dy=".32em">'
                     f'{escape(_shortened(run.label))}</text>')
        for name, seconds in ranks:
            parts.append(_bar(name, seconds, x, top, thick, label=thick >= 13))
            top += thick + 2
        parts.append("</g>")
        top += gap
    ticks = "".join(f'<line class="grid" x1="{x(t):.1f}" x2="{x(t):.1f}" y1="0" '
                    f'y2="{top - gap + 6:.1f}"/><text x="{x(t):.1f}" y="{top + 9:.1f}" '
                    f'text-anchor="middle">{write_x("seconds", t)}</text>' for t in x.ticks(8))
    return (f'<svg class="bars" viewBox="0 0 {width} {top + 16:.0f}" role="img" '
            'aria-label="Seconds of a mean epoch by phase, for each rank of each '
            f'run">{ticks}{"".join(parts)}</svg>')


def _sample(number: int, at: float) -> str:
    return f'<line x1="0" x2="24" y1="{at:.1f}" y2="{at:.1f}" {line_style(number)}/>'


def _bar(name: str, seconds: dict[str, float], x: Scale, top: float, thick: int,
         label: bool) -> str:
    total = sum(seconds.values())
    shares = ", ".join(f"{PHASE_NAMES[p]} {scales.duration(seconds[p])}" for p in PHASES)
    parts = [f"<g><title>{escape(name)}: {shares}; together {scales.duration(total)}</title>"]
    if label:
        parts.append(f'<text class="rank" x="{x.first - 8}" y="{top + thick / 2:.1f}" dy=".32em" '
                     f'text-anchor="end">{escape(name)}</text>')
    start = 0.0
    for phase in PHASES:
        at, wide = x(start), x(start + seconds[phase]) - x(start)
        if wide >= 0.05:
            parts.append(f'<rect class="p-{phase}" x="{at:.2f}" y="{top:.1f}" width="{wide:.2f}" '
                         f'height="{thick}"/>')
        start += seconds[phase]
    if label:
        parts.append(f'<text class="total" x="{x(total) + 6:.1f}" y="{top + thick / 2:.1f}" '
                     f'dy=".32em">{scales.duration(total)}</text>')
    parts.append("</g>")
    return "".join(parts)


def _shortened(label: str, most: int = 28) -> str:
    """The end of a long name: names of runs differ there."""
    return label if len(label) <= most else "…" + label[1 - most:]
