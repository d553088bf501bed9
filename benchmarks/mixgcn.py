"""MixGCN (feature parallelism) against partitioning: bytes, time, memory, the pipeline of roles,
accuracy with coded transposes.

    python benchmarks/mixgcn.py bytes        bytes per epoch on 2 to 32 ranks, and where they cross
    python benchmarks/mixgcn.py time         epoch time on 2 and 4 ranks
    python benchmarks/mixgcn.py memory       memory per rank on 2 and 4 ranks, and balance
    python benchmarks/mixgcn.py roles        one rank aggregates, one updates: pipelined and in turn
    python benchmarks/mixgcn.py masked       the fused masked product against mask, then product
    python benchmarks/mixgcn.py accuracy     8 bits, 1 bit with error feedback, on real graphs

Each writes benchmarks/results/mixgcn-<part>.md and .json (`accuracy`: with the graphs' names).
Graphs are generated but for `accuracy`. Minutes each, `bytes` and `accuracy` up to half an hour on
2 cores.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from types import SimpleNamespace

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.dirname(HERE))

from common import interleave, markdown_table, milliseconds, spread, write_results  # noqa: E402
from mixgcn_job import run_jobs  # noqa: E402

RANKS = (2, 4, 8, 16, 32)
MODEL = {"model": "gcn", "layers": 3, "hidden": 64}
CODED = {"fp32": {}, "8 bits": {"codec": "8bit"},
         "1 bit with error feedback": {"codec": "1bit", "error_feedback": True,
                                       "rounding": "nearest"}}


def graphs(scale: int = 1) -> dict:
    """A dense one, like Squirrel, a power law, and one that falls into parts."""
    from hpcgcn.graph.generate import generate_grid, generate_rmat, generate_sbm
    return {"dense (block model, degree 76)": generate_sbm(5200 * scale, 76, 64, 5, seed=0,
                                                           homophily=0.3, power=2.2),
            "power law (R-MAT, degree 12)": generate_rmat(8192 * scale, 12, 64, 8, seed=0),
            "well partitioned (grid, degree 8)": generate_grid(9216 * scale, 8, 64, 8, seed=0)}


def write(folder: str, found: dict) -> dict[str, str]:
    """Graph files by name."""
    from hpcgcn.graph.store import write_graph
    paths = {name: os.path.join(folder, f"{name.split()[0]}.h5") for name in found}
    for name, graph in found.items():
        write_graph(paths[name], graph)
    return paths


# -- bytes -----------------------------------------------------------------------------------------

def formula(n_nodes: int, n_ranks: int, classes: int) -> int:
    """Bytes of an epoch's transposes: 4 a number, forward and backward, there and back, all but
    what stays on its rank."""
    def share(total, k):
        return total * (k + 1) // n_ranks - total * k // n_ranks
    # layer 1 is precomputed, layer 3 transforms first
    return sum(4 * 2 * 2 * (n_nodes * width
                            - sum(share(n_nodes, k) * share(width, k) for k in range(n_ranks)))
               for width in (MODEL["hidden"], classes))


def count_bytes(args):
    rows, data = [], []
    with tempfile.TemporaryDirectory() as folder:
        made = graphs()
        paths = write(folder, made)
        for n_ranks in args.ranks:
            jobs = [{"label": f"{name}, {method}", "graph": path, "settings": MODEL | {
                "method": method, "feature_blocks": 1, "epochs": 1}} for name, path in paths.items()
                    for method in ("overlap", "mixgcn")]
            sent = [job["summary"] for job in run_jobs(n_ranks, jobs, folder, timing=False)]
            for (name, graph), parts, columns in zip(made.items(), sent[::2], sent[1::2]):
                ratio, limit = parts["halo_rows"] / graph.n_nodes, 2 * (n_ranks - 1) / n_ranks
                wanted = formula(graph.n_nodes, n_ranks, graph.n_classes)
                data.append({"graph": name, "ranks": n_ranks, "halo_ratio": ratio, "limit": limit,
                             "formula": wanted,
                             "partition": parts["bytes_sent"], "features": columns["bytes_sent"]})
                rows.append(bytes_row(data[-1]))
    where = ("GCN, 3 layers, hidden width 64, fp32, layer 1 precomputed; METIS parts. M/N: halo "
             "rows over nodes. Partitioning sends M rows per hop and direction, transposes "
             "2N(P-1)/P, so MixGCN should send less where M/N is above 2(P-1)/P.")
    table = markdown_table(["graph, ranks", "M/N", "2(P-1)/P", "partition", "MixGCN",
                            "MixGCN / formula", "fewer bytes", "as predicted"], rows)
    return "Bytes per epoch", [where, table], {"rows": data}


def bytes_row(row: dict) -> list[str]:
    def sign(a, b):
        return "MixGCN" if a < b else "partition" if a > b else "equal"
    less, predicted = sign(row["features"], row["partition"]), sign(row["limit"], row["halo_ratio"])
    return [f"{row['graph']}, {row['ranks']}", f"{row['halo_ratio']:.3f}", f"{row['limit']:.3f}",
            f"{row['partition'] / 1e6:.2f} MB",
            f"{row['features'] / 1e6:.2f} MB", f"{row['features'] / row['formula']:.6g}", less,
            "yes" if less == predicted else "**no**"]


# -- time and memory -------------------------------------------------------------------------------

METHODS = {"overlap": "partition", "mixgcn": "MixGCN"}


def large_jobs(folder: str) -> list[dict]:
    """Both methods on graphs of three times the size."""
    return [{"label": name, "method": method, "graph": path,
             "settings": MODEL | {"hidden": 128, "method": method, "epochs": 10}}
            for name, path in write(folder, graphs(scale=3)).items() for method in METHODS]


def measure_time(args):
    data = []
    with tempfile.TemporaryDirectory() as folder:
        jobs = large_jobs(folder)
        for n_ranks in (2, 4):
            found = run_jobs(n_ranks, jobs * args.rounds, folder)
            for number, job in enumerate(jobs):
                mine = found[number::len(jobs)]
                data.append({"graph": job["label"], "ranks": n_ranks,
                             "method": METHODS[job["method"]],
                             "seconds": spread([f["epoch_seconds"] for f in mine]),
                             "bytes": mine[0]["summary"]["bytes_sent"] / 10})
    rows = [[f"{row['graph']}, {row['ranks']}", row["method"], milliseconds(row["seconds"]),
             f"{row['bytes'] / 1e6:.1f} MB"] for row in data]
    where = ("GCN, 3 layers, hidden width 128, graphs of three times the size of those in "
             f"mixgcn-bytes; {args.rounds} rounds in turn, median epoch. All ranks on one "
             f"machine with {os.cpu_count()} cores (4 ranks share them, and messages are copies "
             "in memory).")
    return "Epoch time", [where, markdown_table(["graph, ranks", "method", "ms per epoch",
                                                 "sent an epoch"], rows)], {"rows": data}


def measure_memory(args):
    rows, data = [], []
    with tempfile.TemporaryDirectory() as folder:
        for n_ranks in (2, 4):
            for job in large_jobs(folder):
                # A process remembers its largest size ever: a job for each, and a second one, which
                # finds the partition made.
                short = [job | {"settings": job["settings"] | {"epochs": 2}}]
                found = [run_jobs(n_ranks, short, folder, timing=False)[0]["summary"]
                         for _ in range(2)][1]
                data.append({"graph": job["label"], "ranks": n_ranks,
                             "method": METHODS[job["method"]],
                             "memory": found["peak_memory_bytes"]["largest_rank"],
                             "balance": found["multiply_adds"]["max_over_mean"]})
                rows.append([f"{job['label']}, {n_ranks}", data[-1]["method"],
                             f"{data[-1]['memory'] / 2 ** 20:.0f} MiB",
                             f"{data[-1]['balance']:.2f}"])
    where = ("GCN, 3 layers, hidden width 128, graphs of three times the size of those in "
             "mixgcn-bytes. Memory: peak of the largest rank, with Python and its libraries "
             "(about 70 MiB) and the shared adjacency, which counts in every rank that reads it. "
             "Balance: most over mean multiply-adds of a rank's sparse products.")
    return "Memory per rank", [where, markdown_table(["graph, ranks", "method", "memory per rank",
                                                    "balance"], rows)], {"rows": data}


# -- roles -----------------------------------------------------------------------------------------

ONE_AFTER_THE_OTHER = "one after the other"


def measure_roles(args):
    from hpcgcn.graph.generate import generate_sbm
    n_nodes, degree, hidden, layers = args.roles_graph
    with tempfile.TemporaryDirectory() as folder:
        path = write(folder, {"roles": generate_sbm(n_nodes, degree, 64, 16, seed=0,
                                                    communities=8)})["roles"]
        settings = {"model": "gcn", "layers": layers, "hidden": hidden, "epochs": 12,
                    "method": "mixgcn", "sparse_ranks": 1}
        kinds = {ONE_AFTER_THE_OTHER: 1, "1 block": 1, "2 blocks": 2, "4 blocks": 4, "8 blocks": 8,
                 "16 blocks": 16, "chosen at start": 0}
        jobs = [{"label": label, "graph": path, "settings": settings
                 | {"feature_blocks": n, "blocking": label == ONE_AFTER_THE_OTHER}}
                for label, n in kinds.items()]
        found = run_jobs(2, jobs * args.rounds, folder)
    rows, data = [], {}
    for label in kinds:
        mine = [f for f in found if f["label"] == label]
        roles = mine[0]["summary"]["roles"]
        data[label] = {"seconds": spread([f["epoch_seconds"] for f in mine]),
                       "best": min(f["epoch_seconds"] for f in mine),
                       "idle": {role: statistics.median(f["summary"]["roles"][role]["idle_share"]
                                                        for f in mine) for role in roles},
                       "blocks": [f["summary"]["feature_blocks"] for f in mine]}
    base = data[ONE_AFTER_THE_OTHER]["seconds"]["median"]
    for label, row in data.items():
        shown = label if label[0] != "c" else f"{label}: {', '.join(map(str, row['blocks']))}"
        rows.append([shown, milliseconds(row["seconds"]), f"{row['seconds']['median'] / base:.2f}",
                     f"{100 * row['idle']['sparse']:.0f} %", f"{100 * row['idle']['dense']:.0f} %"])
    where = ("Rank 0 aggregates, rank 1 updates (`--method mixgcn-moa`), one core each. Block "
             f"model of {n_nodes} nodes, degree {degree}; GCN, {layers} layers, hidden width "
             f"{hidden}: chosen so that both roles have about as much to do. One after the "
             "other: one block, and all of a role's work on it done before the other gets it "
             "(`--blocking`); in a pipeline the gradients of weights, for which nobody waits, "
             f"come after what is sent. {args.rounds} rounds in turn, median epoch; idle: "
             "waiting for messages or in the all-reduce, median of the rounds.")
    return "A pipeline of two roles", [where, markdown_table(
        ["", "ms per epoch", "ratio", "aggregating rank idle", "updating rank idle"],
        rows)], {"rows": data}


# -- the fused masked product ----------------------------------------------------------------------

def on_core(function):
    """A contender in this process, timed by what its one thread ran: others on the machine matter
    less."""
    def run() -> float:
        start = time.process_time()
        function()
        return time.process_time() - start
    return run


def measure_masked(args):
    import numpy as np

    from hpcgcn.backend.native import NativeBackend
    from hpcgcn.graph.generate import generate_sbm
    backend, rows, data = NativeBackend(threads=1), [], []
    for n_nodes, degree, width in ((20_000, 16, 64), (20_000, 64, 64), (20_000, 64, 128),
                                   (60_000, 16, 128)):
        graph = generate_sbm(n_nodes, degree, 4, 4, seed=0, communities=8)
        matrix = backend.csr(graph.indptr, graph.indices, n_nodes)
        rng = np.random.default_rng(0)
        gradient, mask = (rng.standard_normal((n_nodes, width)).astype(np.float32)
                          for _ in range(2))
        mask = np.maximum(mask, 0)
        masked, out, dbias = (np.empty_like(gradient), np.empty_like(gradient),
                              np.zeros(width, np.float32))

        def apart(matrix=matrix, gradient=gradient, mask=mask, masked=masked, out=out, dbias=dbias):
            backend.epilogue_backward(gradient, mask, masked, scale=2.0, dbias=dbias)
            backend.spmm(matrix, masked, out)

        def fused(matrix=matrix, gradient=gradient, mask=mask, out=out):
            backend.spmm(matrix, gradient, out, mask=mask, mask_scale=2.0)

        def fused_and_bias(fused=fused, gradient=gradient, mask=mask, masked=masked, dbias=dbias):
            backend.epilogue_backward(gradient, mask, masked, scale=2.0, dbias=dbias)
            fused()
        found = {name: spread(times) for name, times in interleave(
            {"apart": on_core(apart), "fused": on_core(fused),
             "fused and bias": on_core(fused_and_bias)}, 31).items()}
        data.append({"nodes": n_nodes, "degree": degree, "width": width, **found})
        rows.append([f"{n_nodes} nodes, degree {degree}, {width} columns",
                     *(milliseconds(found[name]) for name in found),
                     f"{found['fused']['median'] / found['apart']['median']:.2f}"])
    where = ("Backward through an activation and an aggregation, A^T (mask * g), one core, in "
             "time on the core: mask (with the bias's gradient, which needs it too), then "
             "product; the product with the mask fused, our reading of MixGCN's S-SpMM, without "
             "and with a pass for the bias's gradient.")
    return ("The fused masked product",
            [where, markdown_table(["", "apart (ms)", "fused, no bias", "fused, and bias",
                                    "fused, no bias / apart"], rows)], {"rows": data})


# -- accuracy --------------------------------------------------------------------------------------

def measure_accuracy(args):
    import methods

    from hpcgcn.graph.store import header
    rows, data = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name in args.graphs:
            path = methods.graph_file(SimpleNamespace(graph=name, work=args.work))
            n_splits = int(header(path).get("n_splits", 1))
            jobs = [{"label": label, "graph": path, "settings": methods.GRAPHS[name][1] | own | {
                "method": "mixgcn", "feature_blocks": 1, "seed": seed,
                "split_index": seed % n_splits, "eval_every": 5}} for seed in range(args.seeds)
                    for label, own in CODED.items()]
            found = run_jobs(args.accuracy_ranks, jobs, folder, timing=False)
            base = [f["summary"]["best"]["test"] for f in found if f["label"] == "fp32"]
            for label in CODED:
                mine = [f["summary"] for f in found if f["label"] == label]
                tests = [100 * s["best"]["test"] for s in mine]
                change = [test - 100 * b for test, b in zip(tests, base)]
                data.append({"graph": name, "method": label, "test": tests, "change": change,
                             "bytes": mine[0]["bytes_sent"] / mine[0]["epochs"],
                             "compression": mine[0]["compression"]})
    for row in data:
        difference = statistics.mean(row["change"])
        error = (statistics.stdev(row["change"]) / len(row["change"]) ** 0.5
                 if len(row["change"]) > 1 else 0.0)
        rows.append([f"{row['graph']}, {row['method']}", f"{statistics.mean(row['test']):.2f}",
                     f"{difference:+.2f} ± {error:.2f}", "yes" if difference >= -0.5 else "**no**",
                     f"{row['bytes'] / 1e6:.2f} MB", f"{row['compression']:.1f}×"])
    where = (f"{args.accuracy_ranks} ranks, {args.seeds} seeds, settings of "
             "benchmarks/methods.py. Test accuracy (%) at the best validation; the difference to "
             "fp32 (exact: the losses of one rank) is paired by seed, with its standard error. "
             "Coded are all transposes, forward and backward.")
    table = markdown_table(["graph, transposes", "test", "difference", "within 0.5",
                            "sent an epoch", "compression"], rows)
    return "Accuracy with coded transposes", [where, table], {"rows": data}


PARTS = {"bytes": count_bytes, "time": measure_time, "memory": measure_memory,
         "roles": measure_roles, "masked": measure_masked, "accuracy": measure_accuracy}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS,
                        help="bytes: on how many (2 4 8 16 32)")
    parser.add_argument("--rounds", type=int, default=5, help="time, roles: runs of each (5)")
    parser.add_argument("--roles-graph", type=int, nargs=4, default=(4000, 80, 256, 6), metavar="N",
                        help="roles: nodes, degree, hidden width, layers")
    parser.add_argument("--graphs", nargs="+", default=["cora", "coauthor-cs"],
                        help="accuracy: of benchmarks/methods.py")
    parser.add_argument("--seeds", type=int, default=5, help="accuracy: runs of each (5)")
    parser.add_argument("--accuracy-ranks", type=int, default=2, help="accuracy: ranks (2)")
    parser.add_argument("--work", default=os.path.join(tempfile.gettempdir(), "hpcgcn-methods"),
                        help="accuracy: imported graphs")
    args = parser.parse_args()
    title, sections, data = PARTS[args.part](args)
    command = " ".join(["python benchmarks/mixgcn.py", *sys.argv[1:]])
    print("\n\n".join(sections))
    name = "-".join(["mixgcn", args.part, *(args.graphs if args.part == "accuracy" else [])])
    print("written:",
          write_results(name, f"MixGCN: {title[0].lower()}{title[1:]}", command, sections, data))


if __name__ == "__main__":
    main()
