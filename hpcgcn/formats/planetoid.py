"""Planetoid: eight files ind.NAME.{x,y,tx,ty,allx,ally,graph,test.index}, seven of them pickles
(Cora, Citeseer, Pubmed)."""

from __future__ import annotations

import operator
import os
import pickle
import re

import numpy as np

from hpcgcn.errors import ConfigError, FileError, GraphError
from hpcgcn.formats.draft import Draft, ReadOptions
from hpcgcn.formats.files import bad, inside, text_lines
from hpcgcn.formats.rows import is_whole
from hpcgcn.formats.unpickle import Csr, read_pickle
from hpcgcn.graph.csr import row_numbers
from hpcgcn.graph.data import TEST, TRAIN, UNUSED, VAL, Graph, SparseRows

_PARTS = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")
_FILE = re.compile(r"ind\.(.+)\.(" + "|".join(re.escape(part) for part in _PARTS) + ")")
_VALIDATION_NODES = 500


def recognises(sources: list[str]) -> bool:
    """Are these the eight files of a Planetoid data set?"""
    return all(_FILE.fullmatch(os.path.basename(s)) or (os.path.isdir(s) and _data_sets(s))
               for s in sources)


def _data_sets(folder: str) -> list[str]:
    return sorted({match.group(1)
                   for name in os.listdir(folder) if (match := _FILE.fullmatch(name))})


def read(sources: list[str], options: ReadOptions) -> Draft:
    """The graph in the eight files of a Planetoid data set."""
    folder, name = _located(sources, options)
    parts = {part: read_pickle(inside(folder, f"ind.{name}.{part}")) for part in _PARTS[:-1]}
    stem = os.path.join(folder, f"ind.{name}")
    for part in ("x", "tx", "allx"):
        if not isinstance(parts[part], Csr):
            raise FileError(f"{stem}.{part} holds no sparse matrix; expected features as a SciPy "
                            "CSR matrix")
    for part in ("y", "ty", "ally"):
        if not isinstance(parts[part], np.ndarray) or parts[part].ndim != 2:
            raise FileError(f"{stem}.{part} holds no matrix; expected one-hot labels as a NumPy "
                            "array")
        wrong = np.flatnonzero(~np.isin(parts[part], (0, 1)).all(axis=1)
                               | (np.count_nonzero(parts[part], axis=1) > 1))
        if len(wrong):
            raise FileError(f"{stem}.{part}: row {wrong[0]} is "
                            f"{parts[part][wrong[0]].tolist()[:10]}; expected at most one 1, and "
                            "zeros")
    if not isinstance(parts["graph"], dict):
        raise FileError(f"{stem}.graph holds no dictionary; expected the neighbours of every node")
    test = _test_index(inside(folder, f"ind.{name}.test.index"))
    n_known = parts["allx"].shape[0]
    n_nodes = max(n_known, int(test.max()) + 1)
    _check_fit(stem, parts, test, n_known)
    labels = _labels(parts, test, n_nodes)
    return Draft(lambda: [_edges(f"{stem}.graph", parts["graph"], n_nodes)], n_nodes,
                 features=_features(parts, test, n_nodes), labels=labels,
                 n_classes=parts["ally"].shape[1],
                 split=_split(len(parts["y"]), n_known, test, labels)[None],
                 source=f"planetoid {name}", pairs=True)


def _located(sources: list[str], options: ReadOptions) -> tuple[str, str]:
    places = {_place(source, options) for source in sources}
    if len(places) > 1:
        raise ConfigError(f"{' '.join(sources)}: files of {len(places)} data sets; expected "
                          "those of one")
    return places.pop()


def _place(source: str, options: ReadOptions) -> tuple[str, str]:
    """(folder, name of the data set) of a folder or of one of its files."""
    if not os.path.exists(source):
        raise FileError(f"{source}: no such file or folder")
    if not os.path.isdir(source):
        match = _FILE.fullmatch(os.path.basename(source))
        if not match:
            raise FileError(f"{source} is not named like a Planetoid file; expected ind.NAME.x "
                            "or its folder")
        return os.path.dirname(source) or ".", match.group(1)
    data_sets = _data_sets(source)
    if options.name:
        return source, options.name
    if len(data_sets) != 1:
        raise ConfigError(f"{source} holds {len(data_sets)} Planetoid data sets "
                          f"({', '.join(data_sets) or 'none'}); expected one, or --name to choose")
    return source, data_sets[0]


def _test_index(path: str) -> np.ndarray:
    seen: dict[int, int] = {}
    for line, text in text_lines(path):
        if not is_whole(text.strip()) or not 0 <= int(text) < 10 ** 9:
            raise bad(path, line, f"{text.strip()[:40]!r}", "the number of a test node")
        if int(text) in seen:
            raise bad(path, line, f"node {int(text)} again, after line {seen[int(text)]}",
                      "every test node once")
        seen[int(text)] = line
    return np.array(list(seen), np.int64)


def _check_fit(stem: str, parts: dict, test: np.ndarray, n_known: int):
    for x, y in (("x", "y"), ("tx", "ty"), ("allx", "ally")):
        if parts[x].shape[0] != parts[y].shape[0]:
            raise GraphError(f"{stem}.{x} has {parts[x].shape[0]} rows and {stem}.{y} "
                             f"{parts[y].shape[0]}; expected as many")
    if len(test) != parts["tx"].shape[0] or test.min() < n_known or len(parts["y"]) > n_known:
        raise GraphError(f"{stem}.test.index does not fit: {len(test)} nodes from {test.min()}; "
                         f"expected {parts['tx'].shape[0]} nodes from {n_known}")
    if test.max() > 100 * (n_known + len(test)):
        raise GraphError(f"{stem}.test.index names node {test.max()}; expected ids near "
                         f"{n_known + len(test)}")
    if len({parts[part].shape[1] for part in ("x", "tx", "allx")}) > 1 or \
            len({parts[part].shape[1] for part in ("y", "ty", "ally")}) > 1:
        raise GraphError(f"{stem}.*: features or labels have different numbers of columns; "
                         "expected the same in all files")


