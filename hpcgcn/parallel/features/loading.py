"""Feature parallelism: every rank updates a run of the nodes; ranks that only aggregate own
none."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np

from hpcgcn.errors import ConfigError
from hpcgcn.graph import store
from hpcgcn.graph.data import Part, SparseRows
from hpcgcn.mpi.world import collective_errors
from hpcgcn.parallel.loading import checked_together, in_memory


def count_sparse_ranks(config, n_ranks: int) -> int:
    """How many ranks only aggregate; -1 in the settings means half of them."""
    count = n_ranks // 2 if config.sparse_ranks < 0 else config.sparse_ranks
    if count >= n_ranks and count:
        raise ConfigError(f"sparse_ranks = {count} leaves no rank to update: start more than "
                          f"{count} ranks (now {n_ranks})")
    return count


def load_slice(comm, source, config, n_sparse: int) -> Part:
    """Equal runs of a graph file's nodes, or a partition file's parts. Collective."""
    graph = in_memory(comm, source, config)
    if graph is not None:
        return Part.whole(graph, config.split_index)
    path = os.fspath(source)
    with collective_errors(comm):
        _check_roles(path, n_sparse, comm.size)
        reader = max(comm.rank - n_sparse, 0)
        part = store.read_slice(path, reader, comm.size - n_sparse, config.split_index)
        if n_sparse:
            part = without_rows(part) if comm.rank < n_sparse else part
            part.offsets = np.concatenate([np.zeros(n_sparse, np.int64), part.offsets])
            part.rank = comm.rank
    return checked_together(comm, path, part)


def _check_roles(path: str, n_sparse: int, n_ranks: int):
    """Parts of a file are for the ranks that update; say so where their number does not fit."""
    if not n_sparse or store.kind(path) != "partition":
        return
    n_parts, n_dense = int(store.header(path)["n_parts"]), n_ranks - n_sparse
    if n_parts != n_dense:
        raise ConfigError(f"{path} has {n_parts} parts, but with roles only {n_dense} of {n_ranks} "
                          f"ranks own nodes ({n_sparse} only aggregate): give the graph file, or a "
                          f"partition file with {n_dense} parts (`hpcgcn partition GRAPH -n "
                          f"{n_dense}`), or change --sparse-ranks")


def without_rows(part: Part) -> Part:
    """The part of a rank that owns no nodes."""
    features = part.features
    features = features.rows(0, 0) if isinstance(features, SparseRows) else features[:0]
    return replace(part, indptr=np.zeros(1, np.int64), indices=part.indices[:0], features=features,
                   edge_weights=None if part.edge_weights is None else part.edge_weights[:0],
                   labels=part.labels[:0], split=part.split[:0], original_ids=part.original_ids[:0])
