"""Parts that do not depend on the edges: random ones, and runs of node ids."""

from __future__ import annotations

import numpy as np

from hpcgcn.graph.partitioners.base import Forecast, Partitioner, Size, Task


class Random(Partitioner):
    """Random nodes."""

    name = "random"
    reads_edges = False

    def forecast(self, size: Size) -> Forecast:
        """What it would take."""
        return Forecast(40.0 * size.n_nodes, 2e-7 * size.n_nodes)

    def parts(self, task: Task) -> np.ndarray:
        """The part of every node."""
        return random_parts(_weights(task), task.n_parts, task.seed)


class Block(Partitioner):
    """Equal runs of node ids."""

    name = "block"
    reads_edges = False

    def forecast(self, size: Size) -> Forecast:
        """What it would take."""
        return Forecast(32.0 * size.n_nodes, 1e-7 * size.n_nodes)

    def parts(self, task: Task) -> np.ndarray:
        """The part of every node."""
        return block_parts(_weights(task), task.n_parts)


def _weights(task: Task) -> np.ndarray:
    """What each node counts; marked nodes count as much as all others together."""
    if task.weights is not None:
        return task.weights
    weights = np.ones(task.n_nodes, np.int64)
    if task.marked is not None:
        n_marked = max(1, int(np.count_nonzero(task.marked)))
        weights[task.marked] += max(1, round(task.n_nodes / n_marked))
    return weights


def block_parts(weights: np.ndarray, n_parts: int) -> np.ndarray:
    """Contiguous runs of nodes of about equal weight, none of them empty."""
    n_nodes = len(weights)
    reached = np.cumsum(weights)
    stops = np.searchsorted(reached, reached[-1] * np.arange(1, n_parts) / n_parts) + 1
    # Each part gets at least one node, and leaves one for each part after it.
    numbers = np.arange(1, n_parts)
    stops = np.maximum.accumulate(stops - numbers) + numbers
    stops = np.minimum(stops, n_nodes - n_parts + numbers)
    return np.searchsorted(stops, np.arange(n_nodes), side="right").astype(np.int32)


def random_parts(weights: np.ndarray, n_parts: int, seed: int) -> np.ndarray:
    """Random nodes, parts of about equal weight."""
    order = np.random.default_rng(seed).permutation(len(weights))
    parts = np.empty(len(weights), np.int32)
    parts[order] = block_parts(weights[order], n_parts)
    return parts
