"""Small graphs in memory, and the shortest way from one to a trainer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hpcgcn.config import make_config
from hpcgcn.graph.csr import csr_from_edges, row_numbers
from hpcgcn.graph.data import TRAIN, UNUSED, Graph, Part, SparseRows
from hpcgcn.graph.generate import generate_sbm
from hpcgcn.graph.store import write_graph


def small_graph(n_nodes=31, n_edges=70, n_features=6, n_classes=4, *, directed=False, sparse=False,
                multilabel=False, weighted=False, train_share=0.5, seed=0) -> Graph:
    """A random graph with isolated nodes and labels that its features tell something about."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, n_nodes, (2, n_edges))
    ends = ends[:, ends[0] != ends[1]]
    indptr, indices = csr_from_edges(n_nodes, *ends, undirected=not directed)
    classes = rng.integers(0, n_classes, n_nodes).astype(np.int32)
    features = (rng.standard_normal((n_nodes, n_features))
                + rng.standard_normal((n_classes, n_features))[classes])
    features = features.astype(np.float32)
    labels = (rng.random((n_nodes, n_classes)) < 0.4).astype(np.uint8) if multilabel else classes
    split = np.where(rng.random(n_nodes) < train_share, TRAIN,
                     rng.integers(2, 4, n_nodes)).astype(np.uint8)
    split[:2] = TRAIN
    return Graph(indptr, indices, sparse_rows(rng, features) if sparse else features, labels,
                 split[None], n_classes, directed,
                 edge_weights=edge_weights(indptr, indices, directed, seed) if weighted else None)


def graph_files(folder, **others) -> dict:
    """Paths of a plain, a directed and a sparse graph, for jobs, and of others by their changes."""
    graphs = {"plain": generate_sbm(220, 8, 12, 5, seed=2),
              "directed": small_graph(150, 500, 9, 5, directed=True),
              "sparse": small_graph(150, 500, 20, 5, sparse=True),
              **{name: small_graph(150, 500, 9, 5, **changes)
                 for name, changes in others.items()}}
    for name, graph in graphs.items():
        write_graph(folder / f"{name}.h5", graph)
    return {name: folder / f"{name}.h5" for name in graphs}


def edge_weights(indptr: np.ndarray, indices: np.ndarray, directed: bool, seed=0) -> np.ndarray:
    """A weight per entry, some of them 0; the same both ways unless edges are directed."""
    n_nodes, rows = len(indptr) - 1, row_numbers(indptr)
    table = np.random.default_rng(seed).uniform(-0.2, 3, (n_nodes, n_nodes)).clip(0)
    if not directed:
        table = np.maximum(table, table.T)
        table[table < 0.8] = 0
    return table[rows, indices].astype(np.float32)


def sparse_rows(rng, features: np.ndarray) -> SparseRows:
    """About a third of the entries, some rows empty."""
    kept = rng.random(features.shape) < 0.35
    kept[::7] = False
    rows, columns = np.nonzero(kept)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(features)))]).astype(
        np.int64)
    return SparseRows(indptr, columns.astype(np.int32), features[rows, columns], features.shape[1])


def dense_features(graph: Graph) -> np.ndarray:
    """The features as float64, whatever their form."""
    features = graph.features
    return (features.to_dense() if isinstance(features, SparseRows)
            else features).astype(np.float64)


def dense_adjacency(graph: Graph) -> np.ndarray:
    """(n, n) float64: entry [v, u] is the weight of the edge from u to v, or 1."""
    matrix = np.zeros((graph.n_nodes,) * 2)
    weights = graph.edge_weights
    matrix[row_numbers(graph.indptr), graph.indices] = 1 if weights is None else weights
    return matrix


def make_trainer(graph: Graph, **settings):
    """A trainer on one rank of its own."""
    from mpi4py import MPI

    from hpcgcn.backend import make_backend
    from hpcgcn.mpi.runtime import Runtime
    from hpcgcn.train.trainer import Trainer
    config = make_config({"backend": "reference", "threads": 1, **settings})
    backend, _ = make_backend(config.backend, config.dtype, 1, graphs=config.cuda_graphs,
                              precision=config.precision)
    return Trainer(Runtime(MPI.COMM_SELF), backend, Part.whole(graph), config)


def few_train(graph: Graph, n_train: int) -> Graph:
    """The same graph with so many training nodes: later hops then need few rows."""
    split = graph.split.copy()
    split[0, np.flatnonzero(split[0] == TRAIN)[n_train:]] = UNUSED
    return replace(graph, split=split)


def needed_rows(graph: Graph, n_hops: int) -> list[np.ndarray]:
    """Which rows block 0 .. n_hops needs, by hand: from the training nodes to those they read."""
    needed = [graph.split[0] == TRAIN]
    for _ in range(n_hops):
        reached = needed[0].copy()
        for node in np.flatnonzero(needed[0]):
            reached[graph.indices[graph.indptr[node]:graph.indptr[node + 1]]] = True
        needed.insert(0, reached)
    return needed
