"""Getting a rank its part: from a partition file, or from a graph that is partitioned on the
way."""

from __future__ import annotations

import logging
import os
import sys

from hpcgcn.errors import FileError
from hpcgcn.files.replace import check_target
from hpcgcn.graph import store
from hpcgcn.graph.data import Part
from hpcgcn.graph.divide import default_partition_path, divide, open_graph
from hpcgcn.graph.replaceable import own_h5
from hpcgcn.mpi.world import collective_errors, on_root
from hpcgcn.parallel.loading import checked_split, checked_together, in_memory

log = logging.getLogger(__name__)


def load_partition(comm, source, config) -> Part:
    """This rank's part; errors are the same on all ranks. Collective."""
    graph = in_memory(comm, source, config)
    if graph is not None:
        return Part.whole(graph, config.split_index)
    path = os.fspath(source)
    if on_root(comm, store.kind, path) == "graph":
        if comm.size == 1:
            with collective_errors(comm):
                graph = checked_split(path, store.read_graph(path), config)
                return Part.whole(graph, config.split_index)
        path = on_root(comm, partition_beside, path, comm.size, config)
    with collective_errors(comm):
        part = store.read_part(path, comm.rank, comm.size, config.split_index)
    return checked_together(comm, path, part)


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
    with open_graph(path) as graph:
        log.info("partitioning %s into %d parts (%s); they are kept in %s", path, n_parts, method,
                 target)
        divide(graph, target, n_parts, method, objective, reorder="auto",
               command=" ".join(sys.argv), replaces=replaces, inputs=[path])
    return target


def _fits(path: str, graph_uuid: str, n_parts: int) -> bool:
    try:
        facts = store.header(path)
    except FileError:
        return False
    return (facts["kind"] == "partition" and facts["source_uuid"] == graph_uuid
            and facts["n_parts"] == n_parts)
