"""The log of a long run: its outcomes line by line, from which a run that was ended goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator

from common import RESULTS

from fuzz.cases import Outcome
from fuzz.tables import Table


class Log:
    """Outcomes of all starts with one seed. Without a path it remembers nothing."""

    def __init__(self, path: str | None, seed: int):
        self.path, self.seed = path, seed
        self.held: list[Outcome] = []
        self.commits: list[str] = []
        self.seconds_before = 0.0
        self.began = time.perf_counter()
        self.file = None
        if path:
            self._read()
            self.file = open(path, "a", buffering=1)
            self._write({"seed": seed, "commit": _commit()})
        self._note(_commit())

    def _read(self):
        if not os.path.exists(self.path):
            return
        last = 0.0
        with open(self.path, "r+") as file:
            text = file.read()
            # Half a line is left when the process is killed while it writes.
            lines = text[:text.rfind("\n") + 1].splitlines()
            file.truncate(sum(len(line) + 1 for line in lines))  # JSON here is ASCII
            for line in lines:
                entry = json.loads(line)
                if "commit" in entry:
                    if entry["seed"] != self.seed:
                        sys.exit(f"fuzz_inputs: {self.path} has the seed {entry['seed']}, not "
                                 f"{self.seed}: give that seed, or another --log")
                    self._note(entry["commit"])
                    self.seconds_before, last = self.seconds_before + last, 0.0
                else:
                    last = entry.pop("at")
                    self.held.append(Outcome(**entry))
        self.seconds_before += last

    def _note(self, commit: str):
        if commit not in self.commits:
            self.commits.append(commit)

    @property
    def seconds(self) -> float:
        """How long all starts took together."""
        return self.seconds_before + time.perf_counter() - self.began

    def left(self, cases: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """Cases without an outcome."""
        done = {(one.kind, one.number) for one in self.held}
        return [case for case in cases if case not in done]

    def kept(self, outcomes: Iterator[Outcome]) -> Iterator[Outcome]:
        """The same outcomes, each written down."""
        try:
            for one in outcomes:
                entry = one.plain() if Table.is_fault(one) else one.plain() | {"trace": ""}
                self._write(entry | {"at": round(time.perf_counter() - self.began, 1)})
                yield one
        finally:
            outcomes.close()  # ends the workers

    def _write(self, entry: dict):
        if self.file:
            self.file.write(json.dumps(entry) + "\n")


def _commit() -> str:
    """Of the code that is tried, with a plus if files differ from it."""
    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", str(RESULTS), *words], capture_output=True,
                              text=True).stdout.strip()
    changed = "+" if git("status", "--porcelain", "--untracked-files=no") else ""
    return (git("rev-parse", "--short", "HEAD") or "unknown") + changed
