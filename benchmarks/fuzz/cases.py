"""One case: a copy of a sound input, damaged as its number and the seed say, used, and what came of
it."""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
import traceback
from dataclasses import asdict, dataclass, field

from fuzz import sandbox, uses
from fuzz.kinds import KINDS

MOST_BYTES = 1 << 30  # of memory that a case may take

NOT_MADE = "(it was not made yet)"
# Everything but the first two is a fault of ours.
OUTCOMES = ("accepted", "refused", "foreign", "contradiction", "message", "death", "time", "memory",
            "outside", "broken")


@dataclass
class Outcome:
    """How a case ended, where, and what was done to the input."""

    kind: str
    number: int
    outcome: str
    detail: str = ""
    where: str = ""
    changes: str = ""
    seconds: float = 0.0
    peak: int = 0
    trace: str = field(default="", repr=False)

    def plain(self) -> dict:
        return asdict(self)


def run_case(
    sound: str, work: str, seed: int, kind_name: str, number: int, outside: sandbox.Outside
) -> Outcome:
    """Make the case in the folder `work`, use it, and remove it."""
    kind, result = KINDS[kind_name], Outcome(kind_name, number, "broken")
    folder = os.path.join(work, "case")
    shutil.rmtree(folder, ignore_errors=True)
    try:
        # For the one who may find that this process died: of what, and with which input.
        _note(work, NOT_MADE)
        result.changes = make_case(sound, folder, seed, kind_name, number)
        _note(work, result.changes)
        outside.found.clear()
        before, began = sandbox.forget_peak(), _seconds()
        _use(kind, folder, result)
        result.seconds, result.peak = _seconds() - began, max(sandbox.peak() - before, 0)
        if result.outcome in ("accepted", "refused") and result.peak > MOST_BYTES:
            result.outcome, result.where = ("memory",
                                            f"{result.peak >> 20} MiB, then {result.outcome}")
        if outside.found:
            result.outcome, result.where = "outside", outside.found[0]
    except Exception as error:  # noqa: BLE001 - the fuzzer's own fault
        result.detail, result.trace = (f"{type(error).__name__}: {error}"[:500],
                                       traceback.format_exc())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return result


def _seconds() -> float:
    """A clock that stands still while this process is ready, but others have the cores."""
    return time.perf_counter() - sandbox.seconds_waited(os.getpid())


def _note(work: str, changes: str):
    with open(os.path.join(work, "changes"), "w", errors="replace") as file:
        file.write(changes)


def make_case(sound: str, folder: str, seed: int, kind_name: str, number: int) -> str:
    """Write the damaged input of a case into a folder that is not there yet; what was done to
    it."""
    kind, rng = KINDS[kind_name], random.Random(f"{seed} {kind_name} {number}")
    origin = os.path.join(sound, kind.shared or kind_name)
    variety = rng.choice(sorted(os.listdir(origin)))
    shutil.copytree(os.path.join(origin, variety), folder)
    # Some cases are left sound: if those were refused, nothing would be tried in earnest.
    changes = kind.change(rng, folder, kind.files) if rng.random() > 0.01 else "nothing"
    return f"{variety}: {changes}"


def _use(kind, folder: str, result: Outcome):
    try:
        kind.use(folder, result.changes)
        result.outcome = "accepted"
    except uses.Refused as error:
        result.outcome, result.detail = "refused", str(error).replace(folder, "")[:3000]
    except uses.Contradiction as error:
        result.outcome, result.detail, result.where = (
            "contradiction",
            str(error).replace(folder, "")[:3000],
            shape_of(str(error), folder),
        )
    except uses.BadMessage as error:
        result.outcome, result.detail, result.where = (
            "message",
            str(error),
            shape_of(str(error), folder),
        )
    except BaseException as error:  # noqa: BLE001 - SystemExit is a fault here, too
        result.outcome, result.where = "foreign", f"{type(error).__name__} at {innermost(error)}"
        result.detail, result.trace = (f"{type(error).__name__}: {error}"[:500],
                                       "".join(traceback.format_exception(error))[-6000:])


def innermost(error: BaseException) -> str:
    """The last line of hpcgcn that an exception went through."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(sys.modules["hpcgcn"].__file__)))
    found = "?"
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename.startswith(os.path.join(root, "hpcgcn") + os.sep):
            found = f"{os.path.relpath(frame.filename, root)}:{frame.lineno}"
    return found


def shape_of(message: str, folder: str) -> str:
    """A message without what differs from case to case, to count equal ones."""
    message = message.replace(folder, "")
    return "".join("#" if c.isdigit() else c for c in message)[:120]
