"""Dividing nodes for a pipeline of layers: into partitions, and the nodes of a partition into
chunks of about equal work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcgcn import philox
from hpcgcn.errors import ConfigError
from hpcgcn.graph.csr import permuted_indices, permuted_values, take_indptr
from hpcgcn.graph.data import Graph, Part, SparseRows
from hpcgcn.graph.partition import partition_graph
from hpcgcn.graph.partitioners.base import NODES_PER_PART
from hpcgcn.graph.partitioners.even_out import without_empty_parts
from hpcgcn.graph.partitioners.metis import metis_adjacency, metis_parts
from hpcgcn.graph.partitioners.simple import block_parts, random_parts
from hpcgcn.graph.reorder import subgraph

NODE_WEIGHT = 50           # a node counts this much and its degree: update and aggregation
# a chunk is put together from this many METIS parts: more even, at the price of a worse cut
PIECES = 4


@dataclass
class Chunking:
    """All nodes, partition by partition and chunk by chunk."""

    order: np.ndarray                # (n_nodes,) ids of the graph file
    offsets: np.ndarray              # (n_partitions + 1,) where each partition begins
    # of each partition, (n_chunks + 1,) where its chunks begin, counted from its first node
    chunks: list[np.ndarray]


def chunks_per_partition(n_chunks: int, n_ranks: int, n_partitions: int) -> int:
    """Chunks of every partition; `n_chunks` is for all partitions together, 0: four per rank."""
    total = n_chunks or 4 * n_ranks
    if total % n_partitions:
        raise ConfigError(f"chunks = {total} cannot be shared by {n_partitions} partitions: give "
                          f"a multiple of {n_partitions}")
    return total // n_partitions


def make_chunking(graph: Graph, n_partitions: int, n_chunks: int, method: str, objective: str,
                  seed: int) -> Chunking:
    """Divide a graph; n_chunks is that of each partition."""
    if graph.n_nodes < n_partitions * n_chunks:
        raise ConfigError(f"{n_partitions * n_chunks} chunks of a graph with {graph.n_nodes} "
                          "nodes: give --chunks of at most that")
    partition = partition_graph(graph, n_partitions, method, objective, seed=seed)
    order, chunks = [], []
    for number in range(n_partitions):
        nodes = np.flatnonzero(partition == number)
        if len(nodes) < n_chunks:
            raise ConfigError(f"partition {number} has {len(nodes)} nodes for {n_chunks} chunks: "
                              "give fewer --chunks")
        whole = n_partitions == 1 and not graph.directed
        part = chunk_parts(*((graph.indptr, graph.indices) if whole else subgraph(graph, nodes)),
                           n_chunks, method, seed)
        order.append(nodes[np.argsort(part, kind="stable")])
        chunks.append(np.concatenate([[0], np.cumsum(np.bincount(part, minlength=n_chunks))]))
    return Chunking(np.concatenate(order),
                    np.concatenate([[0], np.cumsum([len(nodes) for nodes in order])]), chunks)


def chunk_parts(indptr: np.ndarray, indices: np.ndarray, n_chunks: int, method: str,
                seed: int) -> np.ndarray:
    """The chunk of every node, (n_nodes,) int32, none empty. The adjacency is symmetric."""
    weights, n_nodes = NODE_WEIGHT + np.diff(indptr), len(indptr) - 1
    if n_chunks == 1:
        return np.zeros(n_nodes, np.int32)
    if method == "random":
        return random_parts(weights, n_chunks, seed)
    if method == "block" or not len(indices) or n_nodes < NODES_PER_PART * n_chunks:
        return block_parts(weights, n_chunks)
    pieces = PIECES if n_nodes >= NODES_PER_PART * PIECES * n_chunks else 1
    parts = metis_parts(*metis_adjacency(indptr, indices, symmetric=True), pieces * n_chunks, "cut",
                        seed, weights)
    shuffled = philox.permutation(philox.key(seed, 0, 1, philox.ORDER), pieces * n_chunks)
    return without_empty_parts((shuffled // pieces)[parts].astype(np.int32), n_chunks)


def cut_runs(indptr: np.ndarray, bounds: np.ndarray, runs: int) -> np.ndarray:
    """Where chunks begin if each of some consecutive parts (bounds: their ends) is cut into runs of
    about equal work."""
    starts = [0]
    for start, stop in zip(bounds, bounds[1:]):
        if stop - start < runs:
            raise ConfigError(f"a part of {stop - start} nodes cannot be cut into {runs} chunks: "
                              "give fewer --chunks")
        parts = block_parts(NODE_WEIGHT + np.diff(indptr[start:stop + 1]), runs)
        starts.extend(int(start) + np.cumsum(np.bincount(parts, minlength=runs)))
    return np.array(starts, np.int64)


def partition_of_graph(graph: Graph, chunking: Chunking, partition: int, split_index: int) -> Part:
    """One partition's nodes of a graph in memory, in the order of the chunking.

    Features without rows stay so.
    """
    mine = chunking.order[chunking.offsets[partition]:chunking.offsets[partition + 1]]
    weights = graph.edge_weights
    if len(chunking.chunks) == 1:
        indices = np.concatenate([np.zeros(0, np.int32),
                                  *permuted_indices(graph.indptr, graph.indices, chunking.order)])
        indptr = take_indptr(graph.indptr, chunking.order)
        if weights is not None:
            weights = np.concatenate([np.zeros(0, np.float32), *permuted_values(
                graph.indptr, graph.indices, chunking.order, weights)])
    else:
        inverse = np.empty(graph.n_nodes, np.int64)
        inverse[chunking.order] = np.arange(graph.n_nodes)
        taken = SparseRows(graph.indptr, graph.indices, weights, graph.n_nodes).take(mine)
        indptr, indices, weights = taken.indptr, inverse[taken.indices], taken.values
    features = graph.features
    if features.shape[0]:
        features = features.take(mine) if isinstance(features, SparseRows) else features[mine]
    return Part(offsets=chunking.offsets.astype(np.int64), rank=partition, indptr=indptr,
                indices=indices, features=features, labels=graph.labels[mine],
                split=graph.split[split_index][mine], original_ids=mine.astype(np.int64),
                n_classes=graph.n_classes, directed=graph.directed,
                chunks=chunking.chunks[partition].astype(np.int64), edge_weights=weights)
