"""Which rows of a graph a process sees, and the labels of their neighbours.

Column numbers are those of `labels`: all nodes for a process on its own, which reads the adjacency
block by block; own nodes and then the neighbours that others own for a rank of a job, which holds
its block of the adjacency.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hpcgcn.graph.csr import row_blocks
from hpcgcn.graph.partitioners.base import Alone, Task

ROUNDS = 8                 # blocks of a sweep, after each of which ranks tell each other


class WholeGraph:
    """All rows, read one block after the other."""

    def __init__(self, task: Task):
        self.task, self.ranks = task, Alone()
        self.start, self.n_owned = 0, task.n_nodes

    def first_labels(self) -> np.ndarray:
        """Every node's number, as its label."""
        return np.arange(self.n_owned, dtype=np.int32)

    def blocks(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """(first row, indptr, columns) of consecutive blocks."""
        return self.task.blocks()

    def share(self, labels: np.ndarray):
        """Tell others the labels of this process's nodes: there are no others."""

    def gathered(self, values: np.ndarray) -> np.ndarray:
        """A value of every node."""
        return values


class RankRows:
    """A run of the rows, with about as many entries as those of every other rank. Collective."""

    def __init__(self, task: Task):
        self.task, self.ranks = task, task.ranks
        goals = int(task.indptr[-1]) * np.arange(self.ranks.size + 1) // self.ranks.size
        self.bounds = np.searchsorted(task.indptr, goals)
        self.bounds[0], self.bounds[-1] = 0, task.n_nodes
        self.start, stop = (int(x) for x in self.bounds[self.ranks.rank:self.ranks.rank + 2])
        self.n_owned = stop - self.start
        self.indptr = task.indptr[self.start:stop + 1] - task.indptr[self.start]
        self.columns = self._renumbered(stop)
        self._agree()

    def _renumbered(self, stop: int) -> np.ndarray:
        """The entries of own rows, by number in `labels`."""
        first, last = int(self.task.indptr[self.start]), int(self.task.indptr[stop])
        columns = np.empty(last - first, np.int32)
        place = np.zeros(self.task.n_nodes, np.int32)
        for _, indptr, entries in self.task.blocks(self.start, stop):
            columns[int(indptr[0]) - first:int(indptr[-1]) - first] = entries
            place[entries] = 1
        place[self.start:stop] = 0
        self.ghosts = np.flatnonzero(place).astype(np.int32)
        place[self.start:stop] = np.arange(self.n_owned, dtype=np.int32)
        place[self.ghosts] = self.n_owned + np.arange(len(self.ghosts), dtype=np.int32)
        for rows in row_blocks(self.indptr):
            block = slice(int(self.indptr[rows.start]), int(self.indptr[rows.stop]))
            columns[block] = place[columns[block]]
        return columns

    def _agree(self):
        """Who needs the labels of which nodes."""
        owners = np.searchsorted(self.ghosts, self.bounds)
        asked = [self.ghosts[first:last] for first, last in zip(owners[:-1], owners[1:])]
        self.ghost_at = self.n_owned + owners[:-1]
        self.sends = [nodes - np.int32(self.start) for nodes in self.ranks.exchange(asked)]
        self.sent = [np.full(len(nodes), -1, np.int32) for nodes in self.sends]

    def first_labels(self) -> np.ndarray:
        """Every node's number, as its label."""
        own = np.arange(self.start, self.start + self.n_owned, dtype=np.int32)
        return np.concatenate([own, self.ghosts])

    def blocks(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """The same, equally many on all ranks: labels are shared after each."""
        goals = int(self.indptr[-1]) * np.arange(ROUNDS + 1) // ROUNDS
        cuts = np.searchsorted(self.indptr, goals)
        cuts[0], cuts[-1] = 0, self.n_owned
        for first, last in zip(cuts[:-1].tolist(), cuts[1:].tolist()):
            indptr = self.indptr[first:last + 1]
            yield first, indptr, self.columns[int(indptr[0]):int(indptr[-1])]

    def share(self, labels: np.ndarray):
        """Send the labels that changed since the last time to those who need them. Collective."""
        messages = []
        for nodes, sent in zip(self.sends, self.sent):
            new = labels[nodes]
            changed = np.flatnonzero(new != sent).astype(np.int32)
            messages.append(np.concatenate([changed, new[changed]]))
            sent[changed] = new[changed]
        for at, message in zip(self.ghost_at, self.ranks.exchange(messages)):
            changed, new = np.split(message, 2)
            labels[at + changed] = new

    def gathered(self, values: np.ndarray) -> np.ndarray:
        """A value of every node, on rank 0; elsewhere nothing. Collective."""
        nothing = values[:0]
        mine = [values[:self.n_owned]] + [nothing] * (self.ranks.size - 1)
        return np.concatenate(self.ranks.exchange(mine))
