"""What benchmarks share: contenders timed in turn, medians with spread, the machine, results as
JSON and Markdown."""

from __future__ import annotations

import json
import os
import pathlib
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping

import numpy as np

RESULTS = pathlib.Path(__file__).parent / "results"


# -- timing ----------------------------------------------------------------------------------------

def timed(function: Callable[[], object]) -> Callable[[], float]:
    """A contender in this process: a call that returns its own seconds."""
    def run() -> float:
        start = time.perf_counter()
        function()
        return time.perf_counter() - start
    return run


def interleave(contenders: Mapping[str, Callable[[], float]], repeats: int,
               budget: float = float("inf")) -> dict:
    """Seconds of each contender, one call each in turn, after one that does not count.

    All see the same machine: what disturbs a round disturbs every contender. Stops early, but after
    three rounds at the earliest, once `budget` seconds are spent.
    """
    for contender in contenders.values():
        contender()
    seconds = {name: [] for name in contenders}
    start = time.perf_counter()
    for done in range(repeats):
        if done >= 3 and time.perf_counter() - start > budget:
            break
        for name, contender in contenders.items():
            seconds[name].append(contender())
    return seconds


def spread(seconds: list[float]) -> dict:
    """Median, quartiles, and the number of rounds."""
    low, middle, high = (statistics.quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1
                         else seconds * 3)
    return {"median": middle, "low": low, "high": high, "rounds": len(seconds)}


def milliseconds(found: dict) -> str:
    """A spread for a table: median and half the distance of the quartiles."""
    median, half = found["median"] * 1e3, (found["high"] - found["low"]) / 2 * 1e3
    return f"{median:.0f} ± {half:.0f}" if median >= 100 else f"{median:.3g} ± {half:.2g}"


def copy_bandwidth(nbytes: int = 256 << 20) -> float:
    """Bytes per second, read and written, of a large copy on one core: the best of seven."""
    source, target = np.ones(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    best = min(timed(lambda: np.copyto(target, source))() for _ in range(7))
    return 2 * nbytes / best


# -- a worker with another interpreter -------------------------------------------------------------

class Worker:
    """A script under another Python, for packages that need one of their own; answers one line of
    JSON with another."""

    def __init__(self, python: str, script: pathlib.Path, arguments: list[str], threads: int = 1):
        limits = {name: str(threads)
                  for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        self.process = subprocess.Popen([python, str(script), *arguments], stdin=subprocess.PIPE,
                                        text=True, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, env=os.environ | limits)

    def ask(self, **question):
        """One question, one answer; the worker runs only while it is asked."""
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return self.hear()

    def hear(self):
        """What it says next."""
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self.process.args} ended without an answer: run it by hand to "
                               "see why")
        return json.loads(answer)

    def close(self):
        """End it: it stops at the end of its input."""
        self.process.stdin.close()
        self.process.wait(timeout=60)


# -- reports ---------------------------------------------------------------------------------------

def machine() -> dict:
    """What was measured on, without the machine's name."""
    model = platform.processor() or platform.machine()
    with open("/proc/cpuinfo") as lines:
        model = next((line.split(":", 1)[1].strip()
                      for line in lines if line.startswith("model name")), model)
    return {"cpu": model, "cores": len(os.sched_getaffinity(0)),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2 ** 30),
            "load_average": round(os.getloadavg()[1], 1), "date": time.strftime("%Y-%m-%d"),
            "python": platform.python_version(), "numpy": np.__version__}


def markdown_table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table, the first column left-aligned."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def write_results(name: str, title: str, command: str, sections: list[str],
                  data: dict) -> pathlib.Path:
    """Write results/<name>.json and results/<name>.md; sections are paragraphs and tables in
    Markdown."""
    RESULTS.mkdir(exist_ok=True)
    facts = machine()
    (RESULTS / f"{name}.json").write_text(json.dumps({"command": command, "machine": facts, **data},
                                                     indent=1) + "\n")
    where = (f"{facts['cpu']}, {facts['cores']} cores, {facts['memory_gib']} GiB, "
             f"load average {facts['load_average']}, {facts['date']}")
    page = RESULTS / f"{name}.md"
    page.write_text("\n\n".join([f"# {title}", f"`{command}` on {where}.", *sections]) + "\n")
    return page
