"""GAT: epoch time and peak memory of hpcgcn beside PyG's and DGL's GATConv.

    python benchmarks/gat.py --peers PYTHON
    python benchmarks/gat.py --peers PYTHON --layers 3 --attention-dropout 0 --no-write

Each is one process with as many threads, the same graph, layers, heads, dropout and Adam. PYTHON is
an interpreter with the peers (benchmarks/spmm.py says how to make one); without it the peers run
under this one, and a missing one is left out with a note. Contenders take turns, one epoch each;
whoever is not asked sleeps. The time that its threads spent computing is told, too: other work on
the machine adds little to that. Memory is the greatest resident size of the process in all that,
with its libraries and the graph; and that minus what it was before the graph was read. Rows that
were measured before stay in the table until they are measured again. About two minutes per row.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shlex
import sys
import tempfile

import numpy as np
from common import (
    RESULTS,
    Worker,
    interleave,
    markdown_table,
    milliseconds,
    spread,
    write_results,
)

from hpcgcn.graph.csr import row_numbers
from hpcgcn.graph.generate import generate_sbm
from hpcgcn.graph.store import write_graph

HERE = pathlib.Path(__file__).parent
TIMES_AS_FAST, SHARE_OF_MEMORY = 3.0, 0.5            # targets, beside the fastest peer


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default=os.environ.get("HPCGCN_PEERS_PYTHON", sys.executable),
                        metavar="PYTHON")
    parser.add_argument("--nodes", type=int, default=60_000)
    parser.add_argument("--degree", type=int, default=50)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--classes", type=int, default=41)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--columns", type=int, default=32, help="of one head (32)")
    parser.add_argument("--layers", type=int, nargs="+", default=[2])
    parser.add_argument("--attention-dropout", type=float, nargs="+", default=[0.0, 0.5])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-write", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser.parse_args()


def prepare(args, folder: str):
    """The graph for us (a graph file) and for the peers (plain arrays)."""
    graph = generate_sbm(args.nodes, args.degree, args.features, args.classes, seed=0,
                         communities=8)
    write_graph(f"{folder}/g.h5", graph)
    np.save(f"{folder}/edges.npy", np.stack([graph.indices.astype(np.int64),
                                             row_numbers(graph.indptr)]))
    np.save(f"{folder}/features.npy", graph.features)
    np.save(f"{folder}/labels.npy", graph.labels)
    np.save(f"{folder}/train.npy", graph.split[0] == 1)
    return graph


class Contender(Worker):
    """A process for one model of one library."""

    def __init__(self, python: str, script: str, words: list[str], threads: int):
        super().__init__(python, HERE / script, words, threads)
        self.fault = self.hear().get("missing")
        self.cpu_seconds: list[float] = []

    def epoch(self) -> float:
        """Train for one epoch; its seconds. Those of its threads are kept, too."""
        seconds, of_threads = self.ask(run=True)
        self.cpu_seconds.append(of_threads)
        return seconds


def start(args, folder: str, question: dict) -> tuple[dict[str, Contender], dict[str, str]]:
    """(contenders, {missing one: why})"""
    asked = [folder, json.dumps(question)]
    ours = {"hpcgcn": question, "hpcgcn, all rows": question | {"needed_rows": False}}
    contenders = {name: Contender(sys.executable, "gat.py", ["--worker", json.dumps(
        [folder, args.threads, of])], args.threads) for name, of in ours.items()}
    peers = {name: Contender(args.peers, "gat_peers.py", [name, *asked], args.threads)
             for name in ("DGL", "PyG")}
    missing = {name: peer.fault for name, peer in peers.items() if peer.fault}
    return contenders | {n: peer for n, peer in peers.items() if n not in missing}, missing


def measure(args, folder: str) -> tuple[list[dict], dict[str, str]]:
    measured, missing = [], {}
    for layers in args.layers:
        for dropout in args.attention_dropout:
            question = {"layers": layers, "hidden": args.heads * args.columns,
                        "heads": args.heads, "dropout": 0.5, "attention_dropout": dropout}
            contenders, missing = start(args, folder, question)
            seconds = interleave({name: c.epoch for name, c in contenders.items()}, args.rounds,
                                 budget=60)
            row = {"threads": args.threads, "layers": layers, "attention_dropout": dropout,
                   "load_average": round(os.getloadavg()[0], 1),
                   "seconds": {name: spread(values) for name, values in seconds.items()},
                   "cpu_seconds": {name: spread(c.cpu_seconds[1:])
                                   for name, c in contenders.items()},
                   "memory": {name: c.ask(memory=True) for name, c in contenders.items()}}
            for contender in contenders.values():
                contender.close()
            measured.append(row)
            print(json.dumps(row), flush=True)
    return measured, missing


def tables(measured: list[dict]) -> list[str]:
    """Times, memory, and what follows."""
    names = list(measured[0]["seconds"])

    def label(row) -> str:
        return (f"{row['threads']} thread{'s' * (row['threads'] > 1)}, {row['layers']} layers, "
                f"attention dropout {row['attention_dropout']:g}")

    def memory(row, name: str) -> str:
        peak, before = row["memory"][name]["peak"], row["memory"][name]["libraries"]
        return f"{peak / 2**20:.0f} ({(peak - before) / 2**20:.0f})"

    def times(kind: str) -> list[list[str]]:
        return [[label(row), *(milliseconds(row[kind][n]) for n in names)] for row in measured]

    loads = [row["load_average"] for row in measured]
    sections = [f"Load average while this was measured: {min(loads)} to {max(loads)}, mostly of "
                "other programs; on a machine as busy as that the first table says little.",
                markdown_table(["ms per epoch", *names], times("seconds")),
                markdown_table(["ms of all threads per epoch", *names], times("cpu_seconds")),
                markdown_table(["MiB: peak (without libraries)", *names],
                               [[label(row), *(memory(row, n) for n in names)]
                                for row in measured])]
    peers = [name for name in names if not name.startswith("hpcgcn")]
    if not peers:
        return sections
    verdicts = []
    for row in measured:
        fastest = min(peers, key=lambda n: row["cpu_seconds"][n]["median"])
        ratio, of_threads = (row[kind][fastest]["median"] / row[kind]["hpcgcn"]["median"]
                             for kind in ("seconds", "cpu_seconds"))
        share = row["memory"]["hpcgcn"]["peak"] / row["memory"][fastest]["peak"]
        met = min(ratio, of_threads) >= TIMES_AS_FAST and share < SHARE_OF_MEMORY
        verdicts.append([label(row), fastest, f"{ratio:.2f}", f"{of_threads:.2f}",
                         f"{share:.2f}", "met" if met else "missed"])
    return [*sections, f"Beside the fastest peer (targets: {TIMES_AS_FAST:g} times as fast, below "
                       f"{SHARE_OF_MEMORY:g} of the memory):",
            markdown_table(["model", "fastest peer", "times as fast", "by time of all threads",
                            "share of its memory", ""], verdicts)]


def with_earlier(measured: list[dict]) -> list[dict]:
    """With the rows of the page that were not measured again."""
    def key(row) -> tuple:
        return row["threads"], row["layers"], row["attention_dropout"]

    page = RESULTS / "gat.json"
    earlier = json.loads(page.read_text())["models"] if page.exists() else []
    rows = {key(row): row for row in earlier} | {key(row): row for row in measured}
    return [rows[k] for k in sorted(rows)]


# -- our side --------------------------------------------------------------------------------------

def work(folder: str, threads: int, settings: dict):
    """Train one epoch whenever asked."""
    import resource
    import time

    from mpi4py import MPI

    from hpcgcn.backend import make_backend
    from hpcgcn.config import make_config
    from hpcgcn.mpi.runtime import Runtime
    from hpcgcn.parallel import make_strategy
    from hpcgcn.train.trainer import Trainer

    def peak() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    before = peak()
    config = make_config({"model": "gat", "norm": "no", "threads": threads, "quiet": True,
                          **settings})
    runtime = Runtime(MPI.COMM_SELF)
    backend, _ = make_backend("native", threads=threads)
    part = make_strategy(runtime, config).load(f"{folder}/g.h5")
    trainer = Trainer(runtime, backend, part, config)
    print(json.dumps({}), flush=True)
    for line in sys.stdin:
        if "memory" in json.loads(line):
            answer = {"peak": peak(), "libraries": before}
        else:
            began, before_it = time.perf_counter(), time.process_time()
            trainer.run_epoch()
            answer = time.perf_counter() - began, time.process_time() - before_it
        print(json.dumps(answer), flush=True)


def main():
    args = arguments()
    if args.worker:
        return work(*json.loads(args.worker))
    with tempfile.TemporaryDirectory() as folder:
        graph = prepare(args, folder)
        measured, missing = measure(args, folder)
    share = float((graph.split[0] == 1).mean())
    facts = (f"Block model of {graph.n_nodes} nodes and {graph.n_edges} directed edges, "
             f"{args.features} features, {args.classes} classes; {args.heads} heads of "
             f"{args.columns} columns, the last layer 1 head; self loops, dropout 0.5, Adam. One "
             "process each; each row is of a command of its own, that above is the latest. "
             f"{100 * share:.0f} % of the nodes are in the loss: hpcgcn computes the "
             "rows that these need; with all rows it computes what its peers do. Median of the "
             "rounds ± half the distance of the quartiles.")
    measured = with_earlier(measured)
    sections = [facts, *tables(measured),
                *(f"{name} is missing: {why}." for name, why in missing.items())]
    print("\n\n".join(sections[1:]))
    if not args.no_write:
        words = [w for w in sys.argv[1:] if w != args.peers]
        command = "python benchmarks/gat.py " + shlex.join(words)
        print("written:", write_results("gat", "GAT beside PyG and DGL", command.strip(), sections,
                                        {"models": measured, "missing": missing}))


if __name__ == "__main__":
    main()
