"""Dividing a graph of which a process holds one label per node and a block of the adjacency.

Three steps, each a few passes over the rows. Nodes join the cluster that most of their neighbours
are in, as long as it is small. METIS divides the graph of the clusters. Nodes then move to the part
that holds most of their neighbours, while it has room; the fuller a part is, the more neighbours
it takes (Fennel's cost). If there are too many pairs of clusters for METIS, nodes start without
parts, and only the last step is done: that is Fennel with several passes.
"""

from __future__ import annotations

import math

import numpy as np

from hpcgcn.backend.native.library import available, kernels
from hpcgcn.errors import BackendError, ConfigError, GraphError
from hpcgcn.graph.partitioners.base import UNEVEN, Task
from hpcgcn.graph.partitioners.even_out import even_out
from hpcgcn.graph.partitioners.metis import metis_parts

CLUSTERS_PER_PART = 32     # at least: METIS has something to balance with
_CLUSTER_SWEEPS, _SWEEPS = 5, 10
_SETTLED = 0.001           # share of nodes that still move
_PRICE = 1.5               # of a full part, in mean degrees
_FENNEL_PRICE = 0.75
PAIR_BYTES = 260           # of a pair of clusters: table, sorted copies and METIS
_TABLE_PAIR_BYTES = 16


def check_task(task: Task):
    """Refuse what labels of 32 bits, or a missing compiler, do not allow."""
    if task.n_nodes >= 2 ** 31:
        raise ConfigError(f"{task.n_nodes} nodes: labels are numbers of 32 bits; choose method "
                          "'block' or 'random', or METIS where memory allows")
    if not available()[0]:
        raise BackendError(f"this method needs compiled kernels: {available()[1]}")


def divide_view(view, task: Task) -> np.ndarray:
    """The part of every node on rank 0; of own nodes elsewhere. Collective over the view's
    ranks."""
    run = kernels().operations("plain")
    job = _Job(view, task, run)
    parts = job.parts_of_clusters(job.clusters())
    job.refine(parts)
    everyone = view.gathered(parts[:view.n_owned])
    if task.marked is not None and len(everyone):
        # The few that passes over the rows have not spread, whatever their neighbours.
        even_out(np.zeros(task.n_nodes + 1, np.int64), np.zeros(0, np.int32), everyone,
                 task.marked, task.n_parts)
    return everyone


