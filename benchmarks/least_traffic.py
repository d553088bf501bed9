"""Bytes per epoch: all halo rows, those that the loss needs, and rows or partial sums.

    HPCGCN_TEST_DATA=... python benchmarks/least_traffic.py

Counted, not timed: the rows of each hop over METIS parts (objective volume) times its width, there
and back, as tests/strategies/test_bytes.py finds them in runs. 3-layer GraphSAGE, width 128, fp32.
Ten public graphs in 4, 8 and 16 parts; those without a split of their own with 60 % of the nodes
for training and, in a second table, with 20 nodes per class. A minute or two on one core. Writes
benchmarks/results/least-traffic.md and .json.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from types import SimpleNamespace

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.dirname(HERE))

from accuracy import GRAPHS, imported  # noqa: E402
from common import markdown_table, write_results  # noqa: E402

PARTS = (4, 8, 16)
PER_CLASS = ("amazon-photo", "coauthor-cs", "coauthor-physics")      # have no split of their own


def hops_of(graph) -> list[tuple[int, int]]:
    """(width, exchanges) of every hop, the last one first; layer 1 is precomputed if features are
    dense."""
    from hpcgcn.graph.data import SparseRows
    from hpcgcn.nn.models import Shape, plan_model
    sparse = isinstance(graph.features, SparseRows)
    shape = Shape("sage", graph.n_features, graph.n_classes, 3, 128, norm=True, self_loops=False)
    hops = plan_model(shape, 1, sparse=sparse, precomputed=not sparse).line.hops
    return [(hop.source.width, 1 + hop.source.wants_gradient) for hop in reversed(hops)]


def random_split(graph, share: float = 0.6) -> np.ndarray:
    """Which nodes train: a random share of those that have a label."""
    labelled = np.flatnonzero(graph.labels >= 0)
    chosen = np.random.default_rng(0).permutation(labelled)[:round(share * len(labelled))]
    return np.isin(np.arange(graph.n_nodes), chosen)


def count(graph, trains: np.ndarray, n_parts: int) -> dict:
    """Rows of every hop, bytes before and after, and the balance of the products."""
    from hpcgcn.graph.partition import partition_graph
    from hpcgcn.graph.traffic import exchanged_rows
    began = time.perf_counter()
    assignment = partition_graph(graph, n_parts, "metis", "volume")
    partitioned = time.perf_counter()
    widths = hops_of(graph)
    hops = exchanged_rows(graph.indptr, graph.indices, assignment, trains, n_hops=len(widths))
    seconds = {"partition": partitioned - began, "count": time.perf_counter() - partitioned}

    def total(name: str) -> int:
        return sum(4 * hop[name] * width * both for hop, (width, both) in zip(hops, widths))

    def balance(how: str) -> float:
        work = sum(np.array(hop["entries"][how]) * width * both
                   for hop, (width, both) in zip(hops, widths))
        return float(work.max() / work.mean())

    return {"parts": n_parts, "train": float(trains.mean()), "seconds": seconds,
            "bytes": {name: total(name) for name in ("all", "needed", "auto", "cover")},
            "last": {name: hops[0][name] / hops[0]["all"]
                     for name in ("needed", "auto", "cover")},
            "hops": [{name: hop[name] for name in ("all", "needed", "auto", "cover")}
                     for hop in hops],
            "balance": {how: balance(how) for how in ("rows", "auto")}}


def row(name: str, found: dict) -> list[str]:
    """A row of the table."""
    sizes = found["bytes"]
    return [name, f"{100 * found['train']:.1f} %", str(found["parts"]),
            f"{sizes['all'] / 1e6:.2f}", f"{sizes['auto'] / 1e6:.2f}",
            *(f"{sizes[name] / sizes['all']:.2f}" for name in ("needed", "auto", "cover")),
            *(f"{found['last'][name]:.2f}" for name in ("needed", "auto", "cover")),
            f"{found['balance']['rows']:.3f}", f"{found['balance']['auto']:.3f}"]


HEADER = ["graph", "training nodes", "parts", "MB before", "MB now", "needed", "now", "least",
          "last hop: needed", "now", "least", "max/mean work before", "now"]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", choices=tuple(GRAPHS), default=list(GRAPHS))
    parser.add_argument("--work", default=os.path.join(tempfile.gettempdir(), "hpcgcn-accuracy"))
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    from hpcgcn import read_graph
    from hpcgcn.graph.data import TRAIN
    tables: dict[str, list[dict]] = {"usual": [], "per class": []}
    for name in args.graphs:
        graph = read_graph(imported(SimpleNamespace(work=args.work), name))
        given = graph.split[0] == TRAIN
        for n_parts in PARTS:
            usual = random_split(graph) if name in PER_CLASS else given
            tables["usual"].append({"graph": name} | count(graph, usual, n_parts))
            if name in PER_CLASS:
                tables["per class"].append({"graph": name} | count(graph, given, n_parts))
            print(*row(name, tables["usual"][-1]), flush=True)
    shares = [found["bytes"]["auto"] / found["bytes"]["all"] for found in tables["usual"]]
    text = (f"Now {statistics.median(shares):.2f} of the bytes before in the median of the first "
            f"table, {min(shares):.2f} to {max(shares):.2f}. before: all halo rows. Shares of "
            "that: rows that the loss needs; now, with partial sums in the place of rows (`--halo "
            "auto`); least, with all that are fewer, balanced or not (`--halo cover`). work: "
            "entries of the sparse products times their width.")
    names = {"usual": "## The graph's split, or 60 %", "per class": "## 20 nodes per class"}
    sections = [text]
    for key, found in tables.items():
        if found:
            sections += [names[key], markdown_table(HEADER, [row(f["graph"], f) for f in found])]
    page = write_results("least-traffic", "Bytes per epoch: all rows, needed rows, the least",
                         "python benchmarks/least_traffic.py", sections, tables)
    print(page)


if __name__ == "__main__":
    main()
