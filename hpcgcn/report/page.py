"""The report as one HTML page that needs nothing else: no network, no files, no fonts."""

from __future__ import annotations

import datetime
import re
from html import escape
from importlib.resources import files

from hpcgcn import __version__
from hpcgcn.files.atomic import atomic_text
from hpcgcn.files.replace import REMEDY, Replaces
from hpcgcn.report import pipelines, scales, seeds, svg, tables, timeline
from hpcgcn.report.curves import make_charts
from hpcgcn.report.errors import error_charts
from hpcgcn.report.runs import Run

_RUNS = re.compile(r'<meta name="hpcgcn-runs" content="([0-9a-f -]*)">')
_HEAD_BYTES = 100_000


def write_page(path: str, runs: list[Run], title: str = "", overwrite: bool = False):
    """Write the report of these runs, whole or not at all."""
    atomic_text(path, _as_utf8(page(runs, title)), page_replaces(runs, overwrite),
                [run.path for run in runs])


def _as_utf8(text: str) -> str:
    """Names of files that are no text in this locale are read as UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def page_replaces(runs: list[Run], overwrite: bool = False) -> Replaces:
    """What a report may replace: one of the same runs, or of some of them."""
    shown = {run.identity for run in runs}
    if overwrite:
        return Replaces("a report of hpcgcn", lambda path: _runs_of(path) is not None)
    return Replaces("a report of these runs", lambda path: (_runs_of(path) or {""}) <= shown,
                    REMEDY)


def _runs_of(path: str) -> set[str] | None:
    """The runs that a page of ours shows; None if it is another file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            match = _RUNS.search(file.read(_HEAD_BYTES))
    except OSError:
        return None
    return set(match.group(1).split()) if match else None


def page(runs: list[Run], title: str = "") -> str:
    """The whole page as text."""
    title = title or _title(runs)
    folder = files("hpcgcn.report")
    style, script = ("".join(folder.joinpath(f"{name}.{kind}").read_text(encoding="utf-8")
                             for name in ("page", "timeline")) for kind in ("css", "js"))
    timelines = _timelines(runs)             # first: what is damaged becomes a note
    body = "".join((_header(runs, title), _notes(runs), _highlights(runs), _results(runs),
                    _seeds(runs), _legend(runs), _curves(runs), _times(runs), timelines,
                    _errors(runs), _pipelines(runs), _settings(runs)))
    return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
            'content="width=device-width, initial-scale=1"><meta '
            'http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src '
            '\'unsafe-inline\'; script-src \'unsafe-inline\'"><meta name="generator" '
            f'content="hpcgcn {__version__}"><meta name="hpcgcn-runs" '
            f'content="{" ".join(run.identity for run in runs)}"><title>{escape(title)}</title>\n'
            f'<style>\n{style}</style></head>\n<body><main>{body}</main><div id="tip" '
            f'role="status" hidden></div>\n<script>\n{script}</script></body></html>\n')


def _title(runs: list[Run]) -> str:
    return runs[0].label if len(runs) == 1 else f"{len(runs)} runs compared"


def _section(title: str, content: str, text: str = "") -> str:
    note = f'<p class="about">{text}</p>' if text else ""
    return f"<section><h2>{title}</h2>{note}{content}</section>"


def _header(runs: list[Run], title: str) -> str:
    facts = []
    for name, write in (("nodes", lambda n: f"{n:,} nodes"),
                        ("ranks", lambda n: f"{n} rank{'s' * (n != 1)}")):
        values = {run.fact(name) for run in runs} - {None}
        if len(values) == 1:
            facts.append(write(int(values.pop())))
    models = {str(run.config.get("model")) for run in runs if "model" in run.config}
    if len(models) == 1:
        facts.append(escape(models.pop()))
    facts.append(datetime.datetime.now().strftime("%-d %B %Y, %H:%M"))
    return (f'<header><p class="brand">hpcgcn <span>report</span></p><h1>{escape(title)}</h1>'
            f'<p class="facts">{" · ".join(facts)}</p></header>')


def _notes(runs: list[Run]) -> str:
    items = [f"<li><b>{escape(run.label)}</b>: {escape(note)}</li>" for run in runs
             for note in run.notes]
    return f'<ul class="notes">{"".join(items)}</ul>' if items else ""


