"""Steps that train: the same losses as on the CPU in every way messages may go, and the time of
an epoch on 1, 2, 4 ... GPUs."""

from __future__ import annotations

import csv
import json
import statistics
import sys
from pathlib import Path

from gpu.steps import ROOT, Day, Failure, Found, Skip, Table

CUDA_AWARE = {"HPCGCN_CUDA_STAND_IN_MPI": "aware"}       # of the stand-in; others ignore it
# how messages go: flags and environment
WAYS = {"staged": (["--mpi", "staged"], {}),
        "cuda-aware": (["--mpi", "cuda-aware"], CUDA_AWARE),
        "nccl": (["--transport", "nccl"], {})}
TOLERANCE = 1e-5


def graph_file(day: Day) -> Path:
    """The graph that is trained on, made once."""
    path = day.folder / "graph.h5"
    if not path.exists():
        day.run("generate", [sys.executable, "-m", "hpcgcn", "generate", "sbm", "-o", path,
                             "--nodes", day.size(200_000, 120), "--degree", day.size(50, 8),
                             "--features", day.size(128, 12), "--classes", day.size(41, 4),
                             "--communities", 4, "--seed", 1], 600)
    return path


def parts_file(day: Day, n_ranks: int) -> Path:
    """Its partition for so many ranks, made once."""
    path = day.folder / f"parts-{n_ranks}.h5"
    graph = graph_file(day)
    if not path.exists():
        day.run(f"partition-{n_ranks}", [sys.executable, "-m", "hpcgcn", "partition", graph, "-n",
                                         n_ranks, "-o", path], 1200)
    return path


def train(day: Day, n_ranks: int, name: str, *flags: str, **env: str) -> dict:
    """A training: losses, and the median of the seconds of an epoch without the first two."""
    epochs = day.size(20, 3)
    day.run(f"train-{name}", day.mpi(
        n_ranks, sys.executable, "-m", "hpcgcn", "train", parts_file(day, n_ranks), "--output",
        day.folder / "runs", "--name", name, "--overwrite", "--epochs", epochs, "--eval-every", 0,
        "--hidden", day.size(256, 16), "--quiet", *flags), 1200, **env)
    folder = day.folder / "runs" / name
    rows = list(csv.DictReader((folder / "metrics.csv").open()))
    first = min(2, len(rows) - 1)
    return {"losses": [float(row["loss"]) for row in rows],
            "seconds": statistics.median(float(row["seconds"]) for row in rows[first:]),
            "wait": statistics.median(float(row["wait_seconds"]) for row in rows[first:]) / n_ranks,
            "summary": json.loads((folder / "summary.json").read_text())}


def ranks_of_ways(day: Day) -> int:
    """A rank per GPU, two at least: one rank sends nothing."""
    return max(2, min(day.n_devices, day.size(8, 2)))


def refuse_shared(day: Day, way: str):
    """NCCL refuses two ranks on one GPU."""
    if way == "nccl" and day.n_devices < 2:
        raise Skip("NCCL needs a GPU per rank, and there is one GPU")


def presets_as_on_the_cpu(way: str):
    """Every preset on two ranks, its losses beside those of the CPU."""
    def step(day: Day, found: Found):
        refuse_shared(day, way)
        # small in any case: float32 sums of a large graph differ by more than the tolerance
        path = day.folder / "small-2.h5"
        small = day.folder / "small.h5"
        hpcgcn = [sys.executable, "-m", "hpcgcn"]
        if not path.exists():
            day.run("generate-small", [*hpcgcn, "generate", "sbm", "-o", small, "--nodes", 120,
                                       "--degree", 8, "--features", 12, "--classes", 4], 120)
            day.run("partition-small", [*hpcgcn, "partition", small, "-n", 2, "-o", path], 120)
        # presets are many: the rehearsal tries some, tests/cuda/test_train.py all of them
        chosen = ["overlap", "sylvie-a"] if day.rehearsal else []
        printed = day.run(f"presets-{way}", day.mpi(
            2, sys.executable, ROOT / "tests" / "cuda" / "run_presets.py", path, way, *chosen),
            1800, **WAYS[way][1])
        lines = [line for line in printed.splitlines() if f" {way} " in line]
        found.printed = "\n".join(lines)
        found.notes.append(f"{sum('largest difference' in line for line in lines)} presets: "
                           f"losses of 5 epochs equal the CPU's to {TOLERANCE:g}.")
    return step


