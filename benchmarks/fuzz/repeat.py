"""The faults of a long run, tried again with the present code: what became of each."""

from __future__ import annotations

import json

from common import RESULTS

from fuzz import pool
from fuzz.tables import Table

TITLE = "## Faults, tried again"


def faults_of(page: str = "fuzz-inputs") -> tuple[int, list[dict]]:
    """(seed, faults) of the results that were written last."""
    held = json.loads((RESULTS / f"{page}.json").read_text())
    return held["seed"], held["faults"]


def repeat(sound: str, folder: str, workers: int, page: str = "fuzz-inputs") -> int:
    """Try the faults of a page again and write beneath its table what came of it; returns how many
    are faults still."""
    seed, faults = faults_of(page)
    cases = [(fault["kind"], fault["number"]) for fault in faults]
    outcomes = {(one.kind, one.number): one
                for one in pool.run_cases(cases, sound, folder, seed, workers)}
    left = sum(Table.is_fault(one) for one in outcomes.values())
    lines = [f"- {fault['kind']} {fault['number']}, {fault['changes']}: was {fault['outcome']} "
             f"({fault['where']}); now {outcomes[fault['kind'], fault['number']].outcome}"
             for fault in faults]
    words = (f"{len(faults)} of the cases above were faults. The same cases with the code of "
             f"today: {left} are.")
    path = RESULTS / f"{page}.md"
    table = path.read_text().partition(f"\n{TITLE}")[0].rstrip("\n")
    path.write_text("\n\n".join([table, TITLE, words, "\n".join(lines)]) + "\n")
    return left
