"""The raw folder of an OGB node data set: edge.csv.gz, node-feat.csv.gz, node-label.csv.gz or
arrays, and split/*/."""

from __future__ import annotations

import csv
import gzip
import io
import os
import tempfile
from functools import partial

import numpy as np

from hpcgcn.errors import ConfigError, FileError, GraphError
from hpcgcn.formats.archive import Archive
from hpcgcn.formats.draft import (
    Draft,
    ReadOptions,
    checked_dense,
    checked_labels,
    split_from_lists,
    unused_weights,
    wrong_entry,
)
from hpcgcn.formats.files import bad, inside, present
from hpcgcn.formats.integers import counted, numbered_edges, numbered_lines
from hpcgcn.formats.rows import Table, read_numbers, row_line
from hpcgcn.graph.csr import row_numbers
from hpcgcn.graph.data import SPLIT_NAMES, Graph, SparseRows

_BLOCK = 1 << 22           # edges in flight at once
_SPLIT_FILES = {"train": ("train.csv.gz", "train.csv"), "val": ("valid.csv.gz", "valid.csv"),
                "test": ("test.csv.gz", "test.csv")}


def recognises(sources: list[str]) -> bool:
    """Is this the raw folder of an OGB data set?"""
    return len(sources) == 1 and os.path.isdir(sources[0]) and present(_folders(sources[0])[0],
                                                                       "edge.csv.gz", "edge.csv",
                                                                       "data.npz") is not None


def _folders(source: str) -> tuple[str, str]:
    """(the folder of the tables, the folder that holds split/)."""
    if os.path.isdir(os.path.join(source, "raw")):
        return inside(source, "raw"), source
    parent = os.path.dirname(os.path.abspath(source))
    if (os.path.basename(os.path.abspath(source)) == "raw"
        and os.path.isdir(os.path.join(parent, "split"))):
        return source, parent
    return source, source


def read(sources: list[str], options: ReadOptions) -> Draft:
    """The graph in the raw folder of an OGB data set."""
    if not os.path.isdir(sources[0]):
        raise FileError(f"{sources[0]} is not a folder; expected the raw folder of an OGB data set")
    raw, root = _folders(sources[0])
    path = present(raw, "edge.csv.gz", "edge.csv")
    if path is None and present(raw, "data.npz"):
        return _read_binary(raw, root, options)
    if path is None:
        raise FileError(f"{raw} has no edge.csv.gz; expected the raw folder of an OGB data set")
    features = _table(raw, "node-feat", np.float32)
    labels = _table(raw, "node-label", np.float64, missing=True)
    label_path = present(raw, "node-label.csv.gz", "node-label.csv") or raw
    n_nodes = _n_nodes(raw, features, labels)
    table = Table(path)
    if table.n_columns != 2:
        raise bad(path, table.first_line, f"{table.n_columns} columns", "two: source and target")
    for name, array in (("node-feat", features), ("node-label", labels)):
        if array is not None and len(array) != n_nodes:
            raise GraphError(f"{raw}: {name} has {len(array)} rows; expected one for each of the "
                             f"{n_nodes} nodes")
    return Draft(lambda: counted(numbered_edges(table, (0, 1), False, n_nodes), path,
                                 *_announced(raw)), n_nodes,
                 lines=lambda: numbered_lines(table, (0, 1), False, n_nodes), features=features,
                 labels=None if labels is None
                 else checked_labels(label_path, labels, n_nodes, partial(row_line, label_path)),
                 split=_split(root, options.name, n_nodes),
                 source=os.path.basename(os.path.abspath(root)),
                 notes=[unused_weights("edge-feat", raw)]
                 if present(raw, "edge-feat.csv.gz", "edge-feat.csv") else [])


def _read_binary(raw: str, root: str, options: ReadOptions) -> Draft:
    """The largest data sets come as arrays: data.npz (edge_index, node_feat) and node-label.npz;
    both may exceed memory."""
    scratch = options.scratch or tempfile.gettempdir()
    with Archive(inside(raw, "data.npz")) as data:
        edges, features = data.mapped("edge_index", scratch), data.mapped("node_feat", scratch)
    where = inside(raw, "data.npz")
    n_nodes = len(features)
    checked_dense(f"{where} (node_feat)", features, n_nodes)
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
        raise GraphError(f"{where}: edge_index is {edges.dtype} of shape {edges.shape}; expected "
                         "two rows of node numbers")
    labels = None
    if present(raw, "node-label.npz"):
        with Archive(inside(raw, "node-label.npz")) as archive:
            labels = checked_labels(f"{raw}/node-label.npz", archive["node_label"], n_nodes)
    blocks = ((edges[0, start:start + _BLOCK], edges[1, start:start + _BLOCK])
              for start in range(0, edges.shape[1], _BLOCK))
    return Draft(lambda: blocks, n_nodes, features=features, labels=labels,
                 split=_split(root, options.name, n_nodes),
                 source=os.path.basename(os.path.abspath(root)))


