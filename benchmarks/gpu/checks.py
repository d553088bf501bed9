"""Steps that check: the machine, the tests on the device, and the same under compute-sanitizer."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from gpu import sanitizer
from gpu.steps import Day, Failure, Found, Skip, Table

HERE = Path(__file__).resolve().parent
COUNTS = re.compile(r"(\d+) (passed|failed|errors?|skipped|xfailed|deselected)\b")


def machine(day: Day, found: Found):
    """What is there: GPUs, how they are connected, what hpcgcn finds."""
    tables = Table(["tool", "found"], [])
    if shutil.which("nvidia-smi"):
        found.printed = day.run("nvidia-smi", ["nvidia-smi"], 60)
        found.printed += day.run("topology", ["nvidia-smi", "topo", "-m"], 60)
    for tool in ("nvidia-smi", "compute-sanitizer", "nvcc", "mpiexec"):
        tables.rows.append([tool, shutil.which(tool) or "not on the path"])
    found.tables.append(tables)
    found.printed += day.run("doctor", [sys.executable, "-m", "hpcgcn", "doctor"], 120)


def counts_of(printed: str) -> dict[str, int]:
    """What pytest's last line says."""
    lines = [line for line in printed.splitlines() if COUNTS.search(line)]
    return {what: int(number) for number, what in COUNTS.findall(lines[-1])} if lines else {}


def suite(day: Day, found: Found):
    """The suite of operations on the device, at every width; then the tests of the CUDA backend."""
    backend = "cuda-aligned" if day.rehearsal else "cuda-gpu"
    table = Table(["tests", "passed", "failed", "skipped"], [])
    found.tables.append(table)
    chosen = {"operations on the device": ["tests/operations", "-k", backend],
              "the backend": ["tests/cuda"]}
    if day.rehearsal:
        # one file each, to see that the step works: `make test` runs all of them
        chosen = {"operations on the device": ["tests/operations/test_rows.py", "-k", backend],
                  "the backend": ["tests/cuda/test_device.py"]}
    problems = []
    for name, words in chosen.items():
        try:
            printed = day.run(f"tests of {name}", [
                sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words], 3600,
                HPCGCN_TEST_GPU="0" if day.rehearsal else "1")
        except Failure as failure:
            printed = (day.folder / f"tests of {name}.log").read_text(errors="replace")
            problems.append(str(failure))
        counts = counts_of(printed)
        table.rows.append([name, *(str(counts.get(k, 0)) for k in ("passed", "failed", "skipped"))])
        if not counts.get("passed") and not problems:
            problems.append(f"no test of {name} ran")
    if problems:
        raise Failure("\n".join(problems))


def sanitized(tool: str):
    """The suite of operations, and a training on two ranks, under one tool."""
    def step(day: Day, found: Found):
        program = shutil.which("compute-sanitizer")
        if program is None:
            raise Skip("compute-sanitizer is not on the path: it comes with the CUDA toolkit")
        backend = "cuda-aligned" if day.rehearsal else "cuda-gpu"
        tests = "tests/operations/test_rows.py" if day.rehearsal else "tests/operations"
        table = Table(["program", "reports", "known noise of MPI"], [])
        found.tables.append(table)
        programs = {
            "operations": lambda under: [*under, "pytest", "-q", "-p", "no:cacheprovider", tests,
                                         "-k", backend],
            "training on 2 ranks": lambda under: day.mpi(
                2, *under, "hpcgcn", "train", _parts_for_sanitizer(day), "--backend", "cuda",
                "--epochs", 2, "--hidden", 16, "--output", day.folder / "runs", "--name", tool,
                "--overwrite", "--quiet")}
        problems: list[str] = []
        for name, command in programs.items():
            logs = f"{tool} {name}"
            for old in day.folder.glob(f"{logs}.*.txt"):
                old.unlink()
            under = [program, "--tool", tool, "--target-processes", "all", "--log-file",
                     day.folder / f"{logs}.%p.txt", sys.executable, HERE / "without_pool.py"]
            try:
                day.run(logs, command(under), 7200)
            except Failure as failure:
                problems.append(str(failure))
            ours, n_noise = _reports(day, logs)
            problems += ours
            table.rows.append([name, str(len(ours)), str(n_noise)])
        if problems:
            raise Failure(f"{len(problems)} reports or failures\n" + "\n\n".join(problems[:5]))
    return step


def _reports(day: Day, name: str) -> tuple[list[str], int]:
    """What the sanitizer wrote of each process: reports that count, and the number of others."""
    texts = [path.read_text(errors="replace") for path in day.folder.glob(f"{name}.*.txt")]
    ours, n_noise = [], 0
    if not any(map(sanitizer.finished, texts)):
        ours.append(f"{name}: the sanitizer wrote no summary")
    for text in texts:
        these, noise = sanitizer.split(text)
        ours += these
        n_noise += noise
    return ours, n_noise


def _parts_for_sanitizer(day: Day) -> Path:
    """A small graph: programs run some hundred times slower there."""
    graph, parts = day.folder / "tiny.h5", day.folder / "tiny-2.h5"
    hpcgcn = [sys.executable, "-m", "hpcgcn"]
    if not parts.exists():
        day.run("generate-tiny", [*hpcgcn, "generate", "sbm", "-o", graph, "--nodes", 200,
                                  "--degree", 8, "--features", 12, "--classes", 4], 120)
        day.run("partition-tiny", [*hpcgcn, "partition", graph, "-n", 2, "-o", parts], 120)
    return parts

