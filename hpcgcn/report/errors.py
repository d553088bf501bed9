"""The errors of stale and compressed rows, one chart per hop and direction."""

from __future__ import annotations

import re

from hpcgcn.report.curves import AXES, Chart, Metric, make_chart
from hpcgcn.report.runs import Run

KINDS = {"drift": "Drift of stale rows between epochs, relative",
         "change": "Change of rows between epochs, relative",
         "coding_error": "Error of coding, relative"}
_COLUMN = re.compile(r"(drift|change|coding_error)_(forward|backward)_([0-9]{1,4})")
_DIRECTIONS = {"forward": "features", "backward": "gradients"}


def error_charts(runs: list[Run]) -> list[tuple[str, list[Chart]]]:
    """[(what is shown, its charts)]: epochs to the right, one line per run that measured it."""
    names = dict.fromkeys(name for run in runs for name in run.series)
    columns = sorted((list(KINDS).index(match[1]), int(match[3]), match[2] == "backward", name)
                   for name in names if (match := _COLUMN.fullmatch(name)))
    sections: dict[str, list[Chart]] = {}
    for kind, hop, backward, name in columns:
        title = f"Hop {hop}, {_DIRECTIONS['backward' if backward else 'forward']}"
        chart = make_chart(runs, Metric(name, title, False), AXES[0])
        if chart.lines:
            sections.setdefault(list(KINDS.values())[kind], []).append(chart)
    return list(sections.items())
