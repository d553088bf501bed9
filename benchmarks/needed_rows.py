"""Epochs with 1 % training nodes, on needed rows alone and on all rows: time, arithmetic, memory.

    python benchmarks/needed_rows.py one        one rank: about 2 minutes
    sudo --preserve-env=PATH python benchmarks/needed_rows.py lab
                                                two lab hosts at 1 Gb/s: about 2 minutes
    sudo --preserve-env=PATH python benchmarks/needed_rows.py headline
                                                four lab hosts at 50 Mb/s, with 1-bit messages:
                                                about 9 minutes
    sudo --preserve-env=PATH python benchmarks/needed_rows.py targets
                                                the same for stale methods, too, at three rates:
                                                about 40 minutes

3-layer GraphSAGE on a block model. "before" is --no-needed-rows --halo rows. Runs of both take
turns, with two evaluations each, which count for memory and not for seconds. Finished runs to a
target are kept in --work and not repeated. Writes
benchmarks/results/needed-rows-<part>.md and .json. Needs a machine that does nothing else; the lab
parts need root.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

from common import markdown_table, write_results
from network import BITS, LAB, QUEUE_SECONDS, ROOT

BEFORE = ["--no-needed-rows", "--halo", "rows"]
MODEL = ["--model", "sage", "--layers", "3", "--hidden", "128", "--threads", "1"]
GRAPH = {"nodes": 60000, "degree": 20, "features": 128, "classes": 16}
# The headline trains to a target: about 40 training nodes per class to learn from.
HEADLINE = {"nodes": 30000, "degree": 20, "features": 128, "classes": 16}
HEADLINE_TRAIN = 0.02
WAYS = {"before": BEFORE, "now": []}
TO_TARGET = {"vanilla, before": ["--method", "vanilla", *BEFORE],
             "vanilla": ["--method", "vanilla"],
             "1 bit (sylvie-s), before": ["--method", "sylvie-s", *BEFORE],
             "1 bit (sylvie-s)": ["--method", "sylvie-s"]}
STALE = {name: ["--method", name] for name in ("pipegcn", "pipegcn-paper", "sylvie-a",
                                               "sylvie-paper")}
EVAL_EVERY, TARGET_GAP = 2, 0.005
RATES = {"headline": ("50mbit",), "targets": ("1gbit", "200mbit", "50mbit")}


def hpcgcn(*arguments) -> list[str]:
    return [sys.executable, "-m", "hpcgcn", *map(str, arguments)]


def make_graph(work: pathlib.Path, name: str, shape: dict, train: float,
               options: tuple = ()) -> pathlib.Path:
    """The graph file, made once."""
    work.mkdir(parents=True, exist_ok=True)
    path = work / f"{name}.h5"
    if not path.exists():
        sizes = [text for key, value in shape.items() for text in (f"--{key}", value)]
        subprocess.run(hpcgcn("generate", "sbm", "-o", path, *sizes, "--train", train, *options),
                       check=True)
    return path


def parts_of(graph: pathlib.Path, n_parts: int, method: str) -> pathlib.Path:
    path = graph.with_name(f"{graph.stem}-{n_parts}-{method}.h5")
    if not path.exists():
        subprocess.run(hpcgcn("partition", graph, "-n", n_parts, "--method", method, "-o", path),
                       check=True, stdout=subprocess.DEVNULL)
    return path


def run(work: pathlib.Path, source: pathlib.Path, options: list[str], epochs: int, eval_every: int,
        hosts: int = 1, rate: str = "none") -> dict:
    """What a run leaves: its rows of metrics and its summary."""
    folder = work / "runs" / "run"
    shutil.rmtree(folder, ignore_errors=True)
    command = hpcgcn("train", source, *MODEL, *options, "--epochs", epochs, "--eval-every",
                     eval_every, "--checkpoint-every", 0, "--quiet", "--output", work / "runs",
                     "--name", "run")
    if hosts > 1:
        lab = [str(LAB), "--hosts", str(hosts), "--rate", rate]
        if BITS[rate]:
            buffer = max(int(BITS[rate] / 8 * QUEUE_SECONDS), 1 << 16)
            lab += ["--mpi-options", f"--mca btl_tcp_sndbuf {buffer}"]
        command = [*lab, "--", *command]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}\n{done.stderr}")
    with open(folder / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    return {"rows": rows, "summary": json.loads((folder / "summary.json").read_text())}


def epoch_costs(found: dict) -> dict:
    """Seconds of the median epoch without the first two, bytes, multiply-adds, memory."""
    summary = found["summary"]
    return {"seconds": statistics.median(float(row["seconds"]) for row in found["rows"][2:]),
            "bytes": int(found["rows"][-1]["bytes_sent"]),
            "multiply_adds": summary["multiply_adds"]["all_ranks"],
            "memory": summary["peak_memory_bytes"]["largest_rank"],
            "loss": float(found["rows"][-1]["loss"])}


def compare(args, name: str, title: str, source, hosts: int, rate: str):
    """Both ways in turn."""
    runs: dict[str, list[dict]] = {way: [] for way in WAYS}
    for _ in range(args.rounds):
        for way, options in WAYS.items():
            runs[way].append(epoch_costs(run(args.work, source, options, args.epochs,
                                             args.epochs // 2, hosts, rate)))
            print(way, runs[way][-1], flush=True)
    middle = {way: {key: statistics.median(one[key] for one in found) for key in found[0]}
              for way, found in runs.items()}
    table = [[way, f"{found['seconds']:.3f}", f"{found['multiply_adds'] / 1e6:.0f}",
              f"{found['bytes'] / 1e6:.2f}", f"{found['memory'] / 2 ** 20:.0f}",
              f"{found['loss']:.6f}"] for way, found in middle.items()]
    faster = middle["before"]["seconds"] / middle["now"]["seconds"]
    write_results(f"needed-rows-{name}", title, f"python benchmarks/needed_rows.py {name}", [
        f"An epoch is {faster:.2f} times as fast. Medians of {args.rounds} runs of {args.epochs} "
        f"epochs, in turn; {GRAPH['nodes']:,} nodes, degree {GRAPH['degree']}.",
        markdown_table(["", "seconds per epoch", "million multiply-adds", "MB sent per epoch",
                        "MiB, largest rank", "last loss"], table)], {"runs": runs})


def to_target(args):
    """Bytes and seconds until the validation score is that of vanilla, less half a point."""
    graph = make_graph(args.work, "headline", HEADLINE, HEADLINE_TRAIN,
                       ("--homophily", "0.7", "--feature-noise", "0.7"))
    ways = TO_TARGET | (STALE if args.part == "targets" else {})
    rates = args.rates or RATES[args.part]
    source, table = parts_of(graph, 4, "metis"), []
    kept = args.work / f"to-target-{HEADLINE['nodes']}-{args.score_epochs}.json"
    found = json.loads(kept.read_text()) if kept.exists() else {}
    for key, rate, options in [(f"{rate} {name}", rate, options) for rate in rates
                               for name, options in ways.items()]:
        if key not in found:
            found[key] = run(args.work, source, options, args.score_epochs, EVAL_EVERY, 4,
                             rate)["rows"]
            kept.write_text(json.dumps(found))
        print(key, flush=True)
    target = max(scores(found[f"{rates[0]} vanilla, before"])) - TARGET_GAP
    for rate in rates:
        usual = facts_to_target(found[f"{rate} vanilla, before"], target)
        for name in ways:
            rows = found[f"{rate} {name}"]
            facts = facts_to_target(rows, target)
            table.append([rate, name, facts["epochs"] or f"not in {len(rows)}",
                          f"{facts['bytes'] / 1e6:.1f}", f"{facts['seconds']:.1f}",
                          f"{usual['seconds'] / facts['seconds']:.1f}" if facts["epochs"] else "-",
                          f"{float(rows[-1]['stale_share']):.2f}",
                          f"{max(scores(rows)):.4f}",
                          f"{float(rows[-1]['test']):.4f}"])
    write_results(f"needed-rows-{args.part}", "To a target on four hosts",
                  " ".join(["python benchmarks/needed_rows.py", *sys.argv[1:]]),
                  [f"Target: validation score {target:.4f}, half a point below the best of "
                   f"vanilla; where it is not reached, bytes and seconds are those of all epochs. "
                   f"{HEADLINE['nodes']:,} nodes, degree {HEADLINE['degree']}, "
                   f"{100 * HEADLINE_TRAIN:g} % training nodes, METIS, seed 0, validated every "
                   f"{EVAL_EVERY} epochs. Seconds are those of training.",
                   markdown_table(["rate", "", "epochs", "MB sent", "seconds", "times as fast",
                                   "stale share, last epoch", "best validation", "last test"],
                                  table)],
                  {"rows": {f"{rate} {name}": found[f"{rate} {name}"] for rate in rates
                            for name in ways}, "target": target})


def scores(rows: list[dict]) -> list[float]:
    """Validation scores of the epochs that have one."""
    return [float(row["val"]) for row in rows if row["val"]]


def facts_to_target(rows: list[dict], target: float) -> dict:
    """Epochs (None: never), bytes and seconds until a validation score."""
    reached = next((k for k, row in enumerate(rows, 1)
                    if row["val"] and float(row["val"]) >= target), None)
    return {"epochs": reached, "bytes": sum(int(row["bytes_sent"]) for row in rows[:reached]),
            "seconds": sum(float(row["seconds"]) for row in rows[:reached])}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("one", "lab", *RATES))
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--score-epochs", type=int, default=60)
    parser.add_argument("--rates", nargs="+", choices=RATES["targets"])
    parser.add_argument("--scale", type=float, default=1.0, help="of the graphs' nodes, for a try")
    parser.add_argument("--work", type=pathlib.Path,
                        default=pathlib.Path(tempfile.gettempdir()) / "hpcgcn-needed-rows")
    args = parser.parse_args()
    for shape in (GRAPH, HEADLINE):
        shape["nodes"] = int(shape["nodes"] * args.scale)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if args.part in RATES:
        return to_target(args)
    graph = make_graph(args.work, "one-per-cent", GRAPH, 0.01)
    title = "3-layer GraphSAGE with 1 % training nodes: all rows, and those that the loss needs"
    if args.part == "one":
        return compare(args, "one", title, graph, 1, "none")
    return compare(args, "lab", f"{title}; two hosts at 1 Gb/s", parts_of(graph, 2, "metis"), 2,
                   "1gbit")


if __name__ == "__main__":
    main()
