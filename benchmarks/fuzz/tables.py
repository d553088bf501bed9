"""Outcomes by kind, and faults by where they happened."""

from __future__ import annotations

from collections import Counter, defaultdict

from common import markdown_table, write_results

from fuzz.cases import Outcome, shape_of
from fuzz.pool import SECONDS

_GOOD = ("accepted", "refused")
# outcome -> its column in the table
COLUMNS = {"accepted": "used", "refused": "refused", "foreign": "other exceptions",
           "death": "deaths", "time": f"over {SECONDS:.0f} s", "memory": "over 1 GiB",
           "contradiction": "sound, not usable", "message": "bad message", "outside": "outside",
           "broken": "not made"}


class Table:
    """Counts of outcomes, the first cases of each fault, and the refusals."""

    def __init__(self, kinds: list[str]):
        self.counts = {kind: Counter() for kind in kinds}
        self.faults: dict[tuple, list[Outcome]] = defaultdict(list)
        self.refusals = Counter()
        self.slowest = dict.fromkeys(kinds, 0.0)
        self.largest = dict.fromkeys(kinds, 0)

    @property
    def n_done(self) -> int:
        return sum(sum(counter.values()) for counter in self.counts.values())

    @property
    def n_faults(self) -> int:
        return sum(map(len, self.faults.values()))

    @staticmethod
    def is_fault(outcome: Outcome) -> bool:
        """Is it an outcome that must not be?"""
        return outcome.outcome not in _GOOD

    def add(self, outcome: Outcome):
        """Count one."""
        self.counts[outcome.kind][outcome.outcome] += 1
        self.slowest[outcome.kind] = max(self.slowest[outcome.kind], outcome.seconds)
        self.largest[outcome.kind] = max(self.largest[outcome.kind], outcome.peak)
        if self.is_fault(outcome):
            self.faults[outcome.kind, outcome.outcome, outcome.where].append(outcome)
        elif outcome.outcome == "refused":
            self.refusals[outcome.kind, shape_of(outcome.detail, "")] += 1

    def rows(self) -> list[list[str]]:
        total = sum(self.counts.values(), Counter())
        rows = [
            [kind, f"{sum(counter.values()):,}", *(f"{counter[name]:,}" for name in COLUMNS),
             f"{self.slowest[kind]:.1f}", f"{self.largest[kind] >> 20}"]
            for kind, counter in self.counts.items()
        ]
        rows.append(
            ["all", f"{self.n_done:,}", *(f"{total[name]:,}" for name in COLUMNS),
             f"{max(self.slowest.values()):.1f}", f"{max(self.largest.values()) >> 20}"]
        )
        return rows

    def header(self) -> list[str]:
        return ["kind", "cases", *COLUMNS.values(), "slowest s", "most MiB"]

    def text(self, seconds: float, seed: int, messages: bool = False) -> str:
        """The table and every fault once, with how often it happened and the numbers of its first
        cases."""
        lines = [markdown_table(self.header(), self.rows()), f"{seconds:.0f} s, seed {seed}"]
        for (kind, outcome, where), found in sorted(
            self.faults.items(), key=lambda item: -len(item[1])
        ):
            numbers = " ".join(str(one.number) for one in found[:4])
            lines.append(f"{len(found):>5} {kind} {outcome}: {where} | {found[0].detail[:160]!r} | "
                         f"cases {numbers} | {found[0].changes[:120]}")
        if messages:
            lines += [
                f"{count:>5} {kind} {words}" for (kind, words), count in self.refusals.most_common()
            ]
        return "\n".join(lines)

    def write(self, seconds: float, seed: int, commits: list[str], n_cases: int, command: str):
        """results/fuzz-inputs.md and .json; n_cases: that there would be, were it not ended."""
        ended = "" if self.n_done >= n_cases else f" of {n_cases:,} (the run was ended before)"
        words = (f"{self.n_done:,}{ended} damaged inputs, seed {seed}, {seconds / 60:.0f} minutes, "
                 f"with the code of {', then '.join(commits)}. Each went through what a user does "
                 "with it: a graph through info, partition, two epochs of training and prediction; "
                 "a checkpoint through info, evaluation, prediction, export and resumed training; "
                 "files of others through import and then all of that. `used`: it was sound and "
                 "everything succeeded. `refused`: one message of ours. All other columns are "
                 "faults. The time for which a case waits for a core does not count; in "
                 "`slowest s` that of the processes which it starts does (Parquet is read in "
                 "one). DGL is not needed: what is tried are the refusal without it, and the "
                 "arrays that its loader hands over.")
        data = {"seed": seed, "seconds": seconds, "commits": commits,
                "kinds": {kind: dict(counter) for kind, counter in self.counts.items()},
                "faults": [one.plain() for found in self.faults.values() for one in found]}
        return write_results("fuzz-inputs", "Damaged inputs", command,
                             [words, markdown_table(self.header(), self.rows())], data)
