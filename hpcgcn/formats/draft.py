"""What a reader found in files of others, before it is made into a graph."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from hpcgcn.errors import GraphError
from hpcgcn.formats.files import CONTROL
from hpcgcn.graph.csr import row_blocks, row_numbers
from hpcgcn.graph.data import SparseRows

# Edges are passed on as blocks of (sources, targets): two integer arrays of equal length, node
# numbers from 0; with edge weights as blocks of (sources, targets, weights).
EdgeBlocks = Iterable[tuple[np.ndarray, ...]]
LineBlocks = Iterable[tuple[np.ndarray, ...]]    # (line numbers, sources, targets)
MOST_CLASSES = 1000        # or as many as there are nodes: a larger label is taken for an error


@dataclass
class Draft:
    """A graph as it is in the files; what is None was not there."""

    edges: Callable[[], EdgeBlocks]    # may be walked through once
    n_nodes: int | None                # None: the largest id and one
    features: np.ndarray | SparseRows | None = None
    labels: np.ndarray | None = None   # (n,) integers with -1 = none, or (n, n_classes) of 0 and 1
    # (n_splits, n) uint8; a function: only read if it is used
    split: np.ndarray | Callable[[], np.ndarray] | None = None
    n_classes: int | None = None       # None: the largest label and one
    node_names: np.ndarray | None = None
    extra: dict = field(default_factory=dict)
    source: str = ""
    path: str = ""                     # the files, for messages
    nodes_path: str = ""               # the table of nodes, if it is a file of its own
    # for the user; complete when the edges have been walked through
    notes: list[str] = field(default_factory=list)
    pairs: bool = False                # every edge is listed once and meant both ways
    strict: bool = False  # the same edge twice is an error, unless the user says that it is not
    # text: the edges once more, with their lines, for messages
    lines: Callable[[], LineBlocks] | None = None
    weighted: bool = False             # do blocks of edges have weights?


def unused_weights(fields: str, path: str) -> str:
    """The note about values of edges that are not their weights."""
    return f"edge weights are not used: {fields} of {os.path.basename(path)}"


def checked_weights(where: str, values: np.ndarray | None, n_edges: int) -> np.ndarray | None:
    """The weights of edges as float32; None if there are none, or all are 1.

    GraphError if they are not one number, finite and not negative, per edge.
    """
    if values is None:
        return None
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.shape != (n_edges,) or values.dtype.kind not in "fiub":
        raise GraphError(f"{where}: edge weights are {values.dtype} of shape {values.shape}; "
                         f"expected a number for each of the {n_edges} edges")
    with np.errstate(over="ignore"):
        weights = values.astype(np.float32) + np.float32(0)      # no -0
    wrong = np.flatnonzero(~((weights >= 0) & np.isfinite(weights)))
    if len(wrong):
        raise GraphError(f"{where}: edge {wrong[0]} has the weight {values[wrong[0]]}; expected "
                         "finite numbers that are not negative, or --no-edge-weights")
    return None if (weights == 1).all() else weights


def csr_edges(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None = None,
              turned: bool = False) -> Iterator[tuple[np.ndarray, ...]]:
    """The edges of a CSR whose row v lists the sources of edges to v, or turned, the targets of
    edges from v."""
    for block in row_blocks(indptr):
        block_indptr = indptr[block.start:block.stop + 1]
        first, last = int(block_indptr[0]), int(block_indptr[-1])
        pair = indices[first:last], row_numbers(block_indptr, block.start)
        yield (*(pair[::-1] if turned else pair),
               *(() if weights is None else (weights[first:last],)))


def checked_csr(where: str, indptr, indices, n_rows: int,
                n_columns: int) -> tuple[np.ndarray, np.ndarray]:
    """indptr (int64) and indices of a CSR from a file, or GraphError if they do not fit
    together."""
    for name, array in (("indptr", indptr), ("indices", indices)):
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise GraphError(f"{where}: {name} is {array.dtype} of shape {array.shape}; expected "
                             "a list of integers")
    indptr = indptr.astype(np.int64)
    if (len(indptr) != n_rows + 1 or indptr[0] != 0 or indptr[-1] != len(indices)
        or (np.diff(indptr) < 0).any()):
        raise GraphError(f"{where}: the row ends do not fit; expected {n_rows + 1} that rise "
                         f"from 0 to the {len(indices)} entries")
    if len(indices) and (indices.min() < 0 or indices.max() >= n_columns):
        wrong = indices.min() if indices.min() < 0 else indices.max()
        raise GraphError(f"{where}: there is the column {wrong}; expected numbers in "
                         f"0..{n_columns - 1}")
    return indptr, indices


def split_from_masks(where: str, n_nodes: int, train, val, test) -> np.ndarray:
    """(n_splits, n) codes from boolean masks of shape (n,) or (n_splits, n); a node in two of them
    is refused.

    A mask of shape (n,) beside masks of several splits is the same in all of them (WikiCS has one
    test mask).
    """
    given = {"train": np.asarray(train), "val": np.asarray(val), "test": np.asarray(test)}
    masks = []
    for name, mask in given.items():
        mask = np.atleast_2d(mask)
        if mask.ndim != 2 or mask.shape[1] != n_nodes:
            raise GraphError(f"{where}: the {name} mask has the shape {mask.shape}; expected one "
                             f"value for each of the {n_nodes} nodes")
        if mask.dtype.kind not in "biu" or not np.isin(mask, (0, 1)).all():
            raise GraphError(f"{where}: the {name} mask is {mask.dtype} and not of true and "
                             "false; expected only those")
        masks.append(mask.astype(bool))
    n_splits = max(map(len, masks))
    masks = [mask.repeat(n_splits, axis=0) if given[name].ndim == 1 else mask
             for name, mask in zip(given, masks)]
    if len({len(mask) for mask in masks}) != 1:
        raise GraphError(f"{where}: {[len(mask) for mask in masks]} train, val and test masks; "
                         "expected as many of each")
    splits_of_node = np.sum(masks, axis=0, dtype=np.uint8)
    if splits_of_node.max(initial=0) > 1:
        number, node = np.argwhere(splits_of_node > 1)[0]
        raise GraphError(f"{where}: node {node} is in two of train, val and test of split "
                         f"{number}; expected one")
    split = np.zeros_like(splits_of_node)
    for code, mask in enumerate(masks, 1):
        split[mask] = code
    return split


def split_from_lists(where: str, n_nodes: int, train, val, test) -> np.ndarray:
    """(1, n) codes from three lists of node numbers."""
    masks = []
    for name, nodes in (("train", train), ("val", val), ("test", test)):
        try:
            nodes = np.asarray(nodes)
        except ValueError:
            nodes = np.array(["a list within the list"])
        if nodes.ndim != 1 or len(nodes) and nodes.dtype.kind not in "iu":
            raise GraphError(f"{where}: the {name} list holds other things than node numbers; "
                             f"expected numbers in 0..{n_nodes - 1}")
        wrong = wrong_entry(nodes, n_nodes)
        if wrong:
            raise GraphError(f"{where}: the {name} list holds {wrong[1]}; expected each of its "
                             f"nodes once, in 0..{n_nodes - 1}")
        masks.append(np.zeros(n_nodes, bool))
        masks[-1][nodes.astype(np.int64)] = True
    return split_from_masks(where, n_nodes, *masks)


def wrong_entry(nodes: np.ndarray, n_nodes: int) -> tuple[int, str] | None:
    """(place, words) of the first number in a list of nodes that is no node's, or is there for the
    second time."""
    outside = np.flatnonzero((nodes < 0) | (nodes >= n_nodes))
    if len(outside):
        return int(outside[0]), f"node {nodes[outside[0]]}, which is not there"
    again = np.setdiff1d(np.arange(len(nodes)), np.unique(nodes, return_index=True)[1])
    return (int(again[0]), f"node {nodes[again[0]]} twice") if len(again) else None


def checked_dense(where: str, features: np.ndarray, n_nodes: int) -> np.ndarray:
    """Dense features of the right shape; their values are checked with the graph."""
    if features.ndim != 2 or features.shape[0] != n_nodes or features.dtype.kind not in "fiub":
        raise GraphError(f"{where}: features are {features.dtype} of shape {features.shape}; "
                         f"expected numbers, one row for each of the {n_nodes} nodes")
    return features


def checked_labels(where: str, labels: np.ndarray, n_nodes: int,
                   line: Callable[[int], int | None] | None = None) -> np.ndarray:
    """Labels as (n,) int32 with -1 for none, or (n, n_classes) uint8; `line` tells where in the
    file a node's row is."""
    if labels.ndim == 2 and labels.shape[1] == 1 and labels.dtype.kind != "b":
        labels = labels[:, 0]
    if labels.ndim not in (1, 2) or labels.shape[0] != n_nodes:
        raise GraphError(f"{where}: labels have the shape {labels.shape}; expected one row for "
                         f"each of the {n_nodes} nodes")
    if labels.dtype.kind not in "fiub":
        raise GraphError(f"{where}: labels are {labels.dtype}; expected numbers")
    if labels.ndim == 2:
        wrong_cells = np.argwhere(~np.isin(labels, (0, 1)))
        if len(wrong_cells):
            node = int(wrong_cells[0][0])
            raise GraphError(f"{_at(where, line, node)}: node {node} has "
                             f"{labels[tuple(wrong_cells[0])]} in a class column; expected 0 or 1")
        return labels.astype(np.uint8)
    if labels.dtype.kind == "f":
        # Unlabelled nodes are NaN in some data sets.
        labels = np.where(np.isnan(labels), -1, labels)
    limit = max(n_nodes, MOST_CLASSES)
    wrong = np.flatnonzero((labels != np.trunc(labels)) | (labels < -1) | (labels >= limit))
    if len(wrong):
        node = int(wrong[0])
        raise GraphError(f"{_at(where, line, node)}: node {node} has the label {labels[node]}; "
                         f"expected whole numbers from 0, less than {limit}, or -1 for none")
    return labels.astype(np.int32)


