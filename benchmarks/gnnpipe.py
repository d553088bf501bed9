"""Layers across ranks against parts across ranks: epochs by depth over links with a rate, bytes
against the formulas, memory.

    sudo --preserve-env=PATH python benchmarks/gnnpipe.py              a quarter of an hour
    sudo --preserve-env=PATH python benchmarks/gnnpipe.py --minutes 3  the next three minutes of it
    sudo --preserve-env=PATH python benchmarks/gnnpipe.py --rates 100mbit --layouts 2x2 --layers 32

Hosts are those of jobs/lab/hosts; a layout is hosts x ranks on each. The graph is a block model cut
at random, the worst case for parts: nearly every node is read by every other part. Finished runs
are kept in results/gnnpipe.jsonl and not repeated on the same processor. Writes
benchmarks/results/gnnpipe.md. Needs root, and a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import csv
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from common import RESULTS, machine, markdown_table, write_results

ROOT = pathlib.Path(__file__).resolve().parents[1]
LAB = ROOT / "jobs" / "lab" / "hosts"
DEPTHS = (4, 8, 16, 32, 64, 128)
LAYOUTS = {"2x1": (2, 1), "4x1": (4, 1), "2x2": (2, 2)}
METHODS = ("vanilla", "overlap", "gnnpipe", "gnnpipe-hybrid")
BITS = {"none": 0, "1gbit": 10 ** 9, "100mbit": 10 ** 8}
WARM_UP, EPOCHS, SLOW_EPOCHS, WIDTH = 1, 3, 1, 64
# from here on an epoch of parts over a limited link takes 5 to 20 s, alike each time
SLOW_LAYERS = 64
MEMORY_LAYERS = (32, 64)
# Snapshots must have been taken, or their pages would not count yet.
MEMORY_METHODS = ("overlap", "gnnpipe --history-hold 2", "gnnpipe --history-hold 2 --no-recompute",
                  "gnnpipe-hybrid --history-hold 2")
QUEUE_SECONDS = 0.01                     # of the link's rate, kept in the kernel's send buffer
SIZES = {"speed": ["--nodes", "4000", "--degree", "20"],
         "memory": ["--nodes", "20000", "--degree", "20"]}
MODEL = ["--model", "gcnii", "--hidden", WIDTH, "--dropout", 0.5, "--lr", 0.01]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layouts", nargs="+", choices=tuple(LAYOUTS), default=["2x1", "2x2"])
    parser.add_argument("--rates", nargs="+", choices=tuple(BITS), default=["none", "100mbit"])
    parser.add_argument("--layers", nargs="+", type=int, default=list(DEPTHS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--no-memory", action="store_true",
                        help="leave out the runs that compare memory")
    parser.add_argument("--minutes", type=float, default=float("inf"),
                        help="begin no run after this time; call again to go on")
    parser.add_argument("--table", action="store_true", help="only write the page of what is done")
    parser.add_argument("--work", type=pathlib.Path,
                        default=pathlib.Path(tempfile.gettempdir()) / "hpcgcn-gnnpipe-depth")
    return parser.parse_args()


MEMORY_TEXT = (
    f"Bytes per node and layer: the difference of {MEMORY_LAYERS[1]} and {MEMORY_LAYERS[0]} "
    "layers, over the layers and nodes that a rank holds. A pipeline keeps three arrays a GCNII "
    f"layer, {3 * 4 * WIDTH} bytes per node: what the gradient of the weights reads; the rows that "
    "neighbours gather from, and in backward their gradients in the same place; the snapshot. "
    "With `--no-recompute` activations are not made again in backward, and the gradients have a "
    "fourth. Exchanges among partitions of a stage and parts add buffers.")


# -- runs ------------------------------------------------------------------------------------------

def command(*args) -> list[str]:
    return [sys.executable, "-m", "hpcgcn", *map(str, args)]


def graph_file(work: pathlib.Path, size: str, n_parts: int) -> tuple[pathlib.Path, pathlib.Path]:
    """(graph, its parts cut at random), made once."""
    work.mkdir(parents=True, exist_ok=True)
    graph, parts = work / f"{size}.h5", work / f"{size}-{n_parts}.h5"
    if not graph.exists():
        subprocess.run(command("generate", "sbm", "-o", graph, *SIZES[size], "--features", 64,
                               "--classes", 16), check=True, stdout=subprocess.DEVNULL)
    if not parts.exists():
        subprocess.run(command("partition", graph, "-n", n_parts, "--method", "random", "-o",
                               parts), check=True, stdout=subprocess.DEVNULL)
    return graph, parts


def key_of(run: dict) -> tuple:
    return tuple(run[name] for name in ("size", "layout", "rate", "layers", "method"))


def done_runs() -> list[dict]:
    """On this processor: times of two are not to be compared."""
    path = RESULTS / "gnnpipe.jsonl"
    runs = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [run for run in runs if run["processor"] == machine()["cpu"]]


def epochs_of(run: dict) -> int:
    """Epochs that count."""
    slow = (run["rate"] != "none" and run["layers"] >= SLOW_LAYERS
            and not run["method"].startswith("gnnpipe"))
    return SLOW_EPOCHS if slow or run["size"] == "memory" else EPOCHS


def train(args: argparse.Namespace, run: dict):
    """One run on lab hosts; its costs are kept."""
    hosts, per_host = LAYOUTS[run["layout"]]
    graph, parts = graph_file(args.work, run["size"], hosts * per_host)
    # A hybrid's partitions are parts; a pure pipeline makes its own chunks of the graph.
    source = graph if run["method"].startswith("gnnpipe") else parts
    more = ["--partition-method", "random"] if run["method"].startswith("gnnpipe-hybrid") else []
    folder = args.work / "runs" / "-".join(map(str, key_of(run))).replace(" ", "-")
    shutil.rmtree(folder, ignore_errors=True)
    bits = BITS[run["rate"]]
    options = ["--hosts", hosts, "--ranks-per-host", per_host, "--rate", run["rate"]]
    options += ["--mpi-options", "--mca btl_tcp_sndbuf "
                                 f"{max(int(bits / 8 * QUEUE_SECONDS), 1 << 16)}"] if bits else []
    line = command("train", source, *MODEL, "--layers", run["layers"], "--method",
                   *run["method"].split(), *more, "--epochs", WARM_UP + epochs_of(run),
                   "--eval-every", 0, "--checkpoint-every", 0, "--threads", 1, "--quiet",
                   "--output", folder.parent, "--name", folder.name)
    print(f"{folder.name} ...", file=sys.stderr, flush=True)
    done = subprocess.run([LAB, *map(str, options), "--", *line], capture_output=True, text=True,
                          cwd=ROOT)
    if done.returncode:
        sys.exit(f"{' '.join(line)} failed with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    with open(folder / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))[WARM_UP:]
    summary = json.loads((folder / "summary.json").read_text())
    found = run | {"processor": machine()["cpu"], "epochs": len(rows),
                   "epoch_seconds": statistics.median(float(row["seconds"]) for row in rows),
                   "bytes": statistics.fmean(int(row["bytes_sent"]) for row in rows),
                   "compute_seconds": statistics.fmean(float(row["compute_seconds"])
                                                       for row in rows) / summary["ranks"],
                   "nodes": summary["nodes"], "halo_rows": summary["halo_rows"],
                   "pipeline": summary.get("pipeline"),
                   "peak_memory": summary["peak_memory_bytes"]["largest_rank"]}
    with open(RESULTS / "gnnpipe.jsonl", "a") as file:
        file.write(json.dumps(found) + "\n")


def wanted_runs(args: argparse.Namespace) -> list[dict]:
    runs = [{"size": "speed", "layout": layout, "rate": rate, "layers": layers, "method": method}
            for rate in args.rates for layout in args.layouts for layers in args.layers
            for method in METHODS if method in args.methods and layers >= _ranks(layout)
            and not (method == "gnnpipe-hybrid" and layout == "2x1")]
    if "none" in args.rates and not args.no_memory:
        runs += [{"size": "memory", "layout": layout, "rate": "none", "layers": layers,
                  "method": method} for layers in reversed(MEMORY_LAYERS) for layout in args.layouts
                 for method in MEMORY_METHODS
                 if not (method.startswith("gnnpipe-hybrid") and layout == "2x1")]
    return runs


def _ranks(layout: str) -> int:
    hosts, per_host = LAYOUTS[layout]
    return hosts * per_host


# -- report ----------------------------------------------------------------------------------------

def formula_bytes(run: dict) -> float:
    """Bytes of an epoch: rows of the boundary in every layer and direction; or GCNII's two arrays
    from stage to stage."""
    if not run["method"].startswith("gnnpipe"):
        return 2 * run["layers"] * run["halo_rows"] * WIDTH * 4
    stages = run["pipeline"]["stages"]
    between = 2 * 2 * (stages - 1) * run["nodes"] * WIDTH * 4
    return between + (2 * run["layers"] * run["halo_rows"] * WIDTH * 4
                      if run["pipeline"]["partitions_per_stage"] > 1 else 0)


def depth_table(runs: list[dict], layout: str, rate: str) -> str:
    """Epochs by depth; each method beside vanilla."""
    mine = {(r["layers"], r["method"]): r
            for r in runs if (r["size"], r["layout"], r["rate"]) == ("speed", layout, rate)}
    methods = [m for m in METHODS if any(method == m for _, method in mine)]
    lines = []
    for layers in sorted({layers for layers, _ in mine}):
        cells = [layers]
        for method in methods:
            run, plain = mine.get((layers, method)), mine.get((layers, "vanilla"))
            ratio = (f" ({run['epoch_seconds'] / plain['epoch_seconds']:.2f})" if run
                     and plain else "")
            cells.append(f"{1e3 * run['epoch_seconds']:.0f}{ratio}" if run else "-")
        lines.append(cells)
    return markdown_table(["layers", *(f"{m}, ms" for m in methods)], lines)


def crossover(runs: list[dict], layout: str, rate: str) -> str:
    """From which depth on pipelines are faster than parts."""
    mine = {(r["layers"], r["method"]): r["epoch_seconds"] for r in runs
            if (r["size"], r["layout"], r["rate"]) == ("speed", layout, rate)}
    sentences = []
    for method, name in (("gnnpipe", "The pure pipeline"), ("gnnpipe-hybrid", "The hybrid")):
        texts = [_faster_from(mine, method, rival) for rival in ("vanilla", "overlap")
                 if any((layers, rival) in mine for layers, m in mine if m == method)]
        sentences += [f"{name} is {' and '.join(texts)}."] if texts else []
    return " ".join(sentences)


def _faster_from(mine: dict, method: str, rival: str) -> str:
    depths = sorted(layers for layers, m in mine if m == rival and (layers, method) in mine)
    won = [layers for layers in depths if mine[layers, method] < mine[layers, rival]]
    first = next((d for d in depths if all(x in won for x in depths if x >= d)), None)
    return (f"faster than {rival} from {first} layers on" if first
            else f"not faster than {rival} at the largest depth tried")


def bytes_table(runs: list[dict]) -> str:
    """Bytes do not depend on the rate of the link; a bubble does, and is that of the fastest."""
    chosen = [r for r in runs if r["size"] == "speed" and r["method"] != "overlap"]
    chosen.sort(key=lambda r: BITS[r["rate"]] or float("inf"))
    unique = {(r["layout"], r["layers"], r["method"]): r for r in chosen}
    header = ["ranks, layers, method", "MB per epoch", "formula", "M/N", "bubble %",
              "(S-1)/(K+S-1) %", "slowest stage / mean"]
    return markdown_table(header, [[
        f"{_ranks(layout)}, {layers}, {method}", f"{r['bytes'] / 1e6:.3f}",
        f"{formula_bytes(r) / 1e6:.3f}", f"{r['halo_rows'] / r['nodes']:.2f}" if r["halo_rows"]
        else "-", *((f"{100 * r['pipeline']['bubble_measured']:.0f}",
                     f"{100 * r['pipeline']['bubble_predicted']:.0f}",
                     f"{r['pipeline']['balance']:.2f}") if r["pipeline"] else ("-", "-", "-"))]
                                   for (layout, layers, method), r in sorted(unique.items())])


def memory_table(runs: list[dict]) -> str:
    """Peak memory, and what a layer adds to it."""
    mine = {(_ranks(r["layout"]), r["method"], r["layers"]): r
            for r in runs if r["size"] == "memory"}
    few, many = MEMORY_LAYERS
    lines = []
    for (ranks, method, layers), run in mine.items():
        less = mine.get((ranks, method, few))
        if layers == many:
            # Stages share layers, their partitions share nodes: a rank holds this many rows more.
            rows = run["nodes"] * (many - few) / ranks
            lines.append([ranks, method, f"{run['peak_memory'] / 2 ** 20:.0f}",
                          f"{(run['peak_memory'] - less['peak_memory']) / rows:.0f}" if less
                          else "-"])
    return markdown_table(["ranks", "method", "peak memory of a rank, MiB",
                           "bytes per node and layer"], lines)


def write_page():
    """What is done so far."""
    runs = done_runs()
    sections = [f"`{' '.join(map(str, MODEL))}`, graph `hpcgcn generate sbm "
                f"{' '.join(SIZES['speed'])}`, cut at random. Medians of {EPOCHS} epochs after "
                f"the first (parts with {SLOW_LAYERS} layers and more over a limited link: "
                f"{SLOW_EPOCHS}); in brackets the time over vanilla's of the same depth. A "
                "layout is hosts x ranks on each; ranks share the cores."]
    for layout, rate in sorted({(r["layout"], r["rate"]) for r in runs if r["size"] == "speed"}):
        title = f"## Layout {layout}, rate of a link: {rate}"
        sections += [title, depth_table(runs, layout, rate), crossover(runs, layout, rate)]
    sections += ["## Bytes, bubble and balance",
                 "The bubble is that over unlimited links, where both were tried. Where ranks "
                 "outnumber the cores, waiting for a core is part of it.", bytes_table(runs)]
    if any(r["size"] == "memory" for r in runs):
        sections += [f"## Memory with {MEMORY_LAYERS[1]} layers, {' '.join(SIZES['memory'])}",
                     memory_table(runs), MEMORY_TEXT]
    page = write_results("gnnpipe", "Pipelines of layers", "python benchmarks/gnnpipe.py", sections,
                         {"model": list(map(str, MODEL)), "runs": runs})
    print(page.read_text())


def main():
    args = parse_arguments()
    RESULTS.mkdir(exist_ok=True)
    began = time.monotonic()
    for run in [] if args.table else wanted_runs(args):
        if key_of(run) in {key_of(done) for done in done_runs()}:
            continue
        if time.monotonic() - began > 60 * args.minutes:
            print("not all is done: call again", file=sys.stderr)
            break
        train(args, run)
    write_page()


if __name__ == "__main__":
    main()
