"""How long the covers of a partition file take: beside METIS, and of 100 million cut edges.

    python benchmarks/cover.py          about 10 minutes and 8 GiB; --edges for a try

Covers (rows or partial sums, whichever are fewer) are computed once, when a graph is partitioned.
Writes benchmarks/results/cover.md and .json.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

import numpy as np
from common import markdown_table, write_results

METIS = {"block model, degree 30": ("sbm", 100000, 30), "R-MAT, degree 20": ("rmat", 131072, 20),
         "grid, degree 8": ("grid", 160000, 8)}
DEGREE = 50                          # of the large graph, whose parts are random


def made(kind: str, n_nodes: int, degree: int):
    from hpcgcn.graph import generate
    return getattr(generate, f"generate_{kind}")(n_nodes, degree, 1, 4, seed=0)


def measure(graph, n_parts: int, method: str) -> dict:
    """Seconds of partitioning and of the covers, and what these save."""
    from hpcgcn.graph.csr import row_numbers
    from hpcgcn.graph.halo_cover import halo_cover
    from hpcgcn.graph.partition import partition_graph
    from hpcgcn.graph.partition_file import grouped
    from hpcgcn.graph.reorder import local_order
    began = time.perf_counter()
    assignment = partition_graph(graph, n_parts, method)
    order = grouped(assignment, local_order(graph, assignment, "none"))
    partitioned = time.perf_counter()
    _, covers = halo_cover(graph.indptr, graph.indices, assignment, order)
    covered = time.perf_counter()
    cut = sum(int(np.count_nonzero(assignment[graph.indices[graph.indptr[a]:graph.indptr[b]]]
                                   != assignment[a + row_numbers(graph.indptr[a:b + 1]
                                                                 - graph.indptr[a])]))
              for a, b in chunks(graph.n_nodes))
    return {"edges": graph.n_edges, "cut": cut, "parts": n_parts, "halo_rows": len(covers),
            "kept_rows": int(covers.sum()), "partition_seconds": partitioned - began,
            "cover_seconds": covered - partitioned,
            "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2 ** 20}


def chunks(n: int, size: int = 1 << 16) -> list[tuple[int, int]]:
    return [(at, min(at + size, n)) for at in range(0, n, size)]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=float, default=1.15e8, help="of the large graph")
    parser.add_argument("--parts", type=int, default=8)
    args = parser.parse_args()
    rows, data = [], []
    large = {f"R-MAT, degree {DEGREE}, random parts": ("rmat", int(args.edges) // DEGREE, DEGREE)}
    for name, shape in (METIS | large).items():
        graph = made(*shape)
        found = measure(graph, args.parts, "random" if name in large else "metis")
        data.append({"graph": name} | found)
        share = found["cover_seconds"] / found["partition_seconds"]
        rows.append([name, f"{found['edges'] / 1e6:.1f}", f"{found['cut'] / 1e6:.1f}",
                     f"{found['partition_seconds']:.1f}", f"{found['cover_seconds']:.1f}",
                     "-" if name in large else f"{100 * share:.1f} %", f"{found['peak_gib']:.1f}"])
        print(*rows[-1], flush=True)
    page = write_results("cover", "Seconds for the covers of a partition",
                         " ".join(["python benchmarks/cover.py", *sys.argv[1:]]), [
                             f"{args.parts} parts, one process. Random parts take no time and cut "
                             "most edges: many more than METIS's parts of such a graph.",
                             markdown_table(["graph", "million edges", "million cut",
                                             "partitioning s", "covers s", "share",
                                             "GiB, peak so far"], rows)], {"graphs": data})
    print(page)


if __name__ == "__main__":
    main()
