"""Hosts with several ranks: what crosses the network with a part per rank, with rows sent once per
host, and with a part per host whose ranks divide the columns.

    python benchmarks/hosts.py rows                     rows of one exchange, from the partitions
    python benchmarks/hosts.py bytes                    bytes per epoch of real runs on 4 ranks
    sudo --preserve-env=PATH python benchmarks/hosts.py time     epochs on lab hosts

Each writes benchmarks/results/hosts-<part>.md and .json. `rows` and `bytes` are counts: they need
no quiet machine, and minutes. `time` runs two hosts of jobs/lab/hosts with two ranks each at
200 Mb/s: about 10 minutes on a machine that does nothing else, as root.
"""

from __future__ import annotations

import argparse
import csv
import pathlib
import statistics
import subprocess
import sys
import tempfile

import h5py
import numpy as np
from common import markdown_table, write_results
from mixgcn_job import run_jobs

ROOT = pathlib.Path(__file__).resolve().parents[1]
LAB = ROOT / "jobs" / "lab" / "hosts"
SHAPES = ((2, 2), (2, 4), (4, 2), (4, 4), (8, 4))            # hosts, ranks on each
STRATEGIES = {"a part per rank": {"parallel": "partition"},
              "once per host": {"parallel": "partition", "once_per_host": True},
              "a part per host": {"parallel": "hosts"}}
METHODS = {"overlap": [], "pipegcn": ["--method", "pipegcn"], "sylvie-s": ["--method", "sylvie-s"]}
MODEL = ["--model", "sage", "--layers", "3", "--hidden", "128", "--dropout", "0.5"]
TIMED = ["--nodes", "40000", "--degree", "50", "--features", "128", "--classes", "16"]
RATE, BITS = "200mbit", 2 * 10 ** 8
WARM_UP = 2                          # epochs that do not count


def graphs() -> dict:
    """A dense one, a power law, one that falls into parts."""
    from hpcgcn.graph.generate import generate_grid, generate_rmat, generate_sbm
    return {"block model, degree 30": generate_sbm(20000, 30, 64, 8, seed=0),
            "R-MAT, degree 12": generate_rmat(16384, 12, 64, 8, seed=0),
            "grid, degree 8": generate_grid(20736, 8, 64, 8, seed=0)}


# -- rows ------------------------------------------------------------------------------------------