def _highlights(runs: list[Run]) -> str:
    """The three numbers that most people look for first."""
    rows = tables.result_rows(runs)
    cards = []
    for key, title, write, better in (("test", "Highest test accuracy",
                                       lambda v: tables.percent(v, 2), max),
                                      ("epoch_seconds", "Shortest epoch", scales.duration, min),
                                      ("epoch_sent", "Fewest bytes per epoch", scales.size, min)):
        known = [(row[key], number) for number, row in enumerate(rows) if row[key] is not None]
        if not known or (key == "epoch_sent" and not any(value for value, _ in known)):
            continue
        value, number = better(known, key=lambda pair: pair[0])
        who = (f'<span class="who">{svg.swatch(number)}{escape(runs[number].label)}</span>'
               if len(runs) > 1 else "")
        name = title if len(runs) > 1 else {"test": "Test accuracy",
                                            "epoch_seconds": "Time per epoch",
                                            "epoch_sent": "Bytes per epoch"}[key]
        cards.append(f'<div class="card"><span class="what">{name}</span>'
                     f'<span class="value">{write(value)}</span>{who}</div>')
    return f'<div class="cards">{"".join(cards)}</div>'


def _results(runs: list[Run]) -> str:
    bold = "The best value of a column is set in bold. " if len(runs) > 1 else ""
    return _section("Results", tables.results_table(runs),
                    bold + "Rest the pointer on a heading for its meaning.")


def _seeds(runs: list[Run]) -> str:
    table = seeds.seeds_table(runs)
    return _section("Means over seeds", table,
                    "Runs of the same settings but for the seed: mean and standard deviation. Each "
                    "run counts with the test score at its own best validation score."
                    ) if table else ""


def _times(runs: list[Run]) -> str:
    return _section("Where an epoch's time goes",
                    f'<p class="keys">{svg.phase_legend()}</p>{svg.phase_bars(runs)}',
                    "Mean over all epochs, one bar per rank, evaluation excluded.")


def _timelines(runs: list[Run]) -> str:
    drawn = timeline.timelines(runs)
    if not drawn:
        return ""
    return _section("What every rank does, and when", timeline.section(drawn),
                    "The last epochs that were traced, all runs on one scale. Below each rank are "
                    "its messages in flight: green while it does something else, orange while it "
                    "waits for them. Drag to move; the buttons, a double click, or the wheel after "
                    "a click zoom; rest the pointer on a piece for what it is.")


def _pipelines(runs: list[Run]) -> str:
    if not pipelines.pipelines(runs):
        return ""
    return _section("Pipelines of layers", pipelines.pipelines_table(runs),
                    "How long stages waited, and how old the rows of neighbours were that chunks "
                    "read.")


def _errors(runs: list[Run]) -> str:
    sections = []
    for k, (title, charts) in enumerate(error_charts(runs)):
        panels = "".join(f"<figure><figcaption>{chart.metric.title}</figcaption>"
                         f"{svg.chart(chart, f'clip-error-{k}-{j}')}</figure>"
                         for j, chart in enumerate(charts))
        sections.append(f'<h3>{title}</h3><div class="panels">{panels}</div>')
    if not sections:
        return ""
    return _section("Errors of stale and compressed rows", "".join(sections),
                    "Measured by the senders on a sample of rows. Dropout alone makes rows change "
                    "by about their own size, which averages out; drift is what does not.")


def _settings(runs: list[Run]) -> str:
    title = "Settings that differ" if len(runs) > 1 else "Settings that are not the defaults"
    return _section(title, tables.settings_table(runs))


def _legend(runs: list[Run]) -> str:
    if len(runs) == 1:
        return ""
    items = "".join(f'<button type="button" data-run="{number}" aria-pressed="true" title="show '
                    'or hide">'
                    f"{svg.swatch(number)}<span>{escape(run.label)}</span></button>"
                    for number, run in enumerate(runs))
    return f'<nav class="legend" aria-label="Runs">{items}</nav>'


def _curves(runs: list[Run]) -> str:
    rows = []
    for k, row in enumerate(make_charts(runs)):
        panels = "".join(f"<figure>{svg.chart(chart, f'clip-{k}-{chart.axis.kind}')}</figure>"
                         for chart in row)
        title = row[0].metric.title + (" (log scale)" if row[0].log_y else "")
        rows.append(f'<h3>{title}</h3><div class="panels">{panels}</div>')
    return _section("Curves", "".join(rows), "A ring marks the best validation accuracy. The "
                                             "accuracy axes leave the first, steep epochs out. "
                                             "For multi-label graphs accuracy is micro-F1.")
