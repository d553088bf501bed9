"""The order of the nodes within each part: near neighbours close together make gathers hit the
cache."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hpcgcn.errors import ConfigError
from hpcgcn.graph.csr import csr_from_edges, entry_positions, row_numbers, take_indptr
from hpcgcn.graph.data import Graph
from hpcgcn.graph.partition import metis_parts

# rows of 128 float32 numbers are 1 MiB: about what a core's second-level cache holds
CLUSTER_NODES = 2048


def local_order(graph: Graph, assignment: np.ndarray, method: str = "none") -> np.ndarray:
    """All node ids, part by part, in an order for locality within each part; (n_nodes,) int64.

    none: as in the graph. degree: many neighbours first. rcm: reverse Cuthill-McKee, for meshes.
    cluster: METIS divides each part into clusters of about CLUSTER_NODES nodes, for graphs with
    communities.
    """
    if method not in METHODS:
        raise ConfigError(f"reorder is {method!r}; known are {', '.join(METHODS)}")
    grouped = np.argsort(assignment, kind="stable")
    order_within = METHODS[method]
    if order_within is None:
        return grouped
    offsets = np.concatenate([[0], np.cumsum(np.bincount(assignment))])
    for start, stop in zip(offsets[:-1], offsets[1:]):
        nodes = grouped[start:stop]
        grouped[start:stop] = nodes[order_within(*subgraph(graph, nodes))]
    return grouped


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
    clusters = metis_parts(indptr, indices, n_clusters, "cut", seed=0)
    return np.argsort(clusters, kind="stable")


METHODS: dict[str, Callable | None] = {
    "none": None, "degree": _by_degree, "rcm": by_cuthill_mckee, "cluster": _by_cluster}
