"""METIS: the best known partitioner in memory; about 100 bytes per entry of the adjacency."""

from __future__ import annotations

import numpy as np

from hpcgcn.errors import GraphError
from hpcgcn.graph.checks import edge_problems, indptr_problems
from hpcgcn.graph.csr import csr_from_edges, row_numbers
from hpcgcn.graph.partitioners.base import Forecast, Partitioner, Size, Task
from hpcgcn.graph.partitioners.even_out import even_out


class Metis(Partitioner):
    """Multilevel k-way partitioning, one thread."""

    name = "metis"
    objectives = ("cut", "volume")

    def forecast(self, size: Size) -> Forecast:
        """What it would take; a directed graph is made undirected first."""
        n_edges = size.n_edges * (2 if size.directed else 1)
        return Forecast(110.0 * n_edges + 200.0 * size.n_nodes, 8e-7 * n_edges)

    def parts(self, task: Task) -> np.ndarray:
        """The part of every node."""
        task = task.in_memory()
        adjacency = metis_adjacency(task.indptr, task.indices, symmetric=not task.directed)
        parts = metis_parts(*adjacency, task.n_parts, task.objective, task.seed, task.weights)
        if task.marked is not None:
            even_out(task.indptr, task.indices, parts, task.marked, task.n_parts)
        return parts


def metis_adjacency(indptr: np.ndarray, indices: np.ndarray,
                    symmetric: bool) -> tuple[np.ndarray, np.ndarray]:
    """The adjacency as METIS wants it: 64-bit, symmetric, no loops.

    METIS trusts its input, so it is checked here.
    """
    indptr, indices = checked_adjacency(indptr, indices, symmetric)
    return indptr.astype(np.int64, copy=False), indices.astype(np.int64)


def checked_adjacency(indptr: np.ndarray, indices,
                      symmetric: bool) -> tuple[np.ndarray, np.ndarray]:
    """An adjacency without loops and with every edge both ways, or GraphError."""
    n_nodes = len(indptr) - 1
    problems = list(indptr_problems(indptr, len(indices), "indptr"))
    problems = problems or list(edge_problems(indptr, indices, n_nodes, symmetric=symmetric))
    if problems:
        raise GraphError("this graph cannot be partitioned: " + "; ".join(problems))
    if not symmetric:
        return csr_from_edges(n_nodes, indices, row_numbers(indptr), undirected=True)
    return indptr, indices


def metis_parts(indptr: np.ndarray, indices: np.ndarray, n_parts: int, objective: str, seed: int,
                weights: np.ndarray | None = None,
                edge_weights: np.ndarray | None = None) -> np.ndarray:
    """What METIS's k-way scheme makes of an adjacency from `metis_adjacency`; some parts may be
    empty."""
    import pymetis

    # Recursive bisection, which pymetis prefers for few parts, knows no volume objective.
    kind = pymetis.ObjType.VOL if objective == "volume" else pymetis.ObjType.CUT
    options = pymetis.Options(objtype=int(kind), seed=int(seed) % 2 ** 31)
    try:
        division = pymetis.part_graph(n_parts, pymetis.CSRAdjacency(indptr, indices),
                                      vweights=weights, eweights=edge_weights, recursive=False,
                                      options=options)
    except RuntimeError:
        # METIS takes SIGTERM as an error of its own while it works.
        raise GraphError("METIS ended without a result: it failed, or this process was told to end "
                         "(SIGTERM); the method 'block' does without it") from None
    return np.asarray(division.vertex_part).astype(np.int32)