def rows_across(graph, part: np.ndarray, per_host: int) -> tuple[int, int]:
    """Rows that one exchange sends to other hosts: once per rank that reads them, and once per
    host; part: of each node, host after host."""
    readers = np.repeat(np.arange(graph.n_nodes), np.diff(graph.indptr))
    source, rank = graph.indices.astype(np.int64), part[readers].astype(np.int64)
    away = part[source] // per_host != rank // per_host
    n_parts = int(part.max()) + 1
    once_per_rank = np.unique(source[away] * n_parts + rank[away])
    return len(once_per_rank), len(np.unique(source[away] * n_parts + rank[away] // per_host))


def count_rows(args):
    from hpcgcn.graph.partition import partition_graph
    lines, data = [], []
    for name, graph in graphs().items():
        for hosts, per_host in SHAPES:
            plain, once = rows_across(graph, partition_graph(graph, hosts * per_host), per_host)
            columns, _ = rows_across(graph, partition_graph(graph, hosts), 1)
            data.append({"graph": name, "hosts": hosts, "ranks_per_host": per_host,
                         "nodes": graph.n_nodes, "part_per_rank": plain, "once_per_host": once,
                         "part_per_host": columns})
            lines.append([f"{name}, {hosts} hosts of {per_host}", plain, once, columns,
                          f"{once / plain:.2f}", f"{columns / plain:.2f}"])
    page = write_results("hosts-rows", "Rows that cross the network", "python benchmarks/hosts.py "
                         "rows", ["""\
Rows that all hosts together send to other hosts in one exchange of all halo rows. A part per rank:
METIS's parts, each rank receives what it reads. Once per host: the same parts, and a row that
several ranks of a host read is sent to the host once. A part per host (`--parallel hosts`): as many
parts as hosts, and the ranks of a host divide the columns: of each row every rank sends and
receives its columns.""", markdown_table(
                             ["graph", "a part per rank", "once per host", "a part per host",
                              "once / per rank", "per host / per rank"], lines)], {"rows": data})
    print(page.read_text())


# -- runs ------------------------------------------------------------------------------------------

def command(*args) -> list[str]:
    return [sys.executable, "-m", "hpcgcn", *map(str, args)]


def train(launcher: list, graph: pathlib.Path, folder: pathlib.Path, strategy: dict, method: str,
          options: list) -> list[dict]:
    """Rows of metrics.csv of one run."""
    once = ["--once-per-host"] if strategy.get("once_per_host") else []
    run = command("train", graph, *MODEL, *METHODS[method], "--parallel", strategy["parallel"],
                  *once, "--threads", 1, "--quiet", "--checkpoint-every", 0, "--eval-every", 0,
                  "--output", folder, "--name", "run", "--overwrite", *options)
    done = subprocess.run([*map(str, launcher), *run], capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        sys.exit(f"{' '.join(run)} failed with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    with open(folder / "run" / "metrics.csv", newline="") as file:
        return [{key: float(value) for key, value in row.items() if value}
                for row in csv.DictReader(file)]


def count_bytes(args):
    from hpcgcn.graph.store import write_graph
    lines, data = [], []
    model = {"model": "sage", "layers": 3, "hidden": 128, "epochs": 1, "ranks_per_host": 2}
    with tempfile.TemporaryDirectory() as folder:
        jobs = []
        for label, graph in graphs().items():
            path = str(pathlib.Path(folder) / f"{label.split(',')[0].replace(' ', '-')}.h5")
            write_graph(path, graph)
            jobs += [{"label": f"{label}, {method}", "graph": path,
                      "settings": model | strategy | {"method": method}}
                     for method in METHODS for strategy in STRATEGIES.values()]
        done = run_jobs(4, jobs, folder, timing=False)
        for runs in zip(*(iter(done),) * len(STRATEGIES)):
            network, everything = ([run["summary"][key] for run in runs]
                                   for key in ("bytes_network", "bytes_sent"))
            data.append({"run": runs[0]["label"],
                         **dict(zip(STRATEGIES, zip(network, everything)))})
            lines.append([runs[0]["label"], *(f"{n / 1e6:.2f}" for n in network),
                          *(f"{n / network[0]:.2f}" for n in network[1:]),
                          *(f"{n / 1e6:.2f}" for n in everything)])
    page = write_results("hosts-bytes", "Bytes between hosts, two of two ranks",
                         "python benchmarks/hosts.py bytes", [f"""\
MB per epoch that leave a host, and MB of all messages, as `metrics.csv` counts them; 4 ranks on one
machine, of which pairs are declared as hosts. `{' '.join(MODEL)}`, METIS.""", markdown_table(
                             ["graph, method", *(f"network: {name}" for name in STRATEGIES),
                              *(f"{name}, ratio" for name in list(STRATEGIES)[1:]),
                              *(f"all: {name}" for name in STRATEGIES)], lines)],
                         {"bytes": data})
    print(page.read_text())


def stored_parts(path: pathlib.Path) -> np.ndarray:
    """The part of each node of the graph that a partition file was made from."""
    with h5py.File(path) as file:
        offsets, ids = file["offsets"][...], file["original_ids"][...]
    part = np.empty(len(ids), np.int64)
    part[ids] = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return part


def time_epochs(args):
    from hpcgcn.graph.store import read_graph
    options = ["--hosts", 2, "--ranks-per-host", 2, "--rate", RATE]
    lines, data = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        path = folder / "g.h5"
        subprocess.run(command("generate", "sbm", "-o", path, *TIMED, "--homophily", 0.7,
                               "--feature-noise", 2), check=True, stdout=subprocess.DEVNULL)
        for n_parts in (2, 4):           # not within the runs that are timed
            subprocess.run(command("partition", path, "-n", n_parts), check=True,
                           stdout=subprocess.DEVNULL)
        graph = read_graph(path)
        plain, once = rows_across(graph, stored_parts(folder / "g-4.h5"), 2)
        columns, _ = rows_across(graph, stored_parts(folder / "g-2.h5"), 1)
        runs: dict[tuple[str, str], list] = {}
        for _ in range(args.rounds):         # in turn: a slow minute is everybody's
            for method in METHODS:
                for words, strategy in STRATEGIES.items():
                    rows = train([LAB, *options, "--"], path, folder, strategy, method,
                                 ["--epochs", args.epochs + WARM_UP])
                    runs.setdefault((method, words), []).extend(rows[WARM_UP:])
        for (method, words), rows in runs.items():
            record = {"method": method, "strategy": words,
                      **{key: statistics.fmean(row[key] for row in rows)
                         for key in ("seconds", "bytes_network", "bytes_sent")}}
            record["median_seconds"] = statistics.median(row["seconds"] for row in rows)
            record["link_seconds"] = 8 * record["bytes_network"] / 2 / BITS
            data.append(record)
            lines.append([f"{method}, {words}", f"{1e3 * record['median_seconds']:.0f}",
                          f"{record['bytes_network'] / 1e6:.2f}",
                          f"{1e3 * record['link_seconds']:.0f}",
                          f"{record['bytes_sent'] / 1e6:.2f}"])
    page = write_results("hosts-time", f"Two hosts with two ranks each at {RATE}",
                         " ".join(["python benchmarks/hosts.py", *sys.argv[1:]]), [f"""\
Graph: `hpcgcn generate sbm {' '.join(TIMED)}`, METIS; `{' '.join(MODEL)}`. Median of {args.epochs}
epochs of each of {args.rounds} runs, in turn. Link: what the rate allows for a host's bytes each
way. An exchange of all halo rows sends {plain:,} rows to the other host with a part per rank,
{once:,} if each is sent to a host once, {columns:,} with a part per host (counted).""",
                             markdown_table(["method, strategy", "epoch ms", "MB between hosts",
                                             "link ms", "MB of all messages"], lines)],
                         {"epochs": data, "rows": {"part_per_rank": plain, "once_per_host": once,
                                                   "part_per_host": columns}})
    print(page.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("rows", "bytes", "time"))
    parser.add_argument("--epochs", type=int, default=10, help="time: epochs that count (10)")
    parser.add_argument("--rounds", type=int, default=3, help="time: runs of each kind (3)")
    args = parser.parse_args()
    {"rows": count_rows, "bytes": count_bytes, "time": time_epochs}[args.part](args)


if __name__ == "__main__":
    main()