def check_ids(where: str, ids: np.ndarray, n_nodes: int):
    """Refuse ends of edges that are no nodes."""
    wrong = ids[(ids < 0) | (ids >= n_nodes)]
    if len(wrong):
        raise GraphError(f"{where}: there is an edge to node {wrong[0]}; expected ids in "
                         f"0..{n_nodes - 1}")


def checked_names(where: str, names: np.ndarray, n_nodes: int) -> np.ndarray:
    """Whole numbers or text, a different one for every node."""
    if names.shape != (n_nodes,) or names.dtype.kind not in "iuSU":
        raise GraphError(f"{where}: names are {names.dtype} of shape {names.shape}; expected one "
                         f"for each of the {n_nodes} nodes")
    wrong = next((k for k, name in enumerate(names.tolist()) if not _is_plain(name)), None)
    if wrong is not None:
        raise GraphError(f"{where}: node {wrong} has the name {str(names[wrong])[:40]!r}; "
                         "expected text in UTF-8 without line feeds and control characters")
    order = np.argsort(names, kind="stable")
    again = np.flatnonzero(names[order][1:] == names[order][:-1])
    if len(again):
        first, second = order[again[0]], order[again[0] + 1]
        raise GraphError(f"{where}: nodes {first} and {second} have the same name "
                         f"{str(names[first])[:40]!r}; expected different ones")
    return names


