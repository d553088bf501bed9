"""Whether a graph can be used: each check yields what is wrong, in words for its owner, in bounded
memory.

The same checks serve arrays and HDF5 datasets, so a file is verified without loading it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from hpcgcn.errors import GraphError
from hpcgcn.files.datasets import PIECE_BYTES, pieces
from hpcgcn.graph import csr
from hpcgcn.graph.csr import row_blocks, row_numbers
from hpcgcn.graph.data import TEST, TRAIN, Graph, Part, SparseRows
from hpcgcn.graph.relations import MOST_UNUSED_CLASSES, MOST_UNUSED_COLUMNS

# Sums over neighbours and products with weights stay within 32 bits; as a float32, so that halves
# are compared in single precision.
LARGEST_FEATURE = np.float32(1e30)
_MOST_SHOWN = 5
# Ranks check what they load beside what they have loaded: blocks are small.
_CHECKED_BYTES = PIECE_BYTES // 16
_INDPTR_ROWS = _CHECKED_BYTES // 8
_CHECKED_EDGES = 1 << 17
_CACHED_EDGES = 1 << 14          # whose hashes stay in the cache of a core


def validate_graph(graph: Graph, need_train: bool = True):
    """Raise GraphError if the graph cannot be trained on (or, without need_train, not even be
    evaluated)."""
    problems = list(itertools.islice(graph_problems(graph, need_train), _MOST_SHOWN))
    if problems:
        raise GraphError("this graph cannot be used: " + "; ".join(problems))


def graph_problems(graph: Graph, need_train: bool = False) -> Iterator[str]:
    """All that is wrong with a graph (arrays or datasets)."""
    shape_problems = (list(_shape_problems(graph))
                      or list(indptr_problems(graph.indptr, len(graph.indices), "indptr")))
    if shape_problems:
        yield from shape_problems        # what follows would only stumble over them
        return
    yield from edge_problems(graph.indptr, graph.indices, graph.n_nodes,
                             symmetric=not graph.directed, weights=graph.edge_weights)
    yield from weight_problems(graph.edge_weights)
    yield from feature_problems(graph.features)
    yield from label_problems(graph.labels, graph.n_classes)
    for number, row in enumerate(graph.split):
        yield from split_problems(row, graph.labels, number, need_train)
    yield from name_problems(graph.node_names)
    yield from extra_problems(graph.extra)


def indptr_problems(indptr, n_entries: int, name: str) -> Iterator[str]:
    """Row ends that do not start at 0, fall, or do not end at the number of entries."""
    if indptr[0] != 0 or indptr[-1] != n_entries:
        yield (f"{name} runs from {indptr[0]} to {indptr[-1]}, not from 0 to the number of "
               f"entries ({n_entries})")
    for rows in _blocks(len(indptr) - 1, 8):
        block_indptr = indptr[rows.start:rows.stop + 1]
        falls = np.flatnonzero(block_indptr[1:] < block_indptr[:-1])     # differences may overflow
        if len(falls):
            yield f"{name} falls after row {rows.start + falls[0]}: row ends must not decrease"
            return


def edge_problems(indptr, indices, n_nodes: int, first_row: int = 0, symmetric: bool = False,
                  weights=None) -> Iterator[str]:
    """Neighbours out of range, self loops, rows not sorted or with duplicates, edges there one way
    only or, where weights are given, of another weight the other way.

    first_row is the node of row 0, for the rows of one part.
    """
    balance = 0
    for rows, columns, block_weights in _edge_blocks(indptr, indices, first_row, weights):
        outside = np.flatnonzero((columns < 0) | (columns >= n_nodes))
        if len(outside):
            yield (f"neighbour ids must be in 0..{n_nodes - 1}, but node {rows[outside[0]]} has "
                   f"the neighbour {columns[outside[0]]}: renumber the nodes")
            return
        loops = np.flatnonzero(rows == columns)
        if len(loops):
            yield (f"node {rows[loops[0]]} is its own neighbour: drop self loops, the models add "
                   "theirs")
            return
        unsorted = np.flatnonzero((columns[1:] <= columns[:-1]) & (rows[1:] == rows[:-1]))
        if len(unsorted):
            yield (f"the neighbours of node {rows[unsorted[0]]} are not sorted, or one is there "
                   "twice: sort, then merge")
            return
        if symmetric:
            balance += _one_way_balance(rows, columns, block_weights)
    if balance % 2 ** 64:
        yield ("the graph is called undirected, but some edges are there one way only"
               + ("" if weights is None else ", or have another weight the other way")
               + ": add the others, or set directed")


def weight_problems(weights) -> Iterator[str]:
    """Weights of edges that are no numbers, negative, or too large to be summed."""
    for part in _blocks(0 if weights is None else len(weights), 4):
        wrong = np.flatnonzero(~((weights[part] >= 0) & (weights[part] <= LARGEST_FEATURE)))
        if len(wrong):
            yield (f"the edge weight {weights[part.start + int(wrong[0])]} of entry "
                   f"{part.start + wrong[0]}: weights must be in 0..{LARGEST_FEATURE:.0e}")
            return


def feature_problems(features) -> Iterator[str]:
    """NaN, infinity and what training would overflow with; columns of sparse ones out of range."""
    if features.shape[1] == 0:
        yield "there are no features (0 columns): give every node at least one number"
    if isinstance(features, SparseRows):
        yield from _sparse_feature_problems(features)
        return
    for rows in _blocks(features.shape[0], features.shape[1] * 4):
        bad = np.flatnonzero(~(np.abs(features[rows]) <= LARGEST_FEATURE).all(axis=1))
        if len(bad):
            yield (f"features of node {rows.start + bad[0]} hold NaN or infinity, or more than "
                   f"{LARGEST_FEATURE:.0e}: replace, scale or remove such values")
            return


def label_problems(labels, n_classes: int) -> Iterator[str]:
    """Labels outside the classes."""
    multilabel = labels.ndim == 2
    lowest, highest = (0, 1) if multilabel else (-1, n_classes - 1)
    for rows in _blocks(labels.shape[0], 4 * (labels.shape[1] if multilabel else 1)):
        block = labels[rows]
        if block.size and (block.min() < lowest or block.max() > highest):
            row = int(np.argwhere((block < lowest) | (block > highest))[0][0])
            yield (f"labels must be in {lowest}..{highest}, but node {rows.start + row} has "
                   f"{block[row].max()}: check the number of classes")
            return


def split_problems(split, labels, number: int = 0, need_train: bool = False) -> Iterator[str]:
    """Unknown codes, nodes used without a label, and no node to train on."""
    n_train = 0
    for rows in _blocks(len(split), 8):
        codes = split[rows]
        if codes.size and codes.max() > TEST:
            yield (f"split {number} has the code {codes.max()}; known are 0 unused, 1 train, 2 "
                   "val, 3 test")
            return
        n_train += int(np.count_nonzero(codes == TRAIN))
        if labels.ndim == 1 and ((codes > 0) & (labels[rows] < 0)).any():
            node = rows.start + int(np.flatnonzero((codes > 0) & (labels[rows] < 0))[0])
            yield f"split {number} uses node {node}, which has no label: mark it unused (0)"
            return
    if need_train and n_train == 0:
        yield f"split {number} has no training nodes: mark some nodes as train (1)"


def name_problems(names) -> Iterator[str]:
    """Ids of nodes that are no text."""
    if names is None or names.dtype.kind != "S":
        return
    for rows in _blocks(len(names), names.dtype.itemsize):
        try:
            np.char.decode(names[rows], "utf-8")
        except UnicodeDecodeError:
            yield (f"node_names of the nodes {rows.start}..{rows.stop - 1} hold bytes that are "
                   "not UTF-8")
            return


def extra_problems(extra: dict) -> Iterator[str]:
    """Names of classes, features or columns that are not such."""
    for name in ("class_names", "feature_names", "edge_columns"):
        held = extra.get(name, [])
        if not isinstance(held, (list, tuple)) or not all(isinstance(item, str) for item in held):
            yield f"extra: {name} must be a list of strings"
    for name in ("id_column", "label_column", "made_features"):
        if not isinstance(extra.get(name, ""), str):
            yield f"extra: {name} must be a string"


def permutation_problems(ids, n_nodes: int, name: str = "original_ids") -> Iterator[str]:
    """Ids that are not those of all nodes, each once."""
    seen = np.zeros(n_nodes, bool)
    for rows in _blocks(len(ids), 8):
        block = ids[rows]
        seen[block[(block >= 0) & (block < n_nodes)]] = True
    if len(ids) != n_nodes or not seen.all():
        yield (f"{name} are not a permutation of the nodes: some are missing, negative, too "
               "large or there twice")


def offset_problems(offsets: np.ndarray, n_nodes: int) -> Iterator[str]:
    """Parts that do not divide the nodes, or are empty."""
    if offsets[0] != 0 or offsets[-1] != n_nodes:
        yield f"offsets do not divide {n_nodes} nodes into {len(offsets) - 1} parts"
    empty = np.flatnonzero(offsets[1:] <= offsets[:-1])
    if len(empty):
        yield f"offsets: part {int(empty[0])} is empty"


def part_balance(part: Part) -> np.ndarray:
    """Two numbers whose sums over all parts, modulo 2^64, are 0 if no rank's part contradicts
    another's.

    The first tells whether original_ids are a permutation, the second whether undirected edges are
    there both ways.
    """
    edges = 0
    if not part.directed:
        for block in _edge_blocks(part.indptr, part.indices, int(part.offsets[part.rank]),
                                  part.edge_weights):
            edges += _one_way_balance(*block)
    ids = 0
    for rows in _blocks(part.n_owned, 8):
        held, first = part.original_ids[rows], int(part.offsets[part.rank])
        own = np.arange(first + rows.start, first + rows.stop)
        ids += int(_mixed(held, held).sum()) - int(_mixed(own, own).sum())
    return np.array([ids % 2 ** 64, edges % 2 ** 64], np.uint64)


def _blocks(n_rows: int, row_bytes: int) -> Iterator[slice]:
    """Slices that cover n_rows rows, each of about _CHECKED_BYTES."""
    return pieces(n_rows, row_bytes * (PIECE_BYTES // _CHECKED_BYTES))


def _shape_problems(graph: Graph) -> Iterator[str]:
    if len(graph.indptr) < 2:
        yield "the graph has no nodes"
        return
    n_nodes = graph.n_nodes
    for name, length in (("features", graph.features.shape[0]), ("labels", graph.labels.shape[0]),
                         ("split", graph.split.shape[-1]),
                         ("node_names",
                          n_nodes if graph.node_names is None else len(graph.node_names))):
        if length != n_nodes:
            yield (f"{name} are for {length} nodes, but indptr says {n_nodes}: all must be of "
                   "the same length")
    for name in ("indptr", "indices"):
        if getattr(graph, name).dtype.kind not in "iu":
            yield f"{name} must be integers, not {getattr(graph, name).dtype}"
    weights = graph.edge_weights
    if weights is not None and (weights.shape != graph.indices.shape or weights.dtype.kind != "f"):
        yield (f"edge_weights are {weights.dtype} of shape {weights.shape}: expected a number for "
               f"each of the {len(graph.indices)} entries of indices")
    if graph.split.ndim != 2 or graph.split.shape[0] < 1:
        yield ("split must be of shape (n_splits, n_nodes) with at least one split, not "
               f"{graph.split.shape}")
    if graph.n_classes < 1:
        yield f"n_classes is {graph.n_classes}: at least one class is needed"
    if graph.n_classes > max(n_nodes, MOST_UNUSED_CLASSES):
        yield f"n_classes is {graph.n_classes}, which is more than there are nodes ({n_nodes})"
    features = graph.features
    if (isinstance(features, SparseRows)
            and graph.n_features > max(len(features.indices), MOST_UNUSED_COLUMNS)):
        yield (f"sparse features have {graph.n_features} columns for "
               f"{len(features.indices)} entries: leave out empty columns")
    if graph.multilabel and graph.labels.shape[1] != graph.n_classes:
        yield f"labels have {graph.labels.shape[1]} columns for {graph.n_classes} classes"


def _sparse_feature_problems(features: SparseRows) -> Iterator[str]:
    problems = list(indptr_problems(features.indptr, len(features.indices),
                                    "indptr of the sparse features"))
    yield from problems
    for part in _blocks(0 if problems else len(features.indices), 4):
        columns = features.indices[part]
        if columns.min() < 0 or columns.max() >= features.n_columns:
            yield ("sparse features have the column "
                   f"{columns.max() if columns.min() >= 0 else columns.min()}, but columns are "
                   f"0..{features.n_columns - 1}")
            return
        if features.values is not None \
                and not (np.abs(features.values[part]) <= LARGEST_FEATURE).all():
            yield (f"sparse features hold NaN or infinity, or more than {LARGEST_FEATURE:.0e}: "
                   "replace, scale or remove such values")
            return


def _edge_blocks(indptr, indices, first_row: int, weights=None) -> Iterator[tuple]:
    """(row, column, weight or None) of all entries, in blocks that fit in memory even if the graph
    does not."""
    for start in range(0, len(indptr) - 1, _INDPTR_ROWS):
        read_indptr = indptr[start:start + _INDPTR_ROWS + 1]
        for block in row_blocks(read_indptr, min(_CHECKED_EDGES, csr.BLOCK_EDGES)):
            own = read_indptr[block.start:block.stop + 1]
            entries = slice(int(own[0]), int(own[-1]))
            yield (row_numbers(own, first_row + start + block.start), indices[entries],
                   None if weights is None else weights[entries])


def _one_way_balance(rows: np.ndarray, columns: np.ndarray,
                     weights: np.ndarray | None = None) -> int:
    """A sum over edges, modulo 2^64, to which an edge and its reverse of the same weight add
    opposite numbers; 0 over a symmetric graph, and by chance alone over another."""
    total = 0
    for start in range(0, len(rows), _CACHED_EDGES):
        r = _scattered(rows[start:start + _CACHED_EDGES])
        c = _scattered(columns[start:start + _CACHED_EDGES])
        product = r * c
        r -= c
        product *= r
        if weights is not None:              # as bits, in which -0 + 0 is 0
            block = weights[start:start + _CACHED_EDGES] + np.float32(0)
            product *= _scattered(block.astype(np.float32, copy=False).view(np.uint32))
        total += int(product.sum())
    return total % 2 ** 64


def _scattered(numbers: np.ndarray) -> np.ndarray:
    """A hash of each number, as uint64; never 0, so that every edge counts."""
    mixed = numbers.astype(np.uint64)
    mixed += np.uint64(1)
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xFF51AFD7ED558CCD)
    mixed ^= mixed >> np.uint64(29)
    return mixed


def _mixed(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A hash of each pair of numbers, as uint64."""
    mixed = a.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= b.astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
    for shift, factor in ((33, 0xFF51AFD7ED558CCD), (29, 0xC4CEB9FE1A85EC53)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(32)
    return mixed
