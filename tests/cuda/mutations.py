"""Delete each synchronisation from a copy of the sources, one at a time, and see that a test
notices.

    python tests/cuda/mutations.py -o cuda/MUTATIONS.md     all, with the test that failed

Exit code 1 if one survives. A synchronisation is a __syncthreads or __syncwarp in cuda/, and a
record, wait_event or synchronize in the backend. A barrier must be missed twice: by the emulation
of the sources, through wrong numbers in some order of threads, and by the PTX machine, as a race.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEVICE_CALLS = re.compile(r"__sync(?:threads|warp)\([^;]*\);")
HOST_CALLS = re.compile(r"\S+\.(?:record|wait_event|synchronize)\([^#]*\)")
# Which tests look: (file, -k)
DEVICE_TESTS = (("test_barriers.py", "not ptx"), ("test_barriers.py", "ptx-80"))
HOST_TESTS = (("test_streams.py", ""),)


@dataclass(frozen=True)
class Mutation:
    """One call to delete: where it is and what it says."""

    path: str                        # below the root
    line: int                        # from 1
    call: str

    @property
    def tests(self) -> tuple[tuple[str, str], ...]:
        """The tests that should notice, each of them."""
        return HOST_TESTS if self.path.endswith(".py") else DEVICE_TESTS

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.call}"


def mutations() -> list[Mutation]:
    """Every synchronisation in the sources."""
    files = [*sorted((ROOT / "cuda").glob("*.cu*")),
             *sorted((ROOT / "hpcgcn" / "backend").glob("cuda*.py"))]
    found = []
    for path in files:
        pattern = HOST_CALLS if path.suffix == ".py" else DEVICE_CALLS
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = pattern.search(line)
            if match:
                found.append(Mutation(str(path.relative_to(ROOT)), number, match.group()))
    return found


def mutate(root: Path, mutation: Mutation):
    """Delete the call in the copy at `root`."""
    path = root / mutation.path
    lines = path.read_text().splitlines()
    nothing = "pass" if mutation.path.endswith(".py") else ";"
    lines[mutation.line - 1] = lines[mutation.line - 1].replace(mutation.call, nothing)
    path.write_text("\n".join(lines) + "\n")


def failing_tests(mutation: Mutation | None) -> list[str]:
    """Run the focused tests on a copy of the sources; the first that fails of each group, or ""
    if none does."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for part in ("cuda", "hpcgcn"):
            shutil.copytree(ROOT / part, root / part, symlinks=True,
                            ignore=shutil.ignore_patterns("__pycache__", "*.so", "src"))
        if mutation is not None:
            mutate(root, mutation)
        groups = mutation.tests if mutation else DEVICE_TESTS + HOST_TESTS
        return [_first_failure(root, str(mutation), *group) for group in groups]


def _first_failure(root: Path, mutation: str, file: str, chosen: str) -> str:
    # The copy is first on the path, so that it is what the tests import.
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider",
                           str(ROOT / "tests" / "cuda" / file), "-k", chosen],
                          cwd=root, env={**os.environ, "PYTHONPATH": str(root)},
                          capture_output=True, text=True, timeout=400)
    if done.returncode == 0:
        return ""
    if done.returncode < 0:                      # memory that was freed too early
        return f"{file}: crash, signal {-done.returncode}"
    failed = re.search(r"^FAILED \S*?([^/\s]+::\S+)(?: - (.*))?", done.stdout, re.MULTILINE)
    if done.returncode != 1 or not failed:
        raise RuntimeError(f"{mutation}: the tests did not "
                           f"run\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return failed.group(1)


def table(everything, noticed) -> str:
    """A row per deletion: what is gone, and which tests failed."""
    lines = ["# Every synchronisation, deleted once", "",
             "Written by `python tests/cuda/mutations.py -o cuda/MUTATIONS.md`.",
             "Lines count from 1. A barrier is noticed by the emulation of the sources and, as a",
             "race, by the PTX machine.", "",
             "| deleted | noticed by |", "|---|---|"]
    for mutation, failed in zip(everything, noticed):
        by = "<br>".join(f"`{name}`" if name else "**nothing**" for name in failed)
        lines.append(f"| `{mutation}` | {by} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, help="write the table there as well")
    output = parser.parse_args().output
    if any(failing_tests(None)):
        print("the sources fail without any mutation")
        return 1
    everything = mutations()
    with ThreadPoolExecutor(max_workers=2) as pool:
        noticed = list(pool.map(failing_tests, everything))
    page = table(everything, noticed)
    if output:
        output.write_text(page)
    survivors = sum(not all(failed) for failed in noticed)
    print(page + f"{len(everything)} deletions, {survivors} of them unnoticed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
