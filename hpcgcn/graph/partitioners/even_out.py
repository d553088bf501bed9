"""Balancing what a partitioner has not: marked nodes besides all nodes, and parts without nodes."""

from __future__ import annotations

import numpy as np

from hpcgcn.graph.csr import entry_positions, row_blocks, row_numbers, take_indptr
from hpcgcn.graph.partitioners.base import UNEVEN


def even_out(indptr: np.ndarray, indices: np.ndarray, parts: np.ndarray, marked: np.ndarray,
             n_parts: int):
    """Swap marked nodes against others between parts, in place, until no part has more than its
    share of them.

    METIS balances two things at once only with two weights a node, which pymetis does not pass on.
    Sizes stay the same.
    """
    counts = np.bincount(parts[marked], minlength=n_parts)
    fair = counts.sum() / n_parts
    for _ in range(2 * n_parts):
        most, least = int(counts.argmax()), int(counts.argmin())
        if counts[most] <= max(UNEVEN * fair, fair + 1):
            return
        n_swaps = int(np.ceil(min(counts[most] - fair, fair - counts[least])))
        going = _loosest(indptr, indices, parts, np.flatnonzero((parts == most) & marked), least,
                         n_swaps)
        coming = _loosest(indptr, indices, parts, np.flatnonzero((parts == least) & ~marked), most,
                          n_swaps)
        n_swaps = min(len(going), len(coming))
        parts[going[:n_swaps]], parts[coming[:n_swaps]] = least, most
        counts[most] -= n_swaps
        counts[least] += n_swaps


def _loosest(indptr, indices, parts, nodes: np.ndarray, target: int, n: int) -> np.ndarray:
    """The n of some nodes of one part that lose the fewest, or gain the most, neighbours by going
    to another part."""
    if not len(nodes):
        return nodes
    taken_indptr = take_indptr(indptr, nodes)
    gains = []
    for block in row_blocks(taken_indptr):
        own = taken_indptr[block.start:block.stop + 1]
        there = parts[indices[entry_positions(indptr, nodes[block], own)]]
        value = (there == target).astype(np.int64) - (there == parts[nodes[0]])
        gains.append(np.bincount(row_numbers(own), value, block.stop - block.start))
    return nodes[np.argsort(-np.concatenate(gains), kind="stable")[:n]]


def without_empty_parts(parts: np.ndarray, n_parts: int) -> np.ndarray:
    """Give every empty part one node of the then largest part: METIS leaves parts of tiny graphs
    empty."""
    sizes = np.bincount(parts, minlength=n_parts)
    for empty in np.flatnonzero(sizes == 0):
        donor = int(sizes.argmax())
        parts[np.flatnonzero(parts == donor)[-1]] = empty
        sizes[donor] -= 1
        sizes[empty] = 1
    return parts
