"""What all strategies check of a graph that is given in memory or in a file."""

from __future__ import annotations

import numpy as np

from hpcgcn.errors import ConfigError, FileError
from hpcgcn.graph.checks import part_balance
from hpcgcn.graph.data import Graph, Part
from hpcgcn.mpi.world import collective_errors


def in_memory(comm, source, config) -> Graph | None:
    """The graph, if it is given in memory; None for a path."""
    if not isinstance(source, Graph):
        return None
    if comm.size != 1:
        raise ConfigError(f"a graph in memory is for one rank, but {comm.size} were started; "
                          "write it with write_graph")
    return checked_split("the graph", source, config)


def checked_split(path, graph: Graph, config) -> Graph:
    """The graph, if it has the split that the settings choose."""
    if config.split_index >= len(graph.split):
        raise ConfigError(f"split_index = {config.split_index}, but {path} has splits "
                          f"0..{len(graph.split) - 1}")
    return graph


def checked_together(comm, path, part: Part) -> Part:
    """The part, if the parts of all ranks go together: what no rank sees in its own. Collective."""
    sums = np.zeros(2, np.uint64)
    comm.Allreduce(part_balance(part), sums)
    with collective_errors(comm):
        if sums[0]:
            raise FileError(f"{path} is damaged: original_ids are not a permutation of the nodes; "
                            f"partition again")
        if sums[1]:
            raise FileError(f"{path} is damaged: the graph is called undirected, but some edges "
                            "are there one way only; partition again")
    return part
