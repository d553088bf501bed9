"""Which rows a rank reads: an equal run of its host's part."""

from __future__ import annotations

import os

from hpcgcn.errors import ConfigError
from hpcgcn.graph import store
from hpcgcn.graph.data import Part
from hpcgcn.mpi.world import collective_errors, on_root
from hpcgcn.parallel.hosts.groups import HostGroups
from hpcgcn.parallel.loading import checked_together, in_memory
from hpcgcn.parallel.partition.loading import partition_beside


def load_share(groups: HostGroups, source, config) -> Part:
    """This rank's run of its host's part; offsets are those of the runs. Collective."""
    comm = groups.everyone.comm
    graph = in_memory(comm, source, config)
    if graph is not None:
        return Part.whole(graph, config.split_index)
    path = on_root(comm, _divided, os.fspath(source), groups.n_hosts, config)
    with collective_errors(comm):
        part = store.read_share(path, comm.rank, groups.per_host, config.split_index)
    return checked_together(comm, path, part)


def _divided(path: str, n_hosts: int, config) -> str:
    """A file with a part per host: the one given, or one that is made of it now."""
    if store.kind(path) == "graph":
        return path if n_hosts == 1 else partition_beside(path, n_hosts, config)
    n_parts = int(store.header(path)["n_parts"])
    if n_parts != n_hosts:
        raise ConfigError(f"{path} has {n_parts} parts, but parallel = 'hosts' needs one per host, "
                          f"and there are {n_hosts}: give the graph file, or a partition file with "
                          f"{n_hosts} parts (`hpcgcn partition GRAPH -n {n_hosts}`), or declare "
                          "hosts with --ranks-per-host")
    return path
