"""A graph as large as ogbn-products on one machine: generate, cut, train; seconds and peak memory
of each.

    python benchmarks/products.py                 2.4 million nodes, 24 GiB, half an hour
    python benchmarks/products.py --nodes 100000  a rehearsal

Every step is a command of its own, as a user would give it. A step whose file is there already
(--work) is not repeated and keeps its numbers; training is always measured.
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
import time

from common import markdown_table, write_results

TRAIN = ["--model", "sage", "--layers", "3", "--hidden", "128", "--dropout", "0.3", "--lr", "0.003",
         "--eval-every", "1000"]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=2_400_000)
    parser.add_argument("--degree", type=float, default=51.7,
                        help="124 million entries over 2.4 million rows (51.7)")
    parser.add_argument("--homophily", type=float, default=0.98,
                        help="edges within one of 20 communities; the fewer leave a part, the "
                             "smaller its halo (0.98)")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"])
    parser.add_argument("--reorder", default="none")
    parser.add_argument("--work", default=os.path.join(tempfile.gettempdir(), "hpcgcn-products"))
    parser.add_argument("--no-write", action="store_true",
                        help="print the tables, leave benchmarks/results alone")
    return parser.parse_args()


def hpcgcn(*words: str) -> list[str]:
    return [sys.executable, "-m", "hpcgcn", *words]


def measured(command: list[str]) -> dict:
    """Seconds and the peak resident memory of a command."""
    print("$", shlex.join(command[1:]), flush=True)
    began = time.perf_counter()
    process = subprocess.Popen(command)
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status):
        sys.exit(f"{shlex.join(command)} failed")
    return {"seconds": time.perf_counter() - began, "bytes": usage.ru_maxrss * 1024}


def prepare(args, work: pathlib.Path) -> list[dict]:
    """The graph and its parts, each made unless it is there; what each took when it was made."""
    graph, parts = work / "graph.h5", work / f"parts-{args.ranks}-{args.reorder}.h5"
    generate = ["generate", "sbm", "--nodes", str(args.nodes), "--degree", str(args.degree),
                "--features", "100", "--classes", "47", "--communities", "20", "--homophily",
                str(args.homophily), "-o", str(graph)]
    partition = ["partition", str(graph), "-n", str(args.ranks), "--objective", "cut", "--reorder",
                 args.reorder, "-o", str(parts)]
    for name, path, words in (("generate", graph, generate), ("partition", parts, partition)):
        if not path.exists():
            path.with_suffix(".json").write_text(json.dumps({"step": name,
                                                             **measured(hpcgcn(*words))}))
    return [json.loads(path.with_suffix(".json").read_text()) for path in (graph, parts)]


def train(args, work: pathlib.Path, precision: str) -> dict:
    mpiexec = shlex.split(os.environ.get("MPIEXEC",
                                         os.path.join(os.path.dirname(sys.executable), "mpiexec")))
    parts, name = work / f"parts-{args.ranks}-{args.reorder}.h5", f"run-{precision}"
    whole = measured([*mpiexec, "-n", str(args.ranks), *hpcgcn(
        "train", str(parts), *TRAIN, "--epochs", str(args.epochs), "--precision", precision,
        "--threads", "1", "--output", str(work), "--name", name, "--overwrite")])
    summary = json.loads((work / name / "summary.json").read_text())
    return {"precision": precision, "seconds": whole["seconds"], "summary": summary}


def gib(n: float) -> str:
    return f"{n / 2 ** 30:.1f}"


def main():
    args = arguments()
    work = pathlib.Path(args.work)
    work.mkdir(parents=True, exist_ok=True)
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    steps = prepare(args, work)
    runs = [train(args, work, precision) for precision in args.precisions]
    rows = [[s["step"], f"{s['seconds']:.0f}", gib(s["bytes"])] for s in steps]
    trained = [[r["precision"], f"{r['summary']['seconds_per_epoch']:.2f}", f"{r['seconds']:.0f}",
                gib(r["summary"]["peak_memory_bytes"]["largest_rank"]),
                gib(r["summary"]["peak_memory_bytes"]["all_ranks"]),
                f"{r['summary']['final']['test']:.4f}"] for r in runs]
    halo = runs[0]["summary"]["halo_rows"] / runs[0]["summary"]["nodes"]
    sections = [f"Block model of {args.nodes} nodes with {args.degree:g} neighbours each on "
                f"average, {args.homophily:.0%} of them of the same of 20 communities; METIS "
                f"parts with a halo of {halo:.2f} rows per node; 100 features, 47 classes; 3-layer "
                f"GraphSAGE, 128 wide, {args.ranks} ranks of 1 thread, {args.epochs} epochs, "
                f"order of nodes: {args.reorder}.",
                markdown_table(["step", "s", "peak GiB"], rows),
                markdown_table(["training", "s an epoch", "s of the whole command",
                                "peak GiB, largest rank", "all ranks", "test score"], trained)]
    print("\n\n".join(sections))
    if not args.no_write:
        command = "python benchmarks/products.py " + shlex.join(sys.argv[1:])
        print("written:", write_results("products", "As large as ogbn-products", command.strip(),
                                        sections, {"steps": steps, "runs": runs}))


if __name__ == "__main__":
    main()
