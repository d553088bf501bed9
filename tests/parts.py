"""Parts of a graph in memory, cut as a test likes, and the partition written once more by hand."""

from __future__ import annotations

import numpy as np

from hpcgcn.graph.data import Graph, Part, SparseRows


def cut(graph: Graph, owner: np.ndarray, rank: int, size: int) -> Part:
    """What `rank` owns if node v belongs to part owner[v]; parts may be empty."""
    order = np.argsort(owner, kind="stable")                         # file order: part after part
    place = np.empty(graph.n_nodes, np.int64)
    place[order] = np.arange(graph.n_nodes)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=size))]).astype(np.int64)
    mine = order[offsets[rank]:offsets[rank + 1]]
    rows = [np.sort(place[graph.indices[graph.indptr[v]:graph.indptr[v + 1]]]) for v in mine]
    indptr = np.concatenate([[0], np.cumsum([len(r) for r in rows])]).astype(np.int64)
    features = graph.features.take(mine) if isinstance(graph.features,
                                                       SparseRows) else graph.features[mine]
    return Part(offsets=offsets, rank=rank, indptr=indptr,
                indices=np.concatenate([np.zeros(0, np.int64), *rows]),
                features=features, labels=graph.labels[mine], split=graph.split[0][mine],
                original_ids=mine.astype(np.int64),
                n_classes=graph.n_classes, directed=graph.directed)


def owners(kind: str, n_nodes: int, size: int, components: np.ndarray | None = None) -> np.ndarray:
    """Who owns which node, ordinary and awkward."""
    rng = np.random.default_rng(9)
    if kind == "random":
        owner = rng.integers(0, size, n_nodes)
        owner[:size] = np.arange(size)
        return owner
    if kind == "blocks":
        return np.sort(rng.integers(0, size, n_nodes))
    if kind == "one-node-parts":  # all ranks but the first own a single node
        owner = np.zeros(n_nodes, np.int64)
        owner[1:size] = np.arange(1, size)
        return owner
    if kind == "no-halo":  # the last rank owns a component of its own
        owner = rng.integers(0, max(size - 1, 1), n_nodes)
        owner[components] = size - 1
        return owner
    if kind == "empty-part":                                          # the first rank owns nothing
        return rng.integers(min(1, size - 1), size, n_nodes)
    raise ValueError(kind)


KINDS = ("random", "blocks", "one-node-parts", "no-halo", "empty-part")


def with_island(graph: Graph, first: int) -> tuple[Graph, np.ndarray]:
    """The graph without edges between nodes below `first` and the others; and the others."""
    rows = []
    for v in range(graph.n_nodes):
        neighbours = graph.indices[graph.indptr[v]:graph.indptr[v + 1]]
        rows.append(neighbours[(neighbours < first) == (v < first)])
    indptr = np.concatenate([[0], np.cumsum([len(r) for r in rows])]).astype(np.int64)
    cut_graph = Graph(indptr, np.concatenate(rows), graph.features, graph.labels, graph.split,
                      graph.n_classes, graph.directed)
    return cut_graph, np.arange(first, graph.n_nodes)


def awkward(kind: str, size: int, **changes) -> tuple[Graph, np.ndarray]:
    """A graph and who owns what."""
    from small_graphs import small_graph
    graph, island = small_graph(**changes), None
    if kind == "no-halo":
        graph, island = with_island(graph, graph.n_nodes * 2 // 3)
    return graph, owners(kind, graph.n_nodes, size, island)


def matrix_of(graph: Graph, normalisation: str, self_loops: bool) -> np.ndarray:
    """The dense aggregation matrix in the graph's own order."""
    from small_graphs import dense_adjacency
    matrix = dense_adjacency(graph) + self_loops * np.eye(graph.n_nodes)
    degree = np.maximum(matrix.sum(1), 1)
    return (matrix / degree[:, None] if normalisation == "mean"
            else matrix / np.sqrt(np.outer(degree, degree)))
