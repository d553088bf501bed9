"""The report of the day: one HTML page that needs nothing else."""

from __future__ import annotations

import time
from html import escape

from gpu.steps import DONE, FAILED, SKIPPED, Day, Outcome, Table

STYLE = """
:root { color-scheme: light dark; --ink: #1b2330; --paper: #fff; --soft: #5b6675; --faint: #e4e8ee;
  --done: #1d7a46; --failed: #b3261e; --skipped: #8a6100; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --paper: #12161d; --soft: #9aa5b4;
  --faint: #2a313c; --done: #5fd08f; --failed: #ff8a80; --skipped: #f0b93a; } }
body { margin: 0 auto; max-width: 1100px; padding: 32px; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, "Liberation Sans", Arial, sans-serif; }
h1 { font-size: 28px; margin: 0 0 4px; } h2 { font-size: 19px; margin: 36px 0 4px; }
p { margin: 4px 0 10px; color: var(--soft); }
.warning { color: var(--ink); border-left: 4px solid var(--skipped); padding: 8px 14px; }
table { border-collapse: collapse; font-size: 14px; margin: 8px 0 14px; }
th, td { text-align: left; padding: 5px 14px 5px 0; border-bottom: 1px solid var(--faint);
  vertical-align: top; }
th { color: var(--soft); font-weight: 550; }
.done { color: var(--done); } .failed { color: var(--failed); } .skipped { color: var(--skipped); }
.state { font-weight: 650; }
pre { overflow-x: auto; font-size: 12.5px; line-height: 1.35; }
summary { cursor: pointer; color: var(--soft); }
"""


def page(day: Day, outcomes: list[Outcome], machine: dict) -> str:
    """The whole page as text."""
    counts = ", ".join(f"{sum(o.state == state for o in outcomes)} {state}"
                       for state in (DONE, FAILED, SKIPPED))
    devices = "stand-in, no GPU" if day.rehearsal else f"{day.n_devices} GPUs"
    facts = (f"{devices}; {machine['cpu']}, {machine['cores']} cores; "
             f"{time.strftime('%Y-%m-%d %H:%M')}; {len(outcomes)} steps: {counts}")
    warning = ('<p class="warning">A REHEARSAL on the stand-in for CuPy: no GPU was used, sizes '
               "are tiny and times mean nothing. It shows that every step runs.</p>"
               if day.rehearsal else "")
    return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
            'content="width=device-width, initial-scale=1"><title>hpcgcn: the day on a GPU'
            f"</title>\n<style>{STYLE}</style></head>\n<body><h1>hpcgcn: the day on a GPU</h1>"
            f"<p>{escape(facts)}</p>{warning}{_overview(outcomes)}"
            f"{''.join(map(_section, outcomes))}</body></html>\n")


def _state(outcome: Outcome) -> str:
    return f'<span class="state {outcome.state}">{outcome.state}</span>'


def _overview(outcomes: list[Outcome]) -> str:
    rows = "".join(f"<tr><td>{escape(o.title)}</td><td>{_state(o)}</td><td>{o.seconds:.0f} s</td>"
                   f"<td>{escape(o.reason)}</td></tr>" for o in outcomes)
    return f"<table><tr><th>step</th><th></th><th>took</th><th></th></tr>{rows}</table>"


def _section(outcome: Outcome) -> str:
    found = outcome.found
    reason = f"<p>{escape(outcome.reason)}</p>" if outcome.reason else ""
    notes = "".join(f"<p>{escape(note)}</p>" for note in found.notes)
    opened = " open" if outcome.state == FAILED else ""
    printed = (f"<details{opened}><summary>what was printed</summary><pre>"
               f"{escape(found.printed.strip())}</pre></details>" if found.printed.strip() else "")
    return (f"<section><h2>{escape(outcome.title)}: {_state(outcome)}</h2>{reason}"
            f"{''.join(map(_table, found.tables))}{notes}{printed}</section>\n")


def _table(table: Table) -> str:
    def line(cells, kind):
        return "<tr>" + "".join(f"<{kind}>{escape(cell)}</{kind}>" for cell in cells) + "</tr>"
    return (f"<table>{line(table.header, 'th')}"
            f"{''.join(line(row, 'td') for row in table.rows)}</table>")