def _features(parts: dict, test: np.ndarray, n_nodes: int) -> SparseRows:
    """Known nodes as they come, test nodes in the order of the index; nodes in neither (Citeseer
    has some) are empty."""
    known, held_out = parts["allx"], parts["tx"]
    indptr = np.concatenate([known.indptr, known.indptr[-1] + held_out.indptr[1:],
                             [len(known.indices) + len(held_out.indices)]])
    values = np.concatenate([known.values, held_out.values]).astype(np.float32)
    stacked = SparseRows(indptr, np.concatenate([known.indices, held_out.indices]),
                         None if (values == 1).all() else values, known.shape[1])
    row = np.full(n_nodes, stacked.shape[0] - 1)
    row[:known.shape[0]] = np.arange(known.shape[0])
    row[test] = known.shape[0] + np.arange(len(test))
    return stacked.take(row)


def _labels(parts: dict, test: np.ndarray, n_nodes: int) -> np.ndarray:
    one_hot = np.zeros((n_nodes, parts["ally"].shape[1]))
    one_hot[:len(parts["ally"])] = parts["ally"]
    one_hot[test] = parts["ty"]
    return np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1).astype(np.int32)


def _split(n_train: int, n_known: int, test: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The public split: the first nodes, the 500 after them, and the test index."""
    split = np.zeros(len(labels), np.uint8)
    split[:n_train] = TRAIN
    split[n_train:min(n_train + _VALIDATION_NODES, n_known)] = VAL
    split[test] = TEST
    split[labels < 0] = UNUSED
    return split


def _edges(where: str, adjacency: dict, n_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    try:
        sources = np.repeat(np.fromiter(adjacency, np.int64),
                            [len(row) for row in adjacency.values()])
        targets = np.array([operator.index(node) for row in adjacency.values() for node in row],
                           np.int64)
    except (TypeError, ValueError, OverflowError):
        raise GraphError(f"{where} holds something else than lists of node numbers; expected "
                         f"{{node: [neighbours]}}") from None
    for nodes in (sources, targets):
        wrong = nodes[(nodes < 0) | (nodes >= n_nodes)]
        if len(wrong):
            raise GraphError(f"{where} has an edge to node {wrong[0]}; expected ids in "
                             f"0..{n_nodes - 1}")
    return sources, targets


def write(folder: str, graph: Graph):
    """The eight files, named after the folder; only a graph with a split of this form can be
    written."""
    from scipy.sparse import csr_matrix
    name = os.path.basename(folder)
    n_train, n_known = _check_form(graph)
    sparse = graph.features if isinstance(graph.features, SparseRows) else None
    values = sparse and (np.ones(len(sparse.indices), np.float32) if sparse.values is None
                         else sparse.values)
    matrix = csr_matrix((values, sparse.indices, sparse.indptr),
                        sparse.shape) if sparse else csr_matrix(graph.features)
    one_hot = np.zeros((graph.n_nodes, graph.n_classes), np.int32)
    labelled = np.flatnonzero(graph.labels >= 0)
    one_hot[labelled, graph.labels[labelled]] = 1
    test = np.flatnonzero(graph.split[0] == TEST)
    rows = row_numbers(graph.indptr).tolist()
    adjacency: dict[int, list[int]] = {node: [] for node in range(graph.n_nodes)}
    for node, neighbour in zip(rows, graph.indices.tolist()):
        adjacency[node].append(neighbour)
    contents = {"x": matrix[:n_train], "y": one_hot[:n_train], "tx": matrix[test],
                "ty": one_hot[test],
                "allx": matrix[:n_known], "ally": one_hot[:n_known], "graph": adjacency}
    for part, value in contents.items():
        with open(os.path.join(folder, f"ind.{name}.{part}"), "wb") as file:
            pickle.dump(value, file, protocol=2)
    with open(os.path.join(folder, f"ind.{name}.test.index"), "w", encoding="ascii") as file:
        file.writelines(f"{node}\n" for node in test.tolist())


def _check_form(graph: Graph) -> tuple[int, int]:
    """(training nodes, nodes before the first test node) if Planetoid files can hold the graph."""
    if graph.directed or graph.multilabel or len(graph.split) != 1:
        raise GraphError("Planetoid files hold undirected graphs with one class a node and one "
                         "split; choose another format")
    split = graph.split[0]
    test = np.flatnonzero(split == TEST)
    if not len(test) or test[-1] != graph.n_nodes - 1:
        raise GraphError("in Planetoid files the last nodes are for the test; reorder the graph, "
                         "or choose another format")
    n_train, n_known = int(np.count_nonzero(split == TRAIN)), int(test[0])
    expected = _split(n_train, n_known, test, graph.labels)
    lengths = (np.diff(graph.features.indptr) if isinstance(graph.features, SparseRows)
               else (graph.features != 0).sum(axis=1))
    lost = (np.arange(graph.n_nodes) >= n_known) & (split != TEST) & ((lengths > 0)
                                                                      | (graph.labels >= 0))
    if not np.array_equal(split, expected) or lost.any():
        raise GraphError("Planetoid files hold training nodes first, then up to "
                         f"{_VALIDATION_NODES} for validation, then unused ones, then test "
                         "nodes; reorder the graph, or choose another format")
    return n_train, n_known
