"""The report's table of pipelines of layers: bubble, balance, and how old what chunks read of each
other was."""

from __future__ import annotations

from hpcgcn.report.runs import Run, is_number
from hpcgcn.report.tables import NONE, name_cell, percent, table

# (heading, youngest and oldest age in epochs); rows of this epoch and those before any snapshot
# have columns of their own
AGES = (("1 epoch", 1, 1), ("2 to 5", 2, 5), ("6 to 11", 6, 11), ("12 to 23", 12, 23),
        ("older", 24, float("inf")))
HEADINGS = (("Stages × partitions", "groups of consecutive layers, ranks that share one"),
            ("Chunks", "of nodes, in all"),
            ("Bubble", "share of all ranks' time spent waiting"),
            ("Formula", "(S - 1) / (K + S - 1) for S stages and K chunks per partition"),
            ("Slowest stage", "compute time of the slowest stage over the mean"),
            ("Current", "share of all reads of neighbours that found rows of the same epoch"),
            *((title, "share of reads that found a snapshot of this age") for title, _, _ in AGES),
            ("None yet", "share of reads before the first snapshot, which found zeros"))


def pipelines(runs: list[Run]) -> list[tuple[int, Run]]:
    """(number, run) of the runs that were pipelines."""
    return [(number, run)
            for number, run in enumerate(runs) if run.fact("pipeline", "stages") is not None]


def pipelines_table(runs: list[Run]) -> str:
    """One row per pipeline."""
    head = "".join(f'<th title="{text}">{title}</th>' for title, text in HEADINGS)
    body = ['<tr class="run '
            f'r{number}">{name_cell(number, run)}{"".join(map(_cell, _values(run)))}</tr>'
            for number, run in pipelines(runs)]
    return table("pipelines", f"<th>Run</th>{head}", body)


def _cell(text: str | None) -> str:
    return NONE if text is None else f"<td>{text}</td>"


def _values(run: Run) -> list[str | None]:
    def fact(name: str, write) -> str | None:
        value = run.fact("pipeline", name)
        return None if value is None else write(value)

    stages = fact("stages", "{:.0f}".format)
    partitions = fact("partitions_per_stage", "{:.0f}".format)
    return [f"{stages} × {partitions or '–'}", fact("chunks", "{:.0f}".format),
            fact("bubble_measured", percent),
            fact("bubble_predicted", percent), fact("balance", "{:.2f}".format),
            *(percent(share) if share else None for share in ages_of(run))]


def ages_of(run: Run) -> list[float]:
    """Shares of reads: current, by AGES, and before the first snapshot."""
    given = (run.summary or {})["pipeline"].get("reads_by_age")
    shares = {}
    if isinstance(given, dict):
        shares = {age: share for age, share in given.items() if is_number(share)}
    numbered = {int(age): share for age, share in shares.items() if age.isdecimal()}
    binned = [sum(share for age, share in numbered.items() if low <= age <= high)
              for _, low, high in AGES]
    return [shares.get("current", 0.0), *binned, shares.get("zeros", 0.0)]
