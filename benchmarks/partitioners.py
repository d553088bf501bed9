"""Partitioners side by side: cut, halo rows, rows with partial sums, balance, seconds and memory.

    python benchmarks/partitioners.py                       generated graphs, about 10 minutes
    HPCGCN_TEST_DATA=... python benchmarks/partitioners.py  and public ones
    python benchmarks/partitioners.py --nodes 10000 --parts 4  a rehearsal

Every division is a process (or a job) of its own, which reads the graph file in blocks. Memory is
the growth of its resident set while it divides, summed over ranks and the processes it starts.
METIS for volume is left out beyond --volume-entries: it takes ten times as long.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

import numpy as np
from common import markdown_table, write_results

PUBLIC = {"pubmed": ["planetoid", "planetoid", "--name", "pubmed"],
          "coauthor-physics": ["npz", "npz/coauthor-physics.npz"],
          "wordnet3": ["npz", "npz/wordnet3-lex45.npz"],
          "tolokers": ["npz", "heterophilous/tolokers.npz"]}
GENERATED = {"block model, 80 % within": ["sbm", "--degree", "20", "--communities", "20",
                                          "--homophily", "0.8"],
             "block model, 98 % within": ["sbm", "--degree", "20", "--communities", "20",
                                          "--homophily", "0.98"],
             "R-MAT": ["rmat", "--degree", "16"], "grid": ["grid", "--degree", "4"]}
METHODS = [("metis", "cut", 1), ("metis", "volume", 1), ("kaminpar", "cut", 1),
           ("streaming", "cut", 1), ("labels", "cut", 1), ("labels", "cut", 2),
           ("labels", "cut", 4)]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--parts", type=int, nargs="+", default=[4, 16, 64])
    parser.add_argument("--graphs", nargs="+", choices=[*PUBLIC, *GENERATED],
                        default=[*PUBLIC, *GENERATED])
    parser.add_argument("--volume-entries", type=int, default=600_000)
    parser.add_argument("--no-write", action="store_true",
                        help="print the tables, leave benchmarks/results alone")
    parser.add_argument("--divide", nargs=4, help=argparse.SUPPRESS)
    return parser.parse_args()


# -- one division, in a process of its own ---------------------------------------------------------

def status(name: str) -> int:
    """A number of /proc/self/status, in bytes."""
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(name))


def divide(path: str, n_parts: int, method: str, objective: str):
    """Divide, and print what it took as a line of JSON."""
    import resource
    import time
    from dataclasses import replace

    from hpcgcn.graph.divide import open_graph
    from hpcgcn.graph.partition import statistics, task_of
    from hpcgcn.graph.partitioners.base import Alone
    from hpcgcn.graph.partitioners.choose import choose_parts
    ranks, comm = Alone(), None
    if method == "labels" and "OMPI_COMM_WORLD_SIZE" in os.environ:
        from hpcgcn.mpi.ranks import Ranks
        from hpcgcn.mpi.world import world
        comm = world()
        ranks = Ranks(comm)
    with open_graph(path, checked=False) as graph:
        # Libraries are loaded by a division that does not count.
        few = slice(0, 200)
        tiny = replace(graph, indptr=np.arange(201), indices=np.roll(np.arange(200), 1),
                       split=graph.split[:, few], directed=True)
        choose_parts(task_of(tiny, 2, method, objective, ranks=ranks), method, True)
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")                          # the peak starts again from here
        before, began = status("VmRSS"), time.perf_counter()
        chosen = choose_parts(task_of(graph, n_parts, method, objective, ranks=ranks), method, True)
        seconds = time.perf_counter() - began
        # Others start processes only to load libraries.
        children = (resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
                    if method == "kaminpar" else 0)
        grown = int(ranks.sum(np.array([max(status("VmHWM") - before, 0) + children]))[0])
        if ranks.rank:
            return
        costs = statistics(graph, chosen.parts)
    last = costs["hops_from_loss"][-1]
    print("DIVIDED " + json.dumps({
        "cut": costs["edge_cut_share"], "halo": costs["halo_ratio"],
        "cover": last["cover"] / costs["n_nodes"], "balance": costs["balance"]["nodes"],
        "seconds": seconds, "bytes_per_entry": grown / max(1, costs["n_edges"]),
        "entries": costs["n_edges"], "nodes": costs["n_nodes"]}))


# -- all of them -----------------------------------------------------------------------------------

def hpcgcn(*words: str):
    subprocess.run([sys.executable, "-m", "hpcgcn", *words], check=True,
                   stdout=subprocess.DEVNULL)


def graphs(args, folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Name and file of each graph."""
    paths = {}
    data = os.environ.get("HPCGCN_TEST_DATA")
    for name, words in PUBLIC.items() if data else ():
        if name not in args.graphs:
            continue
        paths[name] = folder / f"{name}.h5"
        hpcgcn("import", words[0], str(pathlib.Path(data, words[1])), *words[2:],
               "-o", str(paths[name]))
    for name, words in GENERATED.items():
        if name not in args.graphs:
            continue
        paths[name] = folder / f"{words[0]}-{len(paths)}.h5"
        hpcgcn("generate", *words, "--nodes", str(args.nodes), "--features", "1", "-o",
               str(paths[name]))
    return paths