class _Job:
    """One division."""

    def __init__(self, view, task: Task, run: dict):
        self.view, self.task, self.run, self.ranks = view, task, run, view.ranks
        own = slice(view.start, view.start + view.n_owned)
        self.weights = None if task.weights is None else np.ascontiguousarray(task.weights[own])
        self.marks = (None if task.marked is None
                      else np.ascontiguousarray(task.marked[own]).view(np.uint8))
        self.total = task.n_nodes if task.weights is None else int(task.weights.sum())
        self.seed = int(task.seed) % 2 ** 20
        self.memory = task.memory / self.ranks.per_host

    def cluster_sweep(self, number: int, labels, sizes, most: int, mask: int) -> int:
        """One pass over all rows in which nodes join clusters; how many did."""
        changed = 0
        for first, indptr, columns in self.view.blocks():
            changed += int(self.run["label_sweep"](
                indptr, _ids(columns), first, labels, self.weights, None, sizes, None, most, 0,
                0.0, self.seed * 64 + number, mask, 0))
            self.view.share(labels)
        return int(self.ranks.sum(np.array([changed]))[0])

    def part_sweep(self, number: int, parts, sizes: _Sizes, marked: _Sizes | None,
                   price: float) -> int:
        """One pass over all rows in which nodes move to other parts; how many did."""
        changed = 0
        for first, indptr, columns in self.view.blocks():
            taken = sizes.of_rank()
            taken_marked = None if marked is None else marked.of_rank()
            most_marked = 0 if marked is None else marked.most
            changed += int(self.run["label_sweep"](
                indptr, _ids(columns), first, parts, self.weights,
                None if marked is None else self.marks, taken, taken_marked, sizes.most,
                most_marked, price, self.seed * 64 + number, -1, 1))
            sizes.update(taken)
            if marked is not None and taken_marked is not None:
                marked.update(taken_marked)
            self.view.share(parts)
        return int(self.ranks.sum(np.array([changed]))[0])

    # -- clusters ----------------------------------------------------------------------------------
    def clusters(self) -> np.ndarray:
        """Labels of clusters; a rank limits the size of what its own nodes join, which limits
        the whole."""
        view, labels = self.view, self.view.first_labels()
        alone = self.ranks.size == 1
        n_sizes = view.n_owned if alone else 1 << max(1, 2 * view.n_owned - 1).bit_length()
        mask = -1 if alone else n_sizes - 1      # labels are those of nodes of all ranks
        sizes = np.zeros(n_sizes, np.int64)
        sizes[labels[:view.n_owned] & mask] = 1 if self.weights is None else self.weights
        most = self.total // (self.task.n_parts * CLUSTERS_PER_PART * self.ranks.size)
        for number in range(_CLUSTER_SWEEPS):
            joined = self.cluster_sweep(number, labels, sizes, max(1, most), mask)
            if joined < 10 * _SETTLED * self.task.n_nodes:
                break
        return labels

    def parts_of_clusters(self, labels: np.ndarray) -> np.ndarray:
        """A first part for all nodes of `labels`, or -1 where there are too many clusters."""
        known = self._known(labels[:self.view.n_owned])
        groups = np.empty(len(labels), np.int32)
        step = 1 << 22
        for at in range(0, len(labels), step):
            groups[at:at + step] = np.searchsorted(known, labels[at:at + step])
        del labels
        pairs = self._pairs(groups)
        if pairs is None:
            return np.full(len(groups), -1, np.int32)
        own = slice(0, self.view.n_owned)
        weights = np.bincount(groups[own], self.weights, len(known)).astype(np.int64)
        weights = self.ranks.sum(weights)
        cluster_parts = np.empty(0, np.int32)
        if self.ranks.rank == 0:
            cluster_parts = self._divide_clusters(*pairs, weights)
        cluster_parts = self.ranks.exchange([cluster_parts] * self.ranks.size)[0]
        return cluster_parts[groups]

    def _known(self, labels: np.ndarray) -> np.ndarray:
        """The clusters of all ranks, ascending."""
        there = np.zeros(self.task.n_nodes, bool)
        there[labels] = True
        mine = np.flatnonzero(there).astype(np.int32)
        if self.ranks.size == 1:
            return mine
        for others in self.ranks.exchange([mine] * self.ranks.size):
            there[others] = True
        return np.flatnonzero(there).astype(np.int32)

    def _pairs(self, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """(keys, edges) of pairs of neighbouring clusters, on rank 0; None if they are too
        many."""
        most = int(self.memory / 2 / PAIR_BYTES)
        keys, counts = self._counted(groups, most)
        if self._any(keys is None):
            return None
        parts = self.ranks.exchange([keys] + [keys[:0]] * (self.ranks.size - 1))
        edges = self.ranks.exchange([counts] + [counts[:0]] * (self.ranks.size - 1))
        if self.ranks.size > 1:
            keys, counts = np.concatenate(parts), np.concatenate(edges)
        order = np.argsort(keys)
        keys, counts = keys[order], counts[order]
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        keys, counts = keys[first], np.add.reduceat(counts, first) if len(first) else counts[:0]
        return None if self._any(len(keys) > most) else (keys, counts)

    def _any(self, so: bool) -> bool:
        return bool(self.ranks.sum(np.array([int(so)]))[0])

    def _counted(self, groups: np.ndarray, most: int) -> tuple:
        """The same of own rows; (None, None) if they are too many."""
        likely = min(most, len(groups) * 4)
        size = 1 << max(12, (likely * 4 // 3).bit_length())
        while size * _TABLE_PAIR_BYTES <= max(self.memory / 2, 1 << 17):
            keys, counts = np.full(size, -1, np.int64), np.zeros(size, np.int64)
            used = 0
            for first, indptr, columns in self.view.blocks():
                used = int(self.run["count_pairs"](indptr, _ids(columns), first, groups, keys,
                                                   counts, used))
                if used < 0:
                    break
            if used >= 0:
                taken = keys >= 0
                return keys[taken], counts[taken]
            size *= 4
        return None, None

    def _divide_clusters(self, keys: np.ndarray, counts: np.ndarray,
                         weights: np.ndarray) -> np.ndarray:
        """The part of every cluster."""
        n_clusters = len(weights)
        if not len(keys):
            return np.full(n_clusters, -1, np.int32)
        lower, upper = keys >> 32, keys & (2 ** 32 - 1)
        order = np.argsort(np.concatenate([keys, (upper << 32) | lower]))
        columns = np.concatenate([upper, lower])[order]
        edges = np.concatenate([counts, counts])[order]
        lengths = np.bincount(lower, minlength=n_clusters) + np.bincount(upper,
                                                                         minlength=n_clusters)
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return metis_parts(indptr, columns, self.task.n_parts, "cut", self.task.seed, weights,
                           edges)

    # -- parts -------------------------------------------------------------------------------------
    def refine(self, parts: np.ndarray):
        """Move nodes between parts, in place, until few move."""
        task, own = self.task, parts[:self.view.n_owned]
        started = self._any(bool((own >= 0).any()))
        sizes = self._sizes(own, self.weights, self.total,
                            1 if task.weights is None else int(task.weights.max()))
        marked = None
        if self.marks is not None and task.marked is not None:
            marked = self._sizes(own[self.marks.astype(bool)], None,
                                 int(np.count_nonzero(task.marked)), 1)
        price = (_PRICE if started else _FENNEL_PRICE) * len(task.indices) / task.n_nodes
        most, more = sizes.most, 0 if marked is None else marked.most
        for number in range(3 * _SWEEPS):
            # Marked nodes may enter full parts in every other pass: others then make room.
            sizes.most = most + (more if number % 2 == 0 else 0)
            moved = self.part_sweep(32 + number, parts, sizes, marked, price)
            balanced = sizes.sizes.max() <= most and (
                marked is None or marked.sizes.max() <= marked.most)
            settled = moved <= _SETTLED * task.n_nodes or number >= _SWEEPS - 1
            if settled and (balanced or moved == 0):
                break
        sizes.most = most

    def _sizes(self, parts: np.ndarray, weights: np.ndarray | None, total: int,
               heaviest: int) -> _Sizes:
        there, n_parts = parts >= 0, self.task.n_parts
        counted = np.bincount(parts[there], None if weights is None else weights[there], n_parts)
        mean = total / n_parts
        most = max(math.floor(UNEVEN * mean), math.ceil(mean), heaviest)
        return _Sizes(self.ranks.sum(counted.astype(np.int64)), most, self.ranks)


class _Sizes:
    """What the parts weigh, and may weigh, on all ranks."""

    def __init__(self, sizes: np.ndarray, most: int, ranks):
        self.sizes, self.most, self.ranks, self.turn = sizes, most, ranks, 0

    def of_rank(self) -> np.ndarray:
        """The sizes that a rank may go by: all ranks at once add no more than there is room, and
        take away no more than is too much."""
        self.turn += 1                   # what cannot be shared evenly goes to each rank in turn
        shift = (self.ranks.rank + self.turn) % self.ranks.size
        self.given = self.most - (self.most - self.sizes + shift) // self.ranks.size
        return self.given.copy()

    def update(self, taken: np.ndarray):
        """Add what all ranks have made of theirs. Collective."""
        self.sizes = self.sizes + self.ranks.sum(taken - self.given)


def _ids(columns: np.ndarray) -> np.ndarray:
    if columns.dtype != np.int32:
        if columns.size and columns.max() >= 2 ** 31:
            raise GraphError("neighbour ids must be below 2^31 here: choose another method")
        columns = columns.astype(np.int32)
    return np.ascontiguousarray(columns)
