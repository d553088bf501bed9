"""Compressed sparse rows as plain arrays: taking, relabelling and walking through rows in bounded
memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

BLOCK_EDGES = 1 << 22      # edges in flight at once


def index_dtype(n_nodes: int):
    """The type of node ids in a CSR: int32 while it suffices."""
    return np.int32 if n_nodes < 2 ** 31 else np.int64


def invert(order: np.ndarray) -> np.ndarray:
    """The permutation that undoes another: inverse[order[i]] = i."""
    inverse = np.empty(len(order), np.int64)
    inverse[order] = np.arange(len(order))
    return inverse


def row_blocks(indptr: np.ndarray, most: int | None = None) -> Iterator[slice]:
    """Consecutive slices of rows with at most so many entries each (or one longer row);
    BLOCK_EDGES if that is not said."""
    start, n_rows = 0, len(indptr) - 1
    while start < n_rows:
        stop = int(np.searchsorted(indptr, indptr[start] + (most or BLOCK_EDGES), side="right")) - 1
        stop = min(max(stop, start + 1), n_rows)
        yield slice(start, stop)
        start = stop


def row_numbers(indptr: np.ndarray, first_row: int = 0) -> np.ndarray:
    """The row of every entry, (n_entries,) int64."""
    return np.repeat(np.arange(first_row, first_row + len(indptr) - 1), np.diff(indptr))


def take_indptr(indptr: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The indptr of the rows in the given order."""
    taken = np.zeros(len(order) + 1, np.int64)
    np.cumsum(indptr[order + 1] - indptr[order], out=taken[1:])
    return taken


def entry_positions(indptr: np.ndarray, order: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """Where the entries of the rows `order` are; `taken` is take_indptr(indptr, order), from any
    start."""
    return np.repeat(indptr[order] - (taken[:-1] - taken[0]),
                     np.diff(taken)) + np.arange(taken[-1] - taken[0])


def permuted_indices(indptr: np.ndarray, indices: np.ndarray,
                     order: np.ndarray) -> Iterator[np.ndarray]:
    """The entries of a square CSR with rows and columns renumbered (new row i is old row order[i]),
    piece by piece.

    Every row of the result is sorted. take_indptr(indptr, order) gives the rows' ends.
    """
    n_nodes = len(order)
    for keys, _ in _permuted_keys(indptr, indices, order):
        keys.sort()
        yield (keys % n_nodes).astype(index_dtype(n_nodes))


def permuted_values(indptr: np.ndarray, indices: np.ndarray, order: np.ndarray,
                    values: np.ndarray) -> Iterator[np.ndarray]:
    """One value per entry, in the order in which `permuted_indices` gives the entries."""
    for keys, positions in _permuted_keys(indptr, indices, order):
        yield values[positions][np.argsort(keys)]


def _permuted_keys(indptr: np.ndarray, indices: np.ndarray,
                   order: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(keys, positions) of the entries of renumbered rows, not sorted yet: one sort of keys (row,
    column) sorts all rows of a block at once."""
    inverse, taken, n_nodes = invert(order), take_indptr(indptr, order), len(order)
    for block in row_blocks(taken):
        block_indptr = taken[block.start:block.stop + 1]
        positions = entry_positions(indptr, order[block], block_indptr)
        yield row_numbers(block_indptr) * n_nodes + inverse[indices[positions]], positions


def csr_from_edges(n_nodes: int, sources, targets,
                   undirected: bool) -> tuple[np.ndarray, np.ndarray]:
    """(indptr, indices) of the edges source -> target: row v lists the in-neighbours of v.

    Self loops and duplicates are dropped; undirected: every edge is added the other way too.
    """
    sources, targets = np.asarray(sources, np.int64), np.asarray(targets, np.int64)
    proper = sources != targets
    keys = edge_keys(n_nodes, targets[proper], sources[proper])
    if undirected:
        keys = np.concatenate([keys, reversed_keys(n_nodes, keys)])
    return csr_from_keys(n_nodes, keys)


def edge_keys(n_nodes: int, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """One number an entry, ordered as a CSR is: by row, then by column; (n,) int64."""
    return rows.astype(np.int64) * n_nodes + columns


def reversed_keys(n_nodes: int, keys: np.ndarray) -> np.ndarray:
    """The keys of the same edges the other way, made block by block."""
    turned = np.empty_like(keys)
    for start in range(0, len(keys), BLOCK_EDGES):
        block = slice(start, start + BLOCK_EDGES)
        rows, columns = np.divmod(keys[block], n_nodes)
        turned[block] = edge_keys(n_nodes, columns, rows)
    return turned


def sort_distinct(keys: np.ndarray) -> np.ndarray:
    """The distinct keys in order; sorts `keys` itself, to need no second copy."""
    keys.sort()
    first = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    return keys if first.all() else keys[first]


def csr_from_keys(n_nodes: int, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(indptr, indices) of the entries with these keys, in any order and with duplicates; sorts
    `keys` itself."""
    keys = sort_distinct(keys)
    indptr = np.searchsorted(keys,
                             np.arange(n_nodes + 1, dtype=np.int64) * n_nodes).astype(np.int64)
    indices = np.empty(len(keys), index_dtype(n_nodes))
    for start in range(0, len(keys), BLOCK_EDGES):
        indices[start:start + BLOCK_EDGES] = keys[start:start + BLOCK_EDGES] % n_nodes
    return indptr, indices


def turned_csr(graph) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(indptr, indices, weights) of a graph by sources: row u lists the targets of u's edges, in
    order; without weights they are ones."""
    targets = row_numbers(graph.indptr)
    order = np.argsort(graph.indices, kind="stable")         # targets ascend already
    counts = np.bincount(graph.indices, minlength=graph.n_nodes)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    weights = (np.ones(graph.n_edges, np.float32) if graph.edge_weights is None
               else graph.edge_weights[order])
    return indptr, targets[order].astype(index_dtype(graph.n_nodes)), weights
