"""From a graph file to a partition file: partition, order the nodes, write, and say what it
costs."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpcgcn.files.replace import Replaces
from hpcgcn.graph.contents import lazy_graph
from hpcgcn.graph.data import Graph
from hpcgcn.graph.header import kind, open_file
from hpcgcn.graph.partition import statistics, task_of
from hpcgcn.graph.partitioners.choose import Chosen, choose_parts
from hpcgcn.graph.reorder import check_order
from hpcgcn.graph.store import check_graph, read_graph, write_partition
from hpcgcn.graph.survey import survey

# Covers and the rows that hops exchange take so many bytes per entry, for a while.
_BYTES_PER_ENTRY = 40
_MOST_ENTRIES = 400_000_000      # that they are computed for: beyond they take longer than the rest


def default_partition_path(graph_path: str | os.PathLike, n_parts: int, method: str = "auto",
                           objective: str = "auto") -> Path:
    """Where the partition of a graph file is kept: <stem>-<P>.h5 beside it; a method and an
    objective that are not chosen automatically are named."""
    path = Path(graph_path)
    suffix = "".join(f"-{name}" for name in (method, objective) if name != "auto")
    return path.with_name(f"{path.stem}-{n_parts}{suffix}.h5")


@contextlib.contextmanager
def open_graph(path: str | os.PathLike, checked: bool = True) -> Iterator[Graph]:
    """The graph of a file, of which `divide` reads a block at a time; that of a partition file, in
    its original order, is read whole. checked: look at all values, as one rank must."""
    if kind(path) != "graph":
        yield read_graph(path)
        return
    with open_file(path) as file:
        graph = lazy_graph(file)
        if checked:
            check_graph(path, graph)
        yield replace(graph, indptr=graph.indptr[...], split=graph.split[...],
                      uuid=file.attrs["uuid"])


def divide(graph: Graph, path: str | os.PathLike, n_parts: int, method: str = "metis",
           objective: str = "volume", balance: str = "nodes", reorder: str = "none", seed: int = 0,
           command: str = "", ranks_per_host: int = 0, replaces: Replaces | None = None,
           inputs: Iterable = (), memory: float | None = None, force: bool = False) -> dict:
    """Partition a graph into a file; returns the statistics.

    The settings and the main costs are kept in the file. replaces: as in write_partition.
    ranks_per_host: as in statistics. memory: as in task_of; force: as in choose_parts.
    """
    check_order(reorder)
    began = time.perf_counter()
    task = task_of(graph, n_parts, method, objective, balance, seed, memory=memory)
    chosen = choose_parts(task, method, force)
    seconds = time.perf_counter() - began
    return write_divided(graph, chosen, path, n_parts, balance, reorder, seed, task.memory,
                         command=command, ranks_per_host=ranks_per_host, replaces=replaces,
                         inputs=inputs, seconds=seconds)


def write_divided(graph: Graph, chosen: Chosen, path: str | os.PathLike, n_parts: int,
                  balance: str, reorder: str, seed: int, memory: float, *, command: str = "",
                  ranks_per_host: int = 0, replaces: Replaces | None = None,
                  inputs: Iterable = (), seconds: float = 0.0) -> dict:
    """Order the nodes of parts, and write them, a piece at a time; returns the statistics.

    seconds: what finding the parts took.
    """
    n_edges = len(graph.indices)
    fits = n_edges <= min(_MOST_ENTRIES, memory / _BYTES_PER_ENTRY)
    began = time.perf_counter()
    seen = survey(graph, chosen.parts, n_parts, reorder, with_cover=fits)
    surveyed = time.perf_counter()
    costs: dict[str, Any] = statistics(graph, chosen.parts, ranks_per_host=ranks_per_host,
                                       counted=(seen.cut, seen.halo), hops=fits)
    counted = time.perf_counter()
    settings = {"n_parts": n_parts, "method": chosen.method, "objective": chosen.objective,
                "balance": balance, "reorder": seen.reorder, "seed": seed,
                "statistics": {name: value for name, value in costs.items() if name != "parts"}}
    write_partition(path, graph, chosen.parts, settings=settings, command=command,
                    order=seen.order, replaces=replaces, inputs=inputs, cover=seen.cover)
    return {**costs, "method": chosen.method, "objective": chosen.objective, "why": chosen.why,
            "reorder": seen.reorder, "covers": fits,
            "seconds_by": {"partition": seconds, "order and covers": surveyed - began,
                           "rows of hops": counted - surveyed,
                           "write": time.perf_counter() - counted}}