def _table(raw: str, name: str, dtype, missing: bool = False) -> np.ndarray | None:
    path = present(raw, f"{name}.csv.gz", f"{name}.csv")
    return None if path is None else read_numbers(path, dtype, missing)


def _n_nodes(raw: str, features, labels) -> int:
    listed = present(raw, "num-node-list.csv.gz", "num-node-list.csv")
    if listed:
        counts = read_numbers(listed, np.int64)
        if counts.size != 1 or not 0 < counts[0, 0] < 2 ** 31:
            raise bad(listed, 1, f"{counts.size} numbers, {counts[0, 0]} first",
                      "the number of nodes of one graph")
        return int(counts[0, 0])
    for array in (features, labels):
        if array is not None:
            return len(array)
    raise FileError(f"{raw} has neither num-node-list.csv.gz, node-feat.csv.gz nor "
                    "node-label.csv.gz; expected one of them, to know the number of nodes")


def _announced(raw: str) -> tuple[int | None, str]:
    """(the number of edges that a file of its own tells, that file)."""
    listed = present(raw, "num-edge-list.csv.gz", "num-edge-list.csv")
    counts = None if listed is None else read_numbers(listed, np.int64)
    return (int(counts[0, 0]) if counts is not None and counts.size == 1 else None), f"{listed}"


def _split(root: str, name: str | None, n_nodes: int) -> np.ndarray | None:
    folder = os.path.join(root, "split")
    if name:
        inside(folder, name)
    if not os.path.isdir(folder):
        return None
    splits = [name] if name else sorted(n for n in os.listdir(folder)
                                        if os.path.isdir(os.path.join(folder, n)))
    if not splits:
        return None
    if len(splits) > 1:
        raise ConfigError(f"{folder} holds the splits {', '.join(splits)}; expected one, or "
                          "--name to choose")
    chosen = inside(folder, splits[0])
    lists = []
    for part, names in _SPLIT_FILES.items():
        path = present(chosen, *names)
        if path is None:
            raise FileError(f"{chosen} has no {names[0]}; expected the {part} nodes there")
        lists.append(_node_list(path, n_nodes))
    return split_from_lists(chosen, n_nodes, *lists)


def _node_list(path: str, n_nodes: int) -> np.ndarray:
    try:
        rows = read_numbers(path, np.int64)
    except FileError as error:
        # A split may be empty: no node for validation, say.
        if "nothing but blank lines" in str(error) or "is empty" in str(error):
            return np.zeros(0, np.int64)
        raise
    if rows.shape[1] != 1:
        raise bad(path, row_line(path, 0), f"{rows.shape[1]} columns", "one: a node in each row")
    wrong = wrong_entry(rows[:, 0], n_nodes)
    if wrong:
        raise bad(path, row_line(path, wrong[0]), wrong[1],
                  f"each of its nodes once, in 0..{n_nodes - 1}")
    return rows[:, 0]


def write(folder: str, graph: Graph):
    """A folder of gzipped tables, with the split as split/given."""
    if len(graph.split) != 1:
        raise GraphError("this format holds one split; choose --format npz")
    features = graph.features.to_dense() if isinstance(graph.features,
                                                       SparseRows) else graph.features
    rows = row_numbers(graph.indptr)
    labels = graph.labels if graph.multilabel else graph.labels[:, None]
    _write_rows(folder, "num-node-list", [[graph.n_nodes]])
    _write_rows(folder, "num-edge-list", [[graph.n_edges]])
    _write_rows(folder, "edge", zip(graph.indices.tolist(), rows.tolist()))
    _write_rows(folder, "node-feat", ([f"{value:.9g}" for value in row] for row in features))
    _write_rows(folder, "node-label",
                ([value if value >= 0 else "nan" for value in row] for row in labels.tolist()))
    os.makedirs(os.path.join(folder, "split", "given"))
    for code, name in SPLIT_NAMES.items():
        stem = os.path.join("split", "given", "valid" if name == "val" else name)
        _write_rows(folder, stem,
                    ([node] for node in np.flatnonzero(graph.split[0] == code).tolist()))


def _write_rows(folder: str, name: str, rows):
    with gzip.open(os.path.join(folder, f"{name}.csv.gz"), "wb", compresslevel=4) as packed:
        with io.TextIOWrapper(packed, newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
