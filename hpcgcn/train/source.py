"""Getting a rank its part: from a partition file, or from a graph that is partitioned on the way."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import replace

import numpy as np

from hpcgcn.errors import ConfigError, FileError
from hpcgcn.files.replace import check_target, own_h5
from hpcgcn.graph import store
from hpcgcn.graph.checks import part_balance
from hpcgcn.graph.chunks import Chunking, chunks_a_way, cut_runs, make_chunking, way_of_graph
from hpcgcn.graph.data import Graph, Part, SparseRows
from hpcgcn.graph.divide import default_partition_path, divide
from hpcgcn.mpi.world import collective_errors, on_root
from hpcgcn.parallel.layers.grid import grid_shape

log = logging.getLogger(__name__)


def load_part(comm, source, config) -> Part:
    """This rank's part of a graph file, a partition file or a Graph in memory; errors are the same on all ranks."""
    if isinstance(source, Graph):
        if comm.size != 1:
            raise ConfigError(f"a graph in memory is for one rank, but {comm.size} were started; write it with write_graph")
        _checked_split("the graph", source, config)
        if config.parallel == "layers":
            return way_of_graph(source, _chunking(source, *_ways_and_chunks(comm, config), config), 0, config.split_index)
        return Part.whole(source, config.split_index)
    path = os.fspath(source)
    if config.parallel == "layers":
        return _load_way(comm, path, config)
    if config.parallel == "features":
        return _load_slice(comm, path, config)
    if on_root(comm, store.kind, path) == "graph":
        if comm.size == 1:
            with collective_errors(comm):
                return Part.whole(_checked_split(path, store.read_graph(path), config), config.split_index)
        path = on_root(comm, partition_beside, path, comm.size, config)
    with collective_errors(comm):
        part = store.read_part(path, comm.rank, comm.size, config.split_index)
    return _checked_together(comm, path, part)


def _checked_together(comm, path: str, part: Part) -> Part:
    """The part, if the parts of all ranks go together: what no rank can see in its own. Collective."""
    sums = np.zeros(2, np.uint64)
    comm.Allreduce(part_balance(part), sums)
    with collective_errors(comm):
        if sums[0]:
            raise FileError(f"{path} is damaged: original_ids are not a permutation of the nodes; partition again")
        if sums[1]:
            raise FileError(f"{path} is damaged: the graph is called undirected, but some edges are there one way only; "
                            "partition again")
    return part


def sparse_ranks(config, n_ranks: int) -> int:
    """How many ranks only aggregate (feature parallelism with roles); -1 in the settings means half of them."""
    wanted = n_ranks // 2 if config.sparse_ranks < 0 else config.sparse_ranks
    if wanted >= n_ranks and wanted:
        raise ConfigError(f"sparse_ranks = {wanted} leaves no rank to update: start more than {wanted} ranks (now {n_ranks})")
    return wanted


def _load_slice(comm, path: str, config) -> Part:
    """Feature parallelism: equal runs of a graph file's nodes, or a partition file's parts; ranks that only aggregate
    own no nodes."""
    with collective_errors(comm):
        n_sparse = sparse_ranks(config, comm.size)
        _check_roles(path, n_sparse, comm.size)
        reader = max(comm.rank - n_sparse, 0)
        part = store.read_slice(path, reader, comm.size - n_sparse, config.split_index)
        if n_sparse:
            part = without_rows(part) if comm.rank < n_sparse else part
            part.offsets = np.concatenate([np.zeros(n_sparse, np.int64), part.offsets])
            part.rank = comm.rank
    return _checked_together(comm, path, part)


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


def _ways_and_chunks(comm, config) -> tuple[int, int]:
    ways, _ = grid_shape(config.ways, config.stages, comm.size)
    return ways, chunks_a_way(config.chunks, comm.size, ways)


def _chunking(graph: Graph, ways: int, n_chunks: int, config) -> Chunking:
    return make_chunking(graph, ways, n_chunks, config.partition_method, config.partition_objective, config.seed)


def _load_way(comm, path: str, config) -> Part:
    """A pipeline of layers: the nodes of this rank's way in chunks; features are for the first stage alone."""
    with collective_errors(comm):
        ways, n_chunks = _ways_and_chunks(comm, config)
    stage, way = divmod(comm.rank, ways)
    if on_root(comm, store.kind, path) == "partition":
        with collective_errors(comm):
            part = _way_of_parts(path, way, ways, stage == 0, comm.size, config)
        return _checked_together(comm, path, part)
    chunking = on_root(comm, lambda: _chunking(_checked_split(path, store.read_graph(path), config), ways, n_chunks, config))
    with collective_errors(comm):
        graph = store.read_graph(path) if stage == 0 else store.read_structure(path)
        return way_of_graph(graph, chunking, way, config.split_index)


def _way_of_parts(path: str, way: int, ways: int, with_features: bool, n_ranks: int, config) -> Part:
    """From a partition file: a way is some of its parts, and a part is one chunk or several."""
    n_parts = int(store.header(path)["n_parts"])
    total = config.chunks or n_parts * -(-4 * n_ranks // n_parts)
    if n_parts % ways:
        raise ConfigError(f"{path} has {n_parts} parts, which {ways} ways cannot share: give the graph file, or a partition "
                          f"whose number of parts is a multiple of {ways}")
    if total % n_parts:
        raise ConfigError(f"chunks = {total}, but {path} has {n_parts} parts, each of which is cut into equally many chunks: "
                          f"give a multiple of {n_parts}, or the graph file")
    part, bounds = store.read_parts(path, way, ways, config.split_index, with_features)
    part.chunks = cut_runs(part.indptr, bounds, total // n_parts)
    return part


def without_rows(part: Part) -> Part:
    """The part of a rank that owns no nodes."""
    features = part.features.rows(0, 0) if isinstance(part.features, SparseRows) else part.features[:0]
    return replace(part, indptr=np.zeros(1, np.int64), indices=part.indices[:0], features=features, labels=part.labels[:0],
                   split=part.split[:0], original_ids=part.original_ids[:0])


def _checked_split(path, graph: Graph, config) -> Graph:
    if config.split_index >= len(graph.split):
        raise ConfigError(f"split_index = {config.split_index}, but {path} has splits 0..{len(graph.split) - 1}")
    return graph


def partition_beside(path: str, n_parts: int, config) -> str:
    """The partition file beside the graph that fits; made now if there is none."""
    method, objective = config.partition_method, config.partition_objective
    target = str(default_partition_path(path, n_parts, method, objective))
    uuid = store.header(path)["uuid"]
    if os.path.exists(target) and _fits(target, uuid, n_parts):
        return target
    elsewhere = (f"train keeps the partition of {path} there: rename that file, or call "
                 f"`hpcgcn partition {path} -n {n_parts} -o FILE` and train on FILE")
    replaces = own_h5("partition", elsewhere, source_uuid=uuid)
    check_target(target, replaces, [path])
    graph = store.read_graph(path)
    log.info("partitioning %s into %d parts (%s); they are kept in %s", path, n_parts, method, target)
    divide(graph, target, n_parts, method, objective, command=" ".join(sys.argv),
           replaces=replaces, inputs=[path])
    return target


def _fits(path: str, graph_uuid: str, n_parts: int) -> bool:
    try:
        facts = store.header(path)
    except FileError:
        return False
    return facts["kind"] == "partition" and facts["source_uuid"] == graph_uuid and facts["n_parts"] == n_parts
