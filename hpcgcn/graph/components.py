"""Connected components in bounded memory: labels fall to the smallest node that can be reached,
directions ignored."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hpcgcn.graph.csr import row_blocks, row_numbers


def components(indptr: np.ndarray, indices) -> np.ndarray:
    """The smallest node of every node's component, (n,) int64; indices may be a dataset."""
    parent = np.arange(len(indptr) - 1, dtype=np.int64)
    while _hook(parent, indptr, indices):
        _shorten(parent)
    return parent


def largest_component(indptr: np.ndarray, indices) -> np.ndarray:
    """The nodes of the largest component, sorted; of two equal ones, that with the smaller ids."""
    parent = components(indptr, indices)
    return np.flatnonzero(parent == np.bincount(parent).argmax())


def _hook(parent: np.ndarray, indptr: np.ndarray, indices) -> bool:
    """Hang the root of one end of every edge under the root of the other, if that is smaller; False
    if none was hung."""
    changed = False
    for rows, columns in _edges(indptr, indices):
        left, right = parent[rows], parent[columns]
        apart = left != right
        if apart.any():
            left, right = left[apart], right[apart]
            np.minimum.at(parent, np.maximum(left, right), np.minimum(left, right))
            changed = True
    return changed


def _shorten(parent: np.ndarray):
    """Have every node point to its root."""
    while True:
        grand = parent[parent]
        if np.array_equal(grand, parent):
            return
        parent[:] = grand


def _edges(indptr: np.ndarray, indices) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for block in row_blocks(indptr):
        block_indptr = indptr[block.start:block.stop + 1]
        first, last = int(block_indptr[0]), int(block_indptr[-1])
        yield row_numbers(block_indptr, block.start), indices[first:last]
