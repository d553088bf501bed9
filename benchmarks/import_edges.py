"""Importing an edge list larger than what may be held in memory: time, rate and peak memory.

    python benchmarks/import_edges.py  100 million edges, about 1.6 GB of text; needs 6 GB of disk
    python benchmarks/import_edges.py --edges 10000000

Writes a random edge list, imports it with `hpcgcn import` in a process of its own, and notes that
process's peak resident memory, of which the part that is backed by files can be given back at any
time. Writes benchmarks/results/import-edges.md.
"""

from __future__ import annotations

import argparse
import gzip
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
CHUNK = 1 << 20
_COLUMNS = ("edges", "nodes", "kept", "file", "GB in", "GB out", "s", "s of CPU", "M edges/s",
            "M edges/s of CPU", "GiB allocated", "GiB with mapped files")
_HEAD = f"""# Importing large edge lists

A random edge list of text, imported by `hpcgcn import csv`, which uses one core:
`python benchmarks/import_edges.py`. Seconds are by the clock and of CPU time; they differ
where the machine has other work. Peak memory is of the importing process: what it allocated, and
with the pages of files that it had mapped, which the system takes back when it needs them.

| {" | ".join(_COLUMNS)} |
|{"---|" * len(_COLUMNS)}
"""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, default=100_000_000)
    parser.add_argument("--nodes", type=int, default=10_000_000)
    parser.add_argument("--gzip", action="store_true", help="import a gzip file")
    parser.add_argument("--directed", action="store_true",
                        help="keep the edges as they are; else every edge is added both ways")
    parser.add_argument("--work", default=tempfile.gettempdir())
    parser.add_argument("--results", default=os.path.join(HERE, "results"))
    return parser.parse_args()


def as_text(edges: np.ndarray) -> bytes:
    """(n, 2) numbers as lines of text, made by array operations."""
    width = len(str(int(edges.max())))
    digits = np.empty((len(edges), 2, width + 1), np.uint8)
    rest = edges.copy()
    for place in range(width - 1, -1, -1):
        digits[:, :, place] = rest % 10 + 48
        rest //= 10
    digits[:, 0, width], digits[:, 1, width] = ord(","), ord("\n")
    leading = np.logical_and.accumulate(digits[:, :, :width - 1] == 48, axis=2)
    keep = np.ones(digits.shape, bool)
    keep[:, :, :width - 1] = ~leading
    return digits[keep].tobytes()


def write_edges(path: str, args: argparse.Namespace):
    """A random edge list with a header."""
    rng = np.random.default_rng(0)
    opener = (lambda: gzip.open(path, "wb",
                                compresslevel=1)) if args.gzip else (lambda: open(path, "wb"))
    with opener() as file:
        file.write(b"source,target\n")
        for start in range(0, args.edges, CHUNK):
            file.write(as_text(rng.integers(0, args.nodes, (min(CHUNK, args.edges - start), 2))))


class MemoryWatch(threading.Thread):
    """The largest anonymous memory of a process, read ten times per second."""

    def __init__(self, pid: int):
        super().__init__(daemon=True)
        self.pid, self.anonymous = pid, 0
        self.start()

    def run(self):
        while True:
            try:
                with open(f"/proc/{self.pid}/status") as file:
                    self.anonymous = max([self.anonymous,
                                          *(int(line.split()[1]) * 1024
                                            for line in file if line.startswith("RssAnon"))])
            except (FileNotFoundError, ProcessLookupError):
                return
            time.sleep(0.1)


def main():
    args = parse_arguments()
    with tempfile.TemporaryDirectory(dir=args.work, prefix="import-edges-") as folder:
        path = os.path.join(folder, "edges.csv" + (".gz" if args.gzip else ""))
        write_edges(path, args)
        size = os.path.getsize(path)
        output = os.path.join(folder, "g.h5")
        command = [sys.executable, "-m", "hpcgcn", "import", "csv", path, "-o", output,
                   "--drop-duplicates", "--split", "none",
                   *([] if args.directed else ["--undirected"])]
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        watch = MemoryWatch(process.pid)
        printed, _ = process.communicate()
        seconds = time.perf_counter() - began
        if process.returncode:
            sys.exit(f"the import failed: {printed}")
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        peak, busy = used.ru_maxrss * 1024, used.ru_utime + used.ru_stime
        written = os.path.getsize(output)
    cells = [f"{args.edges:,}", f"{args.nodes:,}", "directed" if args.directed else "both ways",
             "gzip" if args.gzip else "plain", f"{size / 1e9:.2f}", f"{written / 1e9:.2f}",
             f"{seconds:.0f}", f"{busy:.0f}", f"{args.edges / seconds / 1e6:.2f}",
             f"{args.edges / busy / 1e6:.2f}", f"{watch.anonymous / 2**30:.2f}",
             f"{peak / 2**30:.2f}"]
    row = "| " + " | ".join(cells) + " |\n"
    print(printed + row)
    append(os.path.join(args.results, "import-edges.md"), row)


def append(path: str, row: str):
    """Add a row to the table, begun if it is not there."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if not os.path.exists(path):
        with open(path, "w") as file:
            file.write(_HEAD)
    with open(path, "a") as file:
        file.write(row)


if __name__ == "__main__":
    main()
