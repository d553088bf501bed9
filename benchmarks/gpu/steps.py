"""A day of steps: each is run whatever became of the others, and says done, failed or skipped."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DONE, FAILED, SKIPPED = "done", "failed", "skipped"


class Skip(Exception):
    """This step cannot run here; the message says why."""


class Failure(Exception):
    """What the step was to show does not hold; the message says what was seen."""


@dataclass
class Table:
    """Rows of text under a header."""

    header: list[str]
    rows: list[list[str]]


@dataclass
class Found:
    """What a step has to tell: tables, paragraphs, and text as a program printed it."""

    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    printed: str = ""


@dataclass
class Outcome:
    """How a step ended."""

    title: str
    state: str
    reason: str
    seconds: float
    found: Found


@dataclass
class Day:
    """What all steps share. rehearsal: the stand-in for CuPy is used, and everything is small."""

    folder: Path
    rehearsal: bool
    n_devices: int
    peers: str = ""                              # an interpreter with PyTorch, DGL, PyG

    def size(self, device: int, rehearsal: int) -> int:
        """A number for a GPU, or the small one for the stand-in."""
        return rehearsal if self.rehearsal else device

    def run(self, name: str, command: list, timeout: float, **env: str) -> str:
        """What a command printed, also kept in <name>.log; Failure unless it ends with 0."""
        log = self.folder / f"{name}.log"
        words = [str(word) for word in command]
        with log.open("w") as out:
            out.write(f"$ {shlex.join(words)}\n")
            out.flush()
            process = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT,
                                       stdin=subprocess.DEVNULL, env={**os.environ, **env},
                                       start_new_session=True)
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise Failure(f"{name}: no end within {timeout:g} s\n{tail(log)}") from None
        if code:
            raise Failure(f"{name}: exit code {code}\n{tail(log)}")
        return log.read_text(errors="replace").partition("\n")[2]

    def mpi(self, n_ranks: int, *command) -> list:
        """A command on ranks."""
        mpiexec = os.environ.get("MPIEXEC", str(Path(sys.executable).with_name("mpiexec")))
        return [*shlex.split(mpiexec), "-n", n_ranks, *command]


def tail(log: Path, n_lines: int = 25) -> str:
    """The end of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-n_lines:])


def carry_out(day: Day, title: str, step: Callable[[Day, Found], None]) -> Outcome:
    """Run one step; whatever it raises becomes its outcome, with what it had found by then."""
    found, began = Found(), time.perf_counter()
    state, reason = DONE, ""
    try:
        step(day, found)
    except Skip as skip:
        state, reason = SKIPPED, str(skip)
    except Failure as failure:
        state, (reason, _, more) = FAILED, str(failure).partition("\n")
        found.printed = "\n".join(filter(None, (found.printed, more)))
    except Exception as error:  # noqa: BLE001 - the other steps must run
        state, reason = FAILED, f"{type(error).__name__}: {error}".splitlines()[0]
        found.printed = "\n".join(filter(None, (found.printed, traceback.format_exc())))
    return Outcome(title, state, reason, time.perf_counter() - began, found)