def ways_of_messages(day: Day, found: Found):
    """The same training with the messages in every way; those that cannot run here are named."""
    n_ranks = ranks_of_ways(day)
    cpu = train(day, n_ranks, "cpu", "--backend", "native", "--threads", "1")
    table = Table(["messages", "ms per epoch", "ms waiting, per rank", "largest difference of a "
                   "loss from the CPU's"], [])
    found.tables.append(table)
    found.notes.append(f"{n_ranks} ranks, {day.n_devices} GPUs.")
    wrong, failed = [], []
    for way, (flags, env) in WAYS.items():
        try:
            refuse_shared(day, way)
            got = train(day, n_ranks, way, "--backend", "cuda", *flags, **env)
        except Skip as skip:
            table.rows.append([way, "skipped", str(skip), ""])
            continue
        except Failure as failure:
            failed.append(way)
            table.rows.append([way, "failed", str(failure).splitlines()[0], ""])
            found.printed += f"\n{failure}"
            continue
        difference = max(abs(a - b) for a, b in zip(cpu["losses"], got["losses"]))
        used = got["summary"]["messages"]
        if used != way or not difference <= allowed(cpu["losses"]):
            wrong.append(f"{way}: used {used}, difference {difference:.1e}")
        table.rows.append([way, f"{got['seconds'] * 1e3:.1f}", f"{got['wait'] * 1e3:.1f}",
                           f"{difference:.1e}"])
    table.rows.append(["none: CPU, 1 thread per rank", f"{cpu['seconds'] * 1e3:.1f}",
                       f"{cpu['wait'] * 1e3:.1f}", ""])
    if wrong or failed:
        raise Failure("; ".join([*wrong, *(f"{way} failed" for way in failed)]))


def allowed(losses: list[float]) -> float:
    """Float32 sums of many rows in another order, amplified by Adam from epoch to epoch: one
    thousandth of the loss is less than a wrong message and more than that."""
    return 1e-3 * max(abs(loss) for loss in losses)


def graphs(day: Day, found: Found):
    """The epoch launched kernel by kernel, and recorded and replayed, on one GPU."""
    table = Table(["epoch", "ms"], [])
    found.tables.append(table)
    runs = {name: train(day, 1, f"graphs-{name}", "--backend", "cuda", "--dropout", "0.4", *flags)
            for name, flags in (("kernel by kernel", ()), ("as one graph", ("--cuda-graphs",)))}
    for name, run in runs.items():
        table.rows.append([name, f"{run['seconds'] * 1e3:.2f}"])
    plain, replayed = (run["losses"] for run in runs.values())
    if plain != replayed:
        raise Failure(f"losses differ by up to {max(abs(a - b) for a, b in zip(plain, replayed))}: "
                      "a replayed epoch does the same operations and must give the same bits")
    found.notes.append("The losses are the same to the last bit.")


def scaling(day: Day, found: Found):
    """The epoch on 1, 2, 4 ... GPUs of this node."""
    counts = [n for n in (1, 2, 4, 8, 16) if n <= day.n_devices]
    counts += [day.n_devices] if day.n_devices not in counts else []
    counts = counts[:day.size(len(counts), 2)]
    table = Table(["GPUs", "ms per epoch", "times as fast as one", "efficiency"], [])
    found.tables.append(table)
    alone = 0.0
    for n in counts:
        seconds = train(day, n, f"scaling-{n}", "--backend", "cuda", "--mpi", "auto",
                        **CUDA_AWARE)["seconds"]
        alone = alone or seconds
        table.rows.append([str(n), f"{seconds * 1e3:.1f}", f"{alone / seconds:.2f}",
                           f"{alone / seconds / n:.0%}"])
    if len(counts) == 1:
        found.notes.append("There is one GPU: nothing to compare with.")
