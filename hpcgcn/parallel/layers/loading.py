"""A pipeline of layers: which nodes a rank holds, in chunks.

Features are for the first stage alone.
"""

from __future__ import annotations

import os

from hpcgcn.errors import ConfigError
from hpcgcn.graph import store
from hpcgcn.graph.data import Graph, Part
from hpcgcn.mpi.world import collective_errors, on_root
from hpcgcn.parallel.layers.chunks import (
    Chunking,
    chunks_per_partition,
    cut_runs,
    make_chunking,
    partition_of_graph,
)
from hpcgcn.parallel.layers.grid import Grid
from hpcgcn.parallel.loading import checked_split, checked_together, in_memory


def load_chunks(grid: Grid, source, config) -> Part:
    """The nodes of this rank's partition, chunk after chunk. Collective."""
    comm, partition, partitions = grid.world.comm, grid.partition, grid.n_partitions
    with collective_errors(comm):
        n_chunks = chunks_per_partition(config.chunks, comm.size, partitions)
    graph = in_memory(comm, source, config)
    if graph is not None:
        return partition_of_graph(graph, _chunking(graph, partitions, n_chunks, config), 0,
                                  config.split_index)
    path = os.fspath(source)
    if on_root(comm, store.kind, path) == "partition":
        with collective_errors(comm):
            part = _chunks_of_parts(path, partition, partitions, grid.first, comm.size, config)
        return checked_together(comm, path, part)

    def divide() -> Chunking:
        return _chunking(checked_split(path, store.read_graph(path), config), partitions, n_chunks,
                         config)

    chunking = on_root(comm, divide)
    with collective_errors(comm):
        graph = store.read_graph(path) if grid.first else store.read_structure(path)
        return partition_of_graph(graph, chunking, partition, config.split_index)


def _chunking(graph: Graph, partitions: int, n_chunks: int, config) -> Chunking:
    return make_chunking(graph, partitions, n_chunks, config.partition_method,
                         config.partition_objective, config.seed)


def _chunks_of_parts(path: str, partition: int, partitions: int, with_features: bool, n_ranks: int,
                     config) -> Part:
    """From a partition file: a rank's partition is some of its parts; a part is some chunks."""
    n_parts = int(store.header(path)["n_parts"])
    total = config.chunks or n_parts * -(-4 * n_ranks // n_parts)
    if n_parts % partitions:
        raise ConfigError(f"{path} has {n_parts} parts, which {partitions} partitions per stage "
                          "cannot share: give the graph file, or a partition whose number of "
                          f"parts is a multiple of {partitions}")
    if total % n_parts:
        raise ConfigError(f"chunks = {total}, but {path} has {n_parts} parts, each of which is "
                          f"cut into equally many chunks: give a multiple of {n_parts}, or the "
                          "graph file")
    part, bounds = store.read_parts(path, partition, partitions, config.split_index, with_features)
    part.chunks = cut_runs(part.indptr, bounds, total // n_parts)
    return part
