"""From a graph file to a partition file: partition, order the nodes, write, and say what it
costs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from hpcgcn.files.replace import Replaces
from hpcgcn.graph.data import Graph
from hpcgcn.graph.halo_cover import halo_cover
from hpcgcn.graph.partition import partition_graph, statistics
from hpcgcn.graph.partition_file import grouped
from hpcgcn.graph.reorder import local_order
from hpcgcn.graph.store import write_partition


def default_partition_path(graph_path: str | os.PathLike, n_parts: int, method: str = "metis",
                           objective: str = "volume") -> Path:
    """Where the partition of a graph file is kept: <stem>-<P>.h5 beside it; other methods than the
    default are named."""
    path = Path(graph_path)
    suffix = {("metis", "volume"): "", ("metis", "cut"): "-cut"}.get((method, objective),
                                                                     f"-{method}")
    return path.with_name(f"{path.stem}-{n_parts}{suffix}.h5")


def divide(graph: Graph, path: str | os.PathLike, n_parts: int, method: str = "metis",
           objective: str = "volume", balance: str = "nodes", reorder: str = "none", seed: int = 0,
           command: str = "", ranks_per_host: int = 0, replaces: Replaces | None = None,
           inputs: Iterable = ()) -> dict:
    """Partition a graph into a file; returns the statistics.

    The settings and the main costs are kept in the file. replaces: as in write_partition.
    ranks_per_host: as in statistics.
    """
    began = time.perf_counter()
    assignment = partition_graph(graph, n_parts, method, objective, balance, seed)
    order = grouped(assignment, local_order(graph, assignment, reorder))
    partitioned = time.perf_counter()
    cover = halo_cover(graph.indptr, graph.indices, assignment, order)
    covered = time.perf_counter()
    costs = statistics(graph, assignment, ranks_per_host=ranks_per_host)
    costs["seconds_by"] = {"partition": partitioned - began, "cover": covered - partitioned}
    settings = {"n_parts": n_parts, "method": method, "objective": objective, "balance": balance,
                "reorder": reorder, "seed": seed,
                "statistics": {name: value for name, value in costs.items()
                               if name not in ("parts", "seconds_by")}}
    write_partition(path, graph, assignment, settings=settings, command=command,
                    order=order, replaces=replaces, inputs=inputs, cover=cover)
    return costs
