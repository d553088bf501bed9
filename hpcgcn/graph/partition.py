"""Dividing a graph into parts, and what a division costs: edges cut, rows to exchange, balance."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpcgcn.errors import ConfigError
from hpcgcn.graph.csr import entry_positions, row_blocks, take_indptr
from hpcgcn.graph.data import TRAIN, Graph
from hpcgcn.graph.partitioners import PARTITIONERS
from hpcgcn.graph.partitioners.base import Alone, Task
from hpcgcn.graph.partitioners.choose import choose_parts
from hpcgcn.graph.partitioners.memory import free_memory
from hpcgcn.graph.traffic import exchanged_rows, rows_between_hosts

METHODS = ("auto", *PARTITIONERS)
OBJECTIVES = ("auto", "volume", "cut")
BALANCES = ("nodes", "edges", "train")


def partition_graph(graph: Graph, n_parts: int, method: str = "metis", objective: str = "volume",
                    balance: str = "nodes", seed: int = 0, split_index: int = 0) -> np.ndarray:
    """The part of every node, (n_nodes,) int32; no part is empty.

    objective: `volume` makes few rows to exchange, which METIS alone can, `cut` few edges between
    parts and is faster; `auto` tries both where that is cheap. balance: what the parts have equally
    much of; `train` is the training nodes of a split as well as all nodes.
    """
    task = task_of(graph, n_parts, method, objective, balance, seed, split_index)
    return choose_parts(task, method).parts


def task_of(graph: Graph, n_parts: int, method: str = "auto", objective: str = "auto",
            balance: str = "nodes", seed: int = 0, split_index: int = 0,
            memory: float | None = None, ranks: Any = None) -> Task:
    """What a partitioner is asked for; the graph's `indices` may be a dataset.

    memory: bytes that may be used on every host (None: what is free); ranks: of the job, that take
    part.
    """
    _check_choice("method", method, METHODS)
    _check_choice("objective", objective, OBJECTIVES)
    _check_choice("balance", balance, BALANCES)
    if not 1 <= n_parts <= graph.n_nodes:
        raise ConfigError(f"{n_parts} parts of a graph with {graph.n_nodes} nodes: give between "
                          f"1 and {graph.n_nodes}")
    weights = np.diff(graph.indptr) + 1 if balance == "edges" else None
    marked = graph.split[split_index] == TRAIN if balance == "train" else None
    return Task(graph.indptr, graph.indices, graph.directed, n_parts, objective, seed, weights,
                marked, free_memory() if memory is None else memory, ranks or Alone())


def statistics(graph: Graph | tuple[np.ndarray, np.ndarray], assignment: np.ndarray,
               split_index: int = 0, ranks_per_host: int = 0,
               counted: tuple[np.ndarray, np.ndarray] | None = None, hops: bool = True) -> dict:
    """What a division costs; of a graph, or of a pair (indptr, indices) that is taken as
    undirected.

    halo_rows is M, the sum over parts of distinct in-neighbours owned by others; halo_ratio is M /
    n_nodes; a balance is the largest part over the mean. Cut edges of an undirected graph count
    once. ranks_per_host: so many parts in a row are on one host; 0: that is not known. counted:
    entries that each part reads of others, and its halo rows, if that is known; hops: count the
    rows that the hops of a model exchange, which takes all entries in memory.
    """
    indptr, indices = (graph.indptr, graph.indices) if isinstance(graph, Graph) else graph
    directed = isinstance(graph, Graph) and graph.directed
    n_parts, n_nodes = int(assignment.max()) + 1, len(assignment)
    cut, halo = counted or _cut_and_halo(indptr, indices, assignment, n_parts)
    parts = {"nodes": np.bincount(assignment, minlength=n_parts),
             "edges": np.bincount(assignment, np.diff(indptr), n_parts).astype(np.int64),
             "halo": halo}
    if isinstance(graph, Graph):
        parts["train"] = np.bincount(assignment[graph.split[split_index] == TRAIN],
                                     minlength=n_parts)
    edge_cut, n_edges = (int(cut.sum()),
                         len(indices)) if directed else (int(cut.sum()) // 2, len(indices) // 2)
    return {"n_parts": n_parts, "n_nodes": n_nodes, "n_edges": len(indices),
            "edge_cut": edge_cut, "edge_cut_share": edge_cut / max(1, n_edges),
            "halo_rows": int(halo.sum()), "halo_ratio": int(halo.sum()) / n_nodes,
            "balance": {name: float(counts.max() / counts.mean()) if counts.any() else 1.0
                        for name, counts in parts.items()},
            "parts": {name: counts.tolist() for name, counts in parts.items()},
            **(_hops(graph, assignment, split_index, ranks_per_host) if hops else {})}


def _hops(graph, assignment: np.ndarray, split_index: int, ranks_per_host: int) -> dict:
    """Rows that the last hops of a model exchange: all, those that the loss needs, and the fewest
    rows and sums that take their place."""
    if not isinstance(graph, Graph):
        return {}
    trains = graph.split[split_index] == TRAIN
    if not graph.multilabel:
        trains = trains & (graph.labels[...] >= 0)
    indices = graph.indices[...]
    hops = exchanged_rows(graph.indptr, indices, assignment, trains)
    counts = [{name: hop[name] for name in ("all", "needed", "auto", "cover")} for hop in hops]
    if ranks_per_host:
        between = rows_between_hosts(graph.indptr, indices, assignment, trains, ranks_per_host)
        counts = [hop | other for hop, other in zip(counts, between)]
    return {"hops_from_loss": counts}


def _cut_and_halo(indptr, indices, assignment, n_parts: int) -> tuple[np.ndarray, np.ndarray]:
    """For every part: entries that lie in other parts, and how many distinct nodes they are."""
    cut, halo = np.zeros(n_parts, np.int64), np.zeros(n_parts, np.int64)
    order = np.argsort(assignment, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(assignment, minlength=n_parts))])
    for part in range(n_parts):
        rows = order[offsets[part]:offsets[part + 1]]
        taken_indptr = take_indptr(indptr, rows)
        is_halo = np.zeros(len(assignment), bool)
        for block in row_blocks(taken_indptr):
            columns = indices[entry_positions(indptr, rows[block],
                                              taken_indptr[block.start:block.stop + 1])]
            remote = columns[assignment[columns] != part]
            is_halo[remote] = True
            cut[part] += len(remote)
        halo[part] = np.count_nonzero(is_halo)
    return cut, halo


def _check_choice(name: str, value: str, known: tuple[str, ...]):
    if value not in known:
        raise ConfigError(f"{name} is {value!r}; known are {', '.join(known)}")
