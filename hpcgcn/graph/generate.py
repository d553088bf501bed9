"""Made graphs: a degree-corrected stochastic block model, R-MAT and a grid; the same seed gives the
same graph."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import numpy as np

from hpcgcn.errors import ConfigError
from hpcgcn.graph.csr import (
    csr_from_edges,
    csr_from_keys,
    edge_keys,
    index_dtype,
    invert,
    reversed_keys,
    sort_distinct,
)
from hpcgcn.graph.data import TEST, TRAIN, VAL, Graph
from hpcgcn.graph.spool import SpooledArray, SpooledEdges

_CHUNK = 1 << 22           # edges drawn at once; part of what a seed means
_ROUNDS = 40               # of drawing again what turned out to be duplicates
_TOLERANCE = 0.002         # of the edges that may be missing in the end


def generate_sbm(n_nodes: int, degree: float, n_features: int, n_classes: int, seed: int,
                 homophily: float = 0.8, feature_noise: float = 1.2, power: float = 2.5,
                 train: float = 0.6, val: float = 0.2,
                 label_noise: float = 0.05, communities: int = 1,
                 folder: str | None = None) -> Graph:
    """A degree-corrected stochastic block model whose blocks belong to classes.

    degree: mean number of neighbours. homophily: share of the edges that stay within a block.
    power: exponent of the degree distribution, p(d) ~ d^-power. feature_noise: standard deviation
    of every feature around its class's mean, where the means are random unit vectors. label_noise:
    share of the nodes with the label of another class, which bounds the accuracy that can be
    reached. communities: blocks per class; more of them make a graph that partitions and orders
    well, as real ones do. folder: for edges and features on disk in place of memory; the graph is
    the same.
    """
    _check_sizes(n_nodes, degree, n_features, n_classes, train, val)
    _check(0 <= homophily <= 1, f"homophily is {homophily}: it is a share, between 0 and 1")
    _check(power > 1, f"power is {power}: the exponent of the degrees must be above 1")
    _check(0 <= label_noise < 1, f"label_noise is {label_noise}: it is a share, from 0 to below 1")
    n_blocks = n_classes * communities
    _check(communities >= 1 and n_blocks <= n_nodes,
           f"{communities} communities in each of {n_classes} classes: at least 1, and at most "
           f"{n_nodes} in all")
    rng = np.random.default_rng(seed)
    blocks = rng.permutation(np.arange(n_nodes) % n_blocks).astype(np.int32)
    classes = blocks % n_classes
    csr = _block_graph(rng, blocks, n_blocks, degree, power, homophily, folder)
    graph = _finish(rng, csr, classes, n_features, n_classes, feature_noise, train, val,
                    f"sbm: homophily {homophily}, power {power}, feature noise {feature_noise}, "
                    f"label noise {label_noise}, communities {communities}, seed {seed}", folder)
    graph.labels = _with_label_noise(rng, classes, n_classes, label_noise)
    return graph


def generate_rmat(n_nodes: int, degree: float, n_features: int, n_classes: int, seed: int,
                  quadrants: tuple[float, float, float, float] = (0.57, 0.19, 0.19, 0.05),
                  feature_noise: float = 1.2, train: float = 0.6, val: float = 0.2,
                  folder: str | None = None) -> Graph:
    """An R-MAT graph (recursive quadrants of the adjacency matrix), made undirected and with
    shuffled ids.

    Classes are equal runs of the ids before the shuffle: the quadrants make their members
    neighbours more often.
    """
    _check_sizes(n_nodes, degree, n_features, n_classes, train, val)
    _check(len(quadrants) == 4 and min(quadrants) >= 0 and abs(sum(quadrants) - 1) < 1e-6,
           f"quadrants are {quadrants}: give four probabilities that sum to 1")
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(n_nodes)
    labels = (invert(shuffled) * n_classes // n_nodes).astype(np.int32)
    csr = _random_graph(n_nodes, degree,
                        lambda n: _draw_rmat(rng, n, n_nodes, quadrants, shuffled), folder)
    return _finish(rng, csr, labels, n_features, n_classes, feature_noise, train,
                   val, f"rmat: quadrants {tuple(quadrants)}, feature noise {feature_noise}, "
                        f"seed {seed}", folder)


def generate_grid(n_nodes: int, degree: int, n_features: int, n_classes: int, seed: int,
                  feature_noise: float = 1.2, train: float = 0.6, val: float = 0.2,
                  folder: str | None = None) -> Graph:
    """A square grid with 4 or 8 neighbours per node (fewer at its rim), row by row; classes are
    bands of rows."""
    _check_sizes(n_nodes, 1, n_features, n_classes, train, val)
    _check(degree in (4, 8), f"degree is {degree}: a grid has 4 or 8 neighbours per node")
    width = max(1, int(np.ceil(np.sqrt(n_nodes))))
    ids = np.arange(n_nodes)
    steps = [(0, 1), (1, 0)] if degree == 4 else [(0, 1), (1, 0), (1, 1), (1, -1)]
    edges = [_grid_edges(ids, width, down, right) for down, right in steps]
    sources, targets = (np.concatenate(nodes) for nodes in zip(*edges))
    csr = csr_from_edges(n_nodes, sources, targets, undirected=True)
    labels = (ids * n_classes // n_nodes).astype(np.int32)
    return _finish(np.random.default_rng(seed), csr, labels, n_features, n_classes, feature_noise,
                   train, val, f"grid: {width} wide, feature noise {feature_noise}, seed {seed}",
                   folder)


def _block_graph(rng, blocks: np.ndarray, n_blocks: int, degree: float, power: float,
                 homophily: float, folder: str | None) -> tuple:
    """The CSR of a block model."""
    weights = _power_law_weights(rng, len(blocks), degree, power)
    table = _BlockTable(blocks, n_blocks, weights)
    return _random_graph(len(blocks), degree,
                         lambda n: table.draw(rng, n, homophily if n_blocks > 1 else 1.0), folder)


class _BlockTable:
    """Draws nodes of a block in proportion to their weight: one table of repeated ids, block after
    block."""

    def __init__(self, blocks: np.ndarray, n_blocks: int, weights: np.ndarray):
        by_block = np.argsort(blocks, kind="stable").astype(index_dtype(len(blocks)))
        self.blocks = blocks
        self.nodes = np.repeat(by_block, weights[by_block])
        self.length = np.bincount(blocks, weights, n_blocks).astype(np.int64)
        self.start = np.cumsum(self.length) - self.length

    def draw(self, rng: np.random.Generator, n: int,
             homophily: float) -> tuple[np.ndarray, np.ndarray]:
        """The two ends of n random edges."""
        total = len(self.nodes)
        sources = self.nodes[rng.integers(0, total, n)]
        start, length = self.start[self.blocks[sources]], self.length[self.blocks[sources]]
        inside = rng.random(n) < homophily
        choices = np.where(inside, length, total - length)
        # Outside of a block means before or after its run in the table.
        position = np.minimum((rng.random(n) * choices).astype(np.int64), choices - 1)
        position += np.where(inside, start, np.where(position >= start, length, 0))
        return sources, self.nodes[position]


def _power_law_weights(rng: np.random.Generator, n_nodes: int, degree: float,
                       power: float) -> np.ndarray:
    """Integer weights with a power-law tail, cut where a node would have more than about sqrt(n *
    degree) edges."""
    tail = (1.0 - rng.random(n_nodes)) ** (-1.0 / (power - 1.0))
    np.minimum(tail, max(1.0, np.sqrt(n_nodes / degree)) * np.mean(np.minimum(tail, n_nodes)),
               out=tail)
    # Eight steps to the smallest weight keep the rounding error out of the degrees.
    return np.maximum(1, np.rint(8 * tail * 3 / max(3.0, tail.mean()))).astype(np.int64)


def _draw_rmat(rng: np.random.Generator, n: int, n_nodes: int, quadrants, shuffled: np.ndarray):
    """The two ends of up to n edges: those that fall outside of n_nodes are left out."""
    limits = np.cumsum(quadrants)[:3]
    rows, columns = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for _ in range(max(1, int(n_nodes - 1).bit_length())):
        quadrant = np.searchsorted(limits, rng.random(n), side="right")
        rows = 2 * rows + (quadrant >> 1)
        columns = 2 * columns + (quadrant & 1)
    within = (rows < n_nodes) & (columns < n_nodes)
    return shuffled[rows[within]], shuffled[columns[within]]


def _random_graph(n_nodes: int, degree: float, draw: Callable, folder: str | None) -> tuple:
    """The CSR of about n_nodes * degree / 2 distinct undirected edges: duplicates are drawn
    again."""
    n_edges = int(round(n_nodes * degree / 2))
    edges = _Edges(n_nodes) if folder is None else SpooledEdges(folder, n_nodes, n_edges)
    for _ in range(_ROUNDS):
        missing = n_edges - len(edges)
        if missing <= n_edges * _TOLERANCE:
            return edges.csr()
        for keys in _draw_keys(n_nodes, missing, draw):
            edges.add(keys)
    raise ConfigError(f"a mean degree of {degree:g} was not reached "
                      f"({2 * len(edges) / n_nodes:.4g}): there are too few pairs among "
                      f"{n_nodes} nodes with these settings; lower the degree, raise the "
                      "nodes")


class _Edges:
    """Distinct edges in memory, as keys with the smaller id first."""

    def __init__(self, n_nodes: int):
        self.n_nodes, self.keys = n_nodes, np.empty(0, np.int64)
        self.added: list[np.ndarray] = []

    def __len__(self) -> int:
        """The number of distinct edges."""
        if self.added:
            self.keys = sort_distinct(np.concatenate([self.keys, *self.added]))
            self.added = []
        return len(self.keys)

    def add(self, keys: np.ndarray):
        """Add the keys of edges."""
        self.added.append(keys)

    def csr(self) -> tuple[np.ndarray, np.ndarray]:
        """(indptr, indices) with every edge both ways."""
        return csr_from_keys(self.n_nodes, np.concatenate(
            [self.keys, reversed_keys(self.n_nodes, self.keys)]))


def _draw_keys(n_nodes: int, missing: int, draw: Callable) -> Iterator[np.ndarray]:
    """Keys (smaller id first) of `missing` drawn edges, without those that are loops."""
    for start in range(0, missing, _CHUNK):
        first, second = draw(min(_CHUNK, missing - start))
        keys = edge_keys(n_nodes, np.minimum(first, second), np.maximum(first, second))
        yield keys[first != second]


def _grid_edges(ids: np.ndarray, width: int, down: int,
                right: int) -> tuple[np.ndarray, np.ndarray]:
    """Edges from every node to the one `down` rows below and `right` columns to the right, where
    there is one."""
    column = ids % width + right
    targets = ids + down * width + right
    there = (column >= 0) & (column < width) & (targets < len(ids))
    return ids[there], targets[there]


def _finish(rng, csr, labels, n_features, n_classes, feature_noise, train, val, source,
            folder: str | None = None) -> Graph:
    """Add features and a split."""
    _check(feature_noise >= 0, f"feature_noise is {feature_noise}: it must not be negative")
    indptr, indices = csr
    return Graph(indptr=indptr, indices=indices,
                 features=_features(rng, labels, n_classes, n_features, feature_noise, folder),
                 labels=labels, split=_split(rng, len(labels), train, val)[None],
                 n_classes=n_classes, source="generated " + source)


def _features(rng, labels, n_classes, n_features, noise, folder: str | None):
    means = rng.standard_normal((n_classes, n_features))
    means = (means / np.linalg.norm(means, axis=1, keepdims=True)).astype(np.float32)
    blocks = _feature_blocks(rng, labels, means, noise)
    if folder is None:
        features = np.empty((len(labels), n_features), np.float32)
        for rows, block in blocks:
            features[rows] = block
        return features
    spooled = SpooledArray(os.path.join(folder, "features"), (n_features,), np.float32)
    for _, block in blocks:
        spooled.append(block)
    return spooled


def _feature_blocks(rng, labels, means: np.ndarray,
                    noise) -> Iterator[tuple[slice, np.ndarray]]:
    """(rows, their features) of consecutive blocks."""
    step = max(1, _CHUNK // means.shape[1])
    for start in range(0, len(labels), step):
        rows = slice(start, min(start + step, len(labels)))
        block = rng.standard_normal((rows.stop - start, means.shape[1]), np.float32)
        block *= np.float32(noise)
        block += means[labels[rows]]
        yield rows, block


def _with_label_noise(rng, labels: np.ndarray, n_classes: int, share: float) -> np.ndarray:
    """Labels of which a share has moved on to another class."""
    moved = rng.random(len(labels)) < (share if n_classes > 1 else 0)
    shift = rng.integers(1, max(2, n_classes), len(labels))
    return np.where(moved, (labels + shift) % n_classes, labels).astype(np.int32)


def _split(rng, n_nodes: int, train: float, val: float) -> np.ndarray:
    """Random nodes to train on (at least one), to validate and to test."""
    split = np.full(n_nodes, TEST, np.uint8)
    order = rng.permutation(n_nodes)
    n_train = max(1, round(train * n_nodes))
    split[order[:n_train]] = TRAIN
    split[order[n_train:n_train + round(val * n_nodes)]] = VAL
    return split


def _check_sizes(n_nodes, degree, n_features, n_classes, train, val):
    _check(n_nodes >= 1, f"{n_nodes} nodes: at least one is needed")
    _check(0 < degree <= max(1, n_nodes - 1), f"a degree of {degree:g} with {n_nodes} nodes: it "
                                              "must be above 0 and below the number of nodes")
    _check(n_features >= 1, f"{n_features} features: at least one is needed")
    _check(1 <= n_classes <= n_nodes,
           f"{n_classes} classes with {n_nodes} nodes: give between 1 and {n_nodes}")
    _check(0 < train <= 1 and 0 <= val <= 1 and train + val <= 1 + 1e-9,
           f"train {train:g} and val {val:g}: they are shares of the nodes, train above 0, "
           "together at most 1")


def _check(right: bool, message: str):
    if not right:
        raise ConfigError(message)
