"""The order of the nodes within each part: near neighbours close together make gathers hit the
cache."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hpcgcn.errors import ConfigError
from hpcgcn.graph.csr import csr_from_edges, entry_positions, row_numbers, take_indptr
from hpcgcn.graph.data import Graph
from hpcgcn.graph.partitioners import PARTITIONERS
from hpcgcn.graph.partitioners.base import Task

# rows of 128 float32 numbers are 1 MiB: about what a core's second-level cache holds
CLUSTER_NODES = 2048
# Entries up to which METIS finds clusters: beyond it takes 100 bytes and a microsecond for each.
METIS_ENTRIES = 2_000_000
# A part whose rows all stay in a last-level cache gains nothing.
CACHED_NODES = 8 * CLUSTER_NODES
_WINDOWS, _WINDOW_ROWS = 64, 512
_WORTH = 0.9               # of the rows to load in the graph's own order


def local_order(graph: Graph, assignment: np.ndarray, method: str = "none") -> np.ndarray:
    """All node ids, part by part, in an order for locality within each part; (n_nodes,) int64.

    none: as in the graph. degree: many neighbours first. rcm: reverse Cuthill-McKee, for meshes.
    cluster: clusters of about CLUSTER_NODES nodes, for graphs with communities. auto: the one
    that loads the fewest rows in the first part.
    """
    check_order(method)
    grouped = np.argsort(assignment, kind="stable")
    if method == "none":
        return grouped
    offsets = np.concatenate([[0], np.cumsum(np.bincount(assignment))])
    for start, stop in zip(offsets[:-1], offsets[1:]):
        nodes = grouped[start:stop]
        inside = subgraph(graph, nodes)
        if method == "auto":
            method = chosen_order(*inside)
        grouped[start:stop] = nodes[order_within(method, *inside)]
    return grouped


def check_order(method: str):
    """Refuse what is no order."""
    if method not in ("auto", *METHODS):
        raise ConfigError(f"reorder is {method!r}; known are auto, {', '.join(METHODS)}")


def order_within(method: str, indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """The rows of one part in an order; the CSR holds every edge both ways."""
    order = METHODS[method]
    return np.arange(len(indptr) - 1) if order is None else order(indptr, indices)


def chosen_order(indptr: np.ndarray, indices: np.ndarray) -> str:
    """The order in which a product loads the fewest rows; `none` if that gains little.

    Counted, not timed, so that a seed gives the same file on every machine: the distinct
    neighbours of _WINDOW_ROWS rows in a row, which a cache holds.
    """
    if len(indptr) - 1 <= CACHED_NODES or not len(indices):
        return "none"
    loads = {method: loaded_rows(indptr, indices, order_within(method, indptr, indices))
             for method in METHODS}
    best = min(loads, key=lambda method: loads[method])
    return best if loads[best] < _WORTH * loads["none"] else "none"


def loaded_rows(indptr: np.ndarray, indices: np.ndarray, order: np.ndarray) -> float:
    """Distinct neighbours per entry in runs of rows, of a sample of runs."""
    starts = np.unique(np.linspace(0, max(0, len(order) - _WINDOW_ROWS), _WINDOWS).astype(np.int64))
    n_distinct = n_entries = 0
    for start in starts:
        rows = order[start:start + _WINDOW_ROWS]
        taken = take_indptr(indptr, rows)
        columns = indices[entry_positions(indptr, rows, taken)]
        n_distinct += len(np.unique(columns))
        n_entries += len(columns)
    return n_distinct / max(1, n_entries)


def subgraph(graph: Graph, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The CSR of the edges among some nodes (sorted ids), numbered from 0, every edge both ways."""
    local = np.full(graph.n_nodes, -1, np.int64)
    local[nodes] = np.arange(len(nodes))
    taken_indptr = take_indptr(graph.indptr, nodes)
    columns = local[graph.indices[entry_positions(graph.indptr, nodes, taken_indptr)]]
    inside = columns >= 0
    rows, columns = row_numbers(taken_indptr)[inside], columns[inside]
    if graph.directed:
        return csr_from_edges(len(nodes), columns, rows, undirected=True)
    indptr = np.concatenate([[0],
                             np.cumsum(np.bincount(rows, minlength=len(nodes)))]).astype(np.int64)
    return indptr, columns


def _by_degree(indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
    return np.argsort(-np.diff(indptr), kind="stable")


def by_cuthill_mckee(indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Rows so that neighbours get numbers near each other; the CSR holds every edge both ways."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    n_nodes = len(indptr) - 1
    matrix = csr_matrix((np.ones(len(indices), np.int8), indices, indptr), shape=(n_nodes, n_nodes))
    return reverse_cuthill_mckee(matrix, symmetric_mode=True)


def _by_cluster(indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
    n_clusters = -(-(len(indptr) - 1) // CLUSTER_NODES)
    if n_clusters < 2 or not len(indices):
        return np.arange(len(indptr) - 1)
    streams = len(indices) > METIS_ENTRIES and not PARTITIONERS["streaming"].missing()
    task = Task(indptr, indices, False, n_clusters, "cut")
    clusters = PARTITIONERS["streaming" if streams else "metis"].parts(task)
    return np.argsort(clusters, kind="stable")


METHODS: dict[str, Callable | None] = {
    "none": None, "degree": _by_degree, "rcm": by_cuthill_mckee, "cluster": _by_cluster}