def divided(path: pathlib.Path, n_parts: int, method: str, objective: str, n_ranks: int) -> dict:
    command = [sys.executable, __file__, "--divide", str(path), str(n_parts), method, objective]
    if n_ranks > 1:
        mpiexec = shlex.split(os.environ.get("MPIEXEC", "mpiexec"))
        command = [*mpiexec, "-n", str(n_ranks), *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    lines = [line for line in done.stdout.splitlines() if line.startswith("DIVIDED ")]
    if not lines:
        sys.exit(f"{shlex.join(command)} failed:\n{done.stderr[-2000:]}")
    return json.loads(lines[0].removeprefix("DIVIDED "))


def measure(args, name: str, path: pathlib.Path) -> list[dict]:
    from hpcgcn.graph.partitioners import PARTITIONERS
    from hpcgcn.graph.store import header
    n_edges, measured = header(path)["n_edges"], []
    for n_parts in args.parts:
        for method, objective, n_ranks in METHODS:
            too_long = objective == "volume" and n_edges > args.volume_entries
            if too_long or PARTITIONERS[method].missing():
                continue
            measured.append({"graph": name, "parts": n_parts, "method": method,
                             "objective": objective, "ranks": n_ranks,
                             **divided(path, n_parts, method, objective, n_ranks)})
        print(name, n_parts, {label(m): f"{m['halo']:.3f}" for m in measured
                              if m["parts"] == n_parts}, flush=True)
    return measured


def label(one: dict) -> str:
    words = {"metis": f"METIS, {one['objective']}", "kaminpar": "KaMinPar",
             "streaming": "streaming",
             "labels": f"labels, {one['ranks']} rank" + "s" * (one["ranks"] > 1)}
    return words[one["method"]]


def table(measured: list[dict]) -> str:
    rows = [[m["parts"], label(m), f"{m['cut']:.4f}", f"{m['halo']:.3f}", f"{m['cover']:.3f}",
             f"{m['balance']:.3f}", f"{m['seconds']:.2f}", f"{m['bytes_per_entry']:.0f}"]
            for m in measured]
    return markdown_table(["parts", "partitioner", "cut", "halo / N", "with sums / N",
                           "max/mean nodes", "s", "bytes per entry"], rows)


def against_metis(measured: list[dict]) -> str:
    """Geometric means of halo rows and seconds over those of METIS (cut)."""
    base = {(m["graph"], m["parts"]): m for m in measured if label(m) == "METIS, cut"}
    rows = []
    for name in dict.fromkeys(label(m) for m in measured):
        pairs = [(m, base[m["graph"], m["parts"]]) for m in measured if label(m) == name]
        ratios = [np.exp(np.mean([np.log(one[key] / other[key]) for one, other in pairs
                                  if one[key] > 0 and other[key] > 0]))
                  for key in ("cut", "halo", "cover", "seconds", "bytes_per_entry")]
        rows.append([name, len(pairs), *(f"{ratio:.2f}" for ratio in ratios)])
    return markdown_table(["partitioner", "divisions", "cut", "halo", "with sums", "seconds",
                           "memory"], rows)


def main():
    args = arguments()
    if args.divide:
        path, n_parts, method, objective = args.divide
        divide(path, int(n_parts), method, objective)
        return
    measured = []
    with tempfile.TemporaryDirectory() as folder:
        for name, path in graphs(args, pathlib.Path(folder)).items():
            measured += measure(args, name, path)
            write(args, measured)                    # what is measured is kept


def write(args, measured: list[dict]):
    sections = ["Rows that hops exchange when the loss needs all of them: halo rows, and with "
                "partial sums where these are fewer. Seconds on a machine with other work.",
                "Times METIS (cut), geometric means:", against_metis(measured)]
    for name in dict.fromkeys(m["graph"] for m in measured):
        own = [m for m in measured if m["graph"] == name]
        sections += [f"{name}: {own[0]['nodes']:,} nodes, {own[0]['entries']:,} entries",
                     table(own)]
    if args.no_write:
        print("\n\n".join(sections))
        return
    command = " ".join(["python benchmarks/partitioners.py", shlex.join(sys.argv[1:])])
    write_results("partitioners", "Partitioners", command, sections, {"divisions": measured})


if __name__ == "__main__":
    main()
