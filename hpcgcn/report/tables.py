"""The report's tables: results, and the settings in which runs differ."""

from __future__ import annotations

from collections import Counter
from html import escape

from hpcgcn.report import scales
from hpcgcn.report.runs import Run
from hpcgcn.report.svg import swatch

# differ by nature and change no result
BOOKKEEPING = ("name", "output", "resume", "overwrite", "quiet")
# of the summary; results may depend on them
FACTS = ("nodes", "ranks", "backend", "threads", "parameters")
NONE = '<td class="none">–</td>'


def percent(share: float | None, digits: int = 1) -> str | None:
    """A share as per cent."""
    return None if share is None else f"{100 * share:.{digits}f} %"


def result_rows(runs: list[Run]) -> list[dict]:
    """For each run its results as numbers: {column: value or None}."""
    return [_result(run) for run in runs]


def _result(run: Run) -> dict:
    best = run.best()
    sent, plain = (sum(v or 0.0 for v in run.column(name))
                   for name in ("bytes_sent", "bytes_uncompressed"))
    seconds, n = sum(v or 0.0 for v in run.column("seconds")), run.n_epochs

    def share(name):
        values = [v for v in run.column(name) if v is not None]
        whole = run.fact(name)
        return whole if whole is not None else sum(values) / len(values) if values else None

    return {"val": best[1] if best else None, "test": best[2] if best else None,
            "best_epoch": best[0] if best else None, "epochs": n, "epoch_seconds": seconds / n if n
            else None, "seconds": seconds if n else None, "sent": sent if n else None,
            "epoch_sent": sent / n if n else None, "compression": plain / sent if sent else None,
            "stale": share("stale_share") if sent else None, "hidden": share("hidden_share") if sent
            else None, "memory": run.fact("peak_memory_bytes", "largest_rank")}


# (key, heading, explanation, how to write it, which is best: max, min or None)
COLUMNS = (
    ("val", "Best val", "highest validation accuracy", lambda v: percent(v, 2), max),
    ("test", "Test", "test accuracy at the best validation accuracy", lambda v: percent(v, 2), max),
    ("best_epoch", "At epoch", "epoch of the best validation accuracy", lambda v: f"{v:.0f}", None),
    ("epochs", "Epochs", "epochs done", lambda v: f"{v:.0f}", None),
    ("epoch_seconds", "Time / epoch", "mean time of an epoch, evaluation excluded", scales.duration,
     min),
    ("seconds", "Time", "training time, evaluation excluded", scales.duration, None),
    ("epoch_sent", "Bytes / epoch", "mean bytes of halo messages per epoch, all ranks", scales.size,
     min),
    ("sent", "Bytes", "bytes of halo messages, all ranks", scales.size, None),
    ("compression", "Compres&shy;sion", "bytes that fp32 would have sent, divided by bytes sent",
     lambda v: f"{v:.1f}×", None),
    ("stale", "Stale", "share of exchanges that used rows of the epoch before", percent, None),
    ("hidden", "Hidden",
     "share of the messages' time in flight during which nobody waited for them", percent, None),
    ("memory", "Peak memory", "largest resident memory of any rank", scales.size, None),
)


def results_table(runs: list[Run]) -> str:
    """All results, one run a row; the best of a column stands out."""
    rows = result_rows(runs)
    shown = [column for column in COLUMNS if any(row[column[0]] is not None for row in rows)]
    head = "".join(f'<th title="{escape(text)}">{title}</th>' for _, title, text, _, _ in shown)
    body = []
    for number, (run, row) in enumerate(zip(runs, rows)):
        cells = "".join(_result_cell(row[key], write, better, [r[key] for r in rows])
                        for key, _, _, write, better in shown)
        body.append(f'<tr class="run r{number}">{name_cell(number, run)}{cells}</tr>')
    return table("results", f"<th>Run</th>{head}", body)


def _result_cell(value, write, better, column: list) -> str:
    if value is None:
        return NONE
    known = [v for v in column if v is not None]
    winner = (better is not None and len(known) > 1 and len(set(known)) > 1
              and value == better(known))
    return f'<td{" class=winner" if winner else ""}>{write(value)}</td>'


def name_cell(number: int, run: Run) -> str:
    """The first cell of a run's row."""
    return ('<th scope="row" '
            f'title="{escape(run.path)}">{swatch(number)}<span>{escape(run.label)}</span></th>')


def table(name: str, head: str, body: list[str]) -> str:
    """A table that scrolls by itself."""
    return (f'<div class="scroll"><table class="{name}"><thead><tr>{head}</tr></thead>'
            f'<tbody>{"".join(body)}</tbody></table></div>')


def differing_settings(runs: list[Run]) -> dict[str, list]:
    """{setting: its value in every run} for settings that are not the same everywhere; missing ones
    are None."""
    tables = [settings_of(run) for run in runs]
    names = list(dict.fromkeys(name for table in tables for name in table))
    columns = {name: [table.get(name) for table in tables] for name in names}
    return {name: values for name, values in columns.items() if len(_kinds(name, values)) > 1}


def _kinds(name: str, values: list) -> set[str]:
    """The different values; a fact that a run has not told yet is no difference."""
    return {repr(value) for value in values if value is not None or name not in FACTS}


def settings_of(run: Run) -> dict:
    """A run's settings and the facts that its results may depend on."""
    facts = {name: run.summary[name]
             for name in FACTS if run.summary and isinstance(run.summary.get(name), (str, int))}
    return facts | {name: value for name, value in run.config.items() if name not in BOOKKEEPING}


def changed_settings(run: Run) -> dict:
    """A single run's settings that are not the defaults."""
    from hpcgcn.config import FIELDS
    defaults = {name: field.default for name, field in FIELDS.items()}
    return {name: value for name, value in settings_of(run).items() if name in FACTS
            or defaults.get(name) != value}


def settings_table(runs: list[Run]) -> str:
    """The settings in which the runs differ; for one run those that are not the defaults."""
    if len(runs) == 1:
        rows = [f'<tr><th scope="row">{_breakable(name)}</th><td>{_value(value)}</td></tr>'
                for name, value in changed_settings(runs[0]).items()]
        return table("settings one", "<th>Setting</th><th>Value</th>", rows)
    columns = differing_settings(runs)
    if not columns:
        return '<p class="empty">All settings are the same in all runs.</p>'
    head = "".join(f"<th>{_breakable(name)}</th>" for name in columns)
    usual = {name: _usual(values) for name, values in columns.items()}
    body = []
    for number, run in enumerate(runs):
        cells = "".join(_setting_cell(values[number], usual[name])
                        for name, values in columns.items())
        body.append(f'<tr class="run r{number}">{name_cell(number, run)}{cells}</tr>')
    return table("settings", f"<th>Run</th>{head}", body)


def _usual(values: list) -> str | None:
    """What most runs have, if any two have the same."""
    value, count = Counter(map(repr, values)).most_common(1)[0]
    return value if count > 1 else None


def _setting_cell(value, usual: str | None) -> str:
    kind = ("usual" if repr(value) == usual else "own") + (" long" if len(str(value)) > 16 else "")
    return f'<td class="{kind}">{_value(value)}</td>'


def _breakable(name: str) -> str:
    return escape(str(name)).replace("_", "_<wbr>")


def _value(value) -> str:
    if value is None:
        return "–"
    return escape({True: "yes", False: "no"}[value] if isinstance(value, bool)
                  else scales.number(value, 6) if isinstance(value, float)
                  else str(value)).replace(":", ":<wbr>")
