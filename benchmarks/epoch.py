"""Whole epochs (forward, backward, Adam): hpcgcn on 2 ranks against PyTorch CSR, DGL and PyG in one
process with 2 threads.

    python benchmarks/epoch.py --peers PYTHON
    python benchmarks/epoch.py --baseline CHECKOUT     another version of hpcgcn beside this one

Same graph, model, widths, dropout and cores for all; the peers get the input aggregated once as
well. PYTHON is an interpreter with the peers (benchmarks/spmm.py says how to make one); a missing
peer is left out with a note. CHECKOUT is a folder with another version of this project after its
own `make setup`. Contenders take turns, one epoch each; whoever is not asked sleeps. Takes about
ten minutes.
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
from common import Worker, interleave, markdown_table, milliseconds, spread, write_results

from hpcgcn.graph.divide import divide
from hpcgcn.graph.generate import generate_sbm
from hpcgcn.graph.store import write_graph

HERE = pathlib.Path(__file__).parent
MODELS = {"sage": {"layers": 3, "target": 3.0}, "gcn": {"layers": 3, "target": 2.0},
          "gcnii": {"layers": 8, "target": 2.0}}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default=os.environ.get("HPCGCN_PEERS_PYTHON"), metavar="PYTHON")
    parser.add_argument("--baseline", metavar="CHECKOUT", type=pathlib.Path)
    parser.add_argument("--nodes", type=int, default=60_000)
    parser.add_argument("--degree", type=int, default=50)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--classes", type=int, default=41)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--reorder", default="none",
                        help="order of the nodes within our parts, as in hpcgcn partition (none)")
    parser.add_argument("--backend", default="auto", help="ours, as in hpcgcn train (auto)")
    parser.add_argument("--device", default="cpu", help="of the peers: cpu, cuda")
    parser.add_argument("--json", metavar="FILE", help="write what was measured there")
    parser.add_argument("--no-write", action="store_true")
    return parser.parse_args()


def prepare(args, folder: str):
    """The graph for us (a partition file) and for the peers (plain arrays)."""
    graph = generate_sbm(args.nodes, args.degree, args.features, args.classes, seed=0,
                         communities=8)
    write_graph(f"{folder}/g.h5", graph)
    divide(graph, f"{folder}/parts.h5", args.ranks, objective="cut", reorder=args.reorder)
    for name in ("indptr", "indices", "features", "labels"):
        np.save(f"{folder}/{name}.npy", getattr(graph, name))
    np.save(f"{folder}/train.npy", graph.split[0] == 1)
    return graph


def our_command(args, folder: str) -> list[str]:
    mpiexec = shlex.split(os.environ.get("MPIEXEC",
                                         os.path.join(os.path.dirname(sys.executable), "mpiexec")))
    return [*mpiexec, "-n", str(args.ranks), sys.executable, str(HERE / "epoch_ours.py"),
            f"{folder}/parts.h5", args.backend]


def baseline_command(args, folder: str) -> list[str]:
    """The same graph and parts, made, read and trained on by another version."""
    binaries = args.baseline.resolve() / ".venv" / "bin"
    graph, parts = f"{folder}/baseline.h5", f"{folder}/baseline-parts.h5"
    sizes = {"nodes": args.nodes, "degree": args.degree, "features": args.features,
             "classes": args.classes, "seed": 0, "communities": 8}
    flags = [word for name, value in sizes.items() for word in (f"--{name}", str(value))]
    subprocess.run([binaries / "hpcgcn", "generate", "sbm", "-o", graph, *flags], check=True)
    subprocess.run([binaries / "hpcgcn", "partition", graph, "-n", str(args.ranks), "-o", parts,
                    "--objective", "cut", "--reorder", args.reorder], check=True)
    script = args.baseline.resolve() / "benchmarks" / "epoch_ours.py"
    return [str(binaries / "mpiexec"), "-n", str(args.ranks), str(binaries / "python"),
            str(script), parts]


class OurWorker(Worker):
    """Our ranks behind one pipe."""

    def __init__(self, command: list[str]):
        os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        super().__init__(command[0], pathlib.Path(command[1]), command[2:], threads=1)

    def close(self):
        """Say so: launchers do not pass the end of their input on."""
        self.ask(quit=True)
        super().close()


def measure(args, folder: str) -> tuple[dict, list[str]]:
    ours = OurWorker(our_command(args, folder))
    variants, notes, peers = ours.hear()["variants"], [], None
    baseline = OurWorker(baseline_command(args, folder)) if args.baseline else None
    if baseline:
        variants = [name for name in baseline.hear()["variants"] if name in variants]
    if args.peers:
        peers = Worker(args.peers, HERE / "epoch_peers.py", [folder, args.device],
                       threads=args.ranks)
        found = peers.hear()
        notes = [f"{name} is missing: {why}." for name, why in found["missing"].items()]
    measured = {}
    for model in args.models:
        question = {"model": model, "layers": MODELS[model]["layers"], "hidden": args.hidden,
                    "dropout": 0.5}
        contenders = {}
        ours.ask(build=question)
        for name in variants:
            contenders[name] = lambda name=name: ours.ask(run=name)
        if baseline:
            baseline.ask(build=question)
            for name in variants:
                contenders[f"{name}, baseline"] = lambda name=name: baseline.ask(run=name)
        for name in peers.ask(build=question) if peers else ():
            contenders[name] = lambda name=name: peers.ask(run=name)
        seconds = interleave(contenders, args.rounds, budget=60)
        measured[model] = {name: spread(values) for name, values in seconds.items()}
        print(model + ": " + ", ".join(f"{n} {milliseconds(s)} ms"
                                       for n, s in measured[model].items()), flush=True)
    for worker in filter(None, (ours, baseline, peers)):
        worker.close()
    return measured, notes


def tables(measured: dict) -> list[str]:
    names = list(dict.fromkeys(name for row in measured.values() for name in row))
    times = [[f"{model}, {MODELS[model]['layers']} layers",
              *(milliseconds(row[n]) if n in row else "" for n in names)]
             for model, row in measured.items()]
    ratios = []
    for model, row in measured.items():
        others = {n: s["median"] for n, s in row.items() if not n.startswith("hpcgcn")}
        if others:
            best = min(others, key=others.get)
            ratio, target = others[best] / row["hpcgcn"]["median"], MODELS[model]["target"]
            ratios.append([model, best, f"{ratio:.2f}", f"{target:g}",
                           "met" if ratio >= target else "missed"])
    sections = [markdown_table(["ms per epoch", *names], times)]
    if ratios:
        sections += ["Times as fast as the fastest peer:",
                     markdown_table(["model", "fastest peer", "ratio", "target", ""], ratios)]
    compared = [(model, name, row[f"{name}, baseline"]["median"] / row[name]["median"])
                for model, row in measured.items() for name in row if f"{name}, baseline" in row]
    if compared:
        sections += ["Times as fast as the baseline:",
                     markdown_table(["model", "variant", "ratio"],
                                    [[m, name, f"{ratio:.2f}"] for m, name, ratio in compared])]
    return sections


def main():
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        graph = prepare(args, folder)
        measured, notes = measure(args, folder)
    facts = (f"Block model of {graph.n_nodes} nodes and {graph.n_edges} directed edges, "
             f"{args.features} features, {args.classes} classes; hidden width {args.hidden}, "
             f"dropout 0.5, Adam. hpcgcn: {args.ranks} ranks of 1 thread (METIS parts, nodes in "
             f"the order {args.reorder}), method overlap; peers: one process, {args.ranks} "
             "threads. Median of the rounds ± half the distance of the quartiles.")
    sections = [facts, *tables(measured), *notes]
    print("\n\n".join(sections[1:]))
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"models": measured, "notes": notes}))
    if not args.no_write:
        command = "python benchmarks/epoch.py " + shlex.join(
            w for w in sys.argv[1:] if w not in (args.peers, str(args.baseline)))
        name = "epoch-baseline" if args.baseline else "epoch"
        print("written:", write_results(name, "Whole epochs", command.strip(), sections,
                                        {"models": measured, "notes": notes}))


if __name__ == "__main__":
    main()
