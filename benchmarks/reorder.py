"""What the order of the nodes within a part (`hpcgcn partition --reorder`) is worth: the sparse
product on one core.

    python benchmarks/reorder.py

Three kinds of graphs, each with its nodes numbered at random first, as most graphs come. Orders
take turns. About two minutes.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
from common import interleave, markdown_table, milliseconds, spread, timed, write_results

from hpcgcn.backend.native import NativeBackend
from hpcgcn.graph.csr import permuted_indices, take_indptr
from hpcgcn.graph.data import Graph
from hpcgcn.graph.generate import generate_rmat, generate_sbm
from hpcgcn.graph.reorder import METHODS, local_order

ORDERS = tuple(METHODS)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=60_000)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=9)
    return parser.parse_args()


def graphs(n: int) -> dict[str, Graph]:
    """Communities, a power law without any, and a mesh."""
    return {"communities (sbm)": generate_sbm(n, 50, n_features=1, n_classes=16, seed=0),
            "power law (rmat)": generate_rmat(n, 50, n_features=1, n_classes=16, seed=0),
            "mesh": mesh(int(n ** 0.5))}


def mesh(side: int) -> Graph:
    """A square grid; every node has up to 8 neighbours."""
    from hpcgcn.graph.csr import csr_from_edges
    number = np.arange(side * side).reshape(side, side)
    pairs = [(number[:, :-1], number[:, 1:]), (number[:-1], number[1:]),
             (number[:-1, :-1], number[1:, 1:]), (number[1:, :-1], number[:-1, 1:])]
    sources, targets = (np.concatenate([pair[side].ravel() for pair in pairs]) for side in (0, 1))
    indptr, indices = csr_from_edges(side * side, sources, targets, undirected=True)
    nodes = side * side
    return Graph(indptr, indices, np.zeros((nodes, 1), np.float32), np.zeros(nodes, np.int32),
                 np.ones((1, nodes), np.uint8), 2, False)


def permuted(graph: Graph, order: np.ndarray) -> Graph:
    indices = np.concatenate(list(permuted_indices(graph.indptr, graph.indices, order)))
    return Graph(take_indptr(graph.indptr, order), indices, graph.features, graph.labels,
                 graph.split, graph.n_classes, False)


def measure(name: str, graph: Graph, args, backend) -> dict:
    """Milliseconds of a product in each order, and seconds to find the order."""
    n = len(graph.indptr) - 1
    graph = permuted(graph, np.random.default_rng(1).permutation(n))
    x = backend.empty((n, args.width))
    x[...] = np.random.default_rng(0).standard_normal(x.shape, dtype=np.float32)
    contenders, finding = {}, {}
    for order in ORDERS:
        began = time.perf_counter()
        found = local_order(graph, np.zeros(n, np.int64), order)
        finding[order] = time.perf_counter() - began
        ordered = permuted(graph, found)
        matrix, out = backend.csr(ordered.indptr, ordered.indices, n), backend.zeros(x.shape)
        contenders[order] = timed(lambda matrix=matrix, out=out: backend.spmm(matrix, x, out))
    seconds = {order: spread(values)
               for order, values in interleave(contenders, args.rounds).items()}
    print(name, {order: milliseconds(found) for order, found in seconds.items()}, flush=True)
    return {"graph": name, "entries": len(graph.indices), "seconds": seconds, "finding": finding}


def main():
    args = arguments()
    backend = NativeBackend(threads=1)
    found = [measure(name, graph, args, backend) for name, graph in graphs(args.nodes).items()]
    times = [[f"{r['graph']}, {r['entries']} entries",
              *(milliseconds(r["seconds"][order]) for order in ORDERS)] for r in found]
    medians = [{order: r["seconds"][order]["median"] for order in ORDERS} for r in found]
    ratios = [[r["graph"], *(f"{median['none'] / median[order]:.2f}" for order in ORDERS)]
              for r, median in zip(found, medians)]
    finding = [[r["graph"], *(f"{r['finding'][order]:.2f}" for order in ORDERS)] for r in found]
    sections = [f"{args.nodes} nodes, numbered at random; one part; {args.width} columns, fp32, "
                f"one core, level {backend.isa}. Milliseconds of a product: median of "
                f"{args.rounds} rounds ± half the distance of the quartiles, orders in turn.",
                markdown_table(["graph", *ORDERS], times),
                "Times as fast as the order of the graph file:",
                markdown_table(["graph", *ORDERS], ratios),
                "Seconds to find the order, once, at partition time:",
                markdown_table(["graph", *ORDERS], finding)]
    command = " ".join(["python benchmarks/reorder.py", *sys.argv[1:]])
    print(write_results("reorder", "Order of the nodes within a part", command, sections,
                        {"graphs": found}).read_text())


if __name__ == "__main__":
    main()