def _is_plain(name: int | str | bytes) -> bool:
    """Can a name be a line, or a cell of a table, and be shown on a terminal?"""
    try:
        name = name.decode() if isinstance(name, bytes) else name
        if isinstance(name, str):
            # half a surrogate pair has no bytes; NumPy also holds code points beyond Unicode,
            # whose bytes are no text
            name.encode().decode()
    except UnicodeError:
        return False
    return not isinstance(name, str) or not (CONTROL.search(name) or "\r" in name)


def _at(where: str, line: Callable[[int], int | None] | None, row: int) -> str:
    number = line(row) if line else None
    return where if number is None else f"{where}, line {number}"


@dataclass
class ReadOptions:
    """What a user can say about the files."""

    name: str | None = None            # planetoid: the data set; ogb: the folder of the split
    nodes: str | None = None           # csv, mtx: the table of nodes
    header: str = "auto"               # csv: does the edge list begin with names: auto, yes, no
    ids: str = "auto"  # csv: number (0..n-1 as they are), name (numbered anew), auto
    edge_columns: tuple[str, str] | None = None
    weights: bool = True               # are values of edges weights, if they can be?
    weight_column: str | None = None   # csv: of the edge list; its name, or its number from 1
    id_column: str | None = None
    label_column: str | None = None
    split_column: str | None = None
    feature_columns: list[str] | None = None      # columns.NO_COLUMNS alone: none
    skip_columns: list[str] | None = None
    features: str | None = None        # csv, mtx: a file of features beside the edges
    features_format: str = "auto"      # of a text: dense, triples, svmlight
    labels: str | None = None          # csv, mtx: a file of labels beside the edges
    # a folder for temporary files, which lasts until the graph is written
    scratch: str | None = None
