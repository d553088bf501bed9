"""From a graph file to a partition file: partition, order the nodes, write, and say what it
costs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from hpcgcn.files.replace import Replaces
from hpcgcn.graph.data import Graph
from hpcgcn.graph.partition import partition_graph, statistics
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
           command: str = "", replaces: Replaces | None = None, inputs: Iterable = ()) -> dict:
    """Partition a graph into a file; returns the statistics.

    The settings and the main costs are kept in the file. replaces: as in write_partition.
    """
    assignment = partition_graph(graph, n_parts, method, objective, balance, seed)
    costs = statistics(graph, assignment)
    settings = {"n_parts": n_parts, "method": method, "objective": objective, "balance": balance,
                "reorder": reorder, "seed": seed,
                "statistics": {name: value for name, value in costs.items() if name != "parts"}}
    write_partition(path, graph, assignment, settings=settings, command=command,
                    order=local_order(graph, assignment, reorder), replaces=replaces,
                    inputs=inputs)
    return costs
