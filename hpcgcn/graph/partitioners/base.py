"""What a partitioner is given and what it says of itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hpcgcn.graph.csr import row_blocks

UNEVEN = 1.03              # the largest part over the mean that METIS allows, and so do we
NODES_PER_PART = 8         # with fewer, METIS leaves parts empty and complains on standard output


@dataclass(frozen=True)
class Size:
    """What a forecast depends on."""

    n_nodes: int
    n_edges: int                     # entries of the adjacency
    n_parts: int
    directed: bool = False
    n_ranks: int = 1
    ranks_per_host: int = 1


@dataclass(frozen=True)
class Forecast:
    """What a partitioner would take; the memory is that of a host."""

    n_bytes: float
    seconds: float


class Alone:
    """The ranks of a process that is not part of a job."""

    rank, size, per_host = 0, 1, 1

    def agreed(self):
        """A block whose errors are raised on all ranks. Collective."""
        return contextlib.nullcontext()

    def exchange(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """What each rank has sent to this one, given what this one sends to each. Collective."""
        return arrays

    def sum(self, array: np.ndarray) -> np.ndarray:
        """The sum of an array over all ranks. Collective."""
        return array


@dataclass(frozen=True)
class Task:
    """A graph to divide. `indices` may be a dataset of an open file: then it is read in blocks."""

    indptr: np.ndarray               # (n_nodes + 1,) int64
    indices: Any                     # (n_edges,) of int32 or int64, array or dataset
    directed: bool
    n_parts: int
    objective: str = "cut"
    seed: int = 0
    weights: np.ndarray | None = None    # (n_nodes,) int64: what is made equal; None: nodes
    marked: np.ndarray | None = None     # (n_nodes,) bool: nodes that are made equal as well
    memory: float = 1e18             # bytes that may be used on a host
    ranks: Any = field(default_factory=Alone)

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.indptr) - 1

    @property
    def size(self) -> Size:
        """What a forecast depends on."""
        return Size(self.n_nodes, len(self.indices), self.n_parts, self.directed, self.ranks.size,
                    self.ranks.per_host)

    def in_memory(self) -> Task:
        """The same with all entries as an array."""
        return replace(self, indices=self.indices[...])

    def blocks(self, start: int = 0,
               stop: int | None = None) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """(first row, indptr, entries) of consecutive blocks of rows, read one after the other."""
        stop = self.n_nodes if stop is None else stop
        for rows in row_blocks(self.indptr[start:stop + 1]):
            indptr = self.indptr[start + rows.start:start + rows.stop + 1]
            yield start + rows.start, indptr, self.indices[int(indptr[0]):int(indptr[-1])]


class Partitioner:
    """A way to divide a graph."""

    name = ""
    objectives: tuple[str, ...] = ("cut",)       # what it can minimise
    reads_edges = True               # else parts do not depend on the edges
    on_ranks = False                 # does every rank of the job take part?

    def missing(self) -> str:
        """Why it cannot be used here, with the remedy; empty if it can."""
        return ""

    def forecast(self, size: Size) -> Forecast:
        """What it would take."""
        raise NotImplementedError

    def parts(self, task: Task) -> np.ndarray:
        """The part of every node, (n_nodes,) int32; some parts may be empty. On rank 0, if ranks
        take part."""
        raise NotImplementedError
