"""Counting halo rows, to compare parts."""

from __future__ import annotations

import numpy as np

from hpcgcn.graph.csr import row_blocks, row_numbers


def count_halo(indptr: np.ndarray, indices: np.ndarray, parts: np.ndarray, n_parts: int) -> int:
    """Pairs of a part and a node that it reads and does not own; for small graphs."""
    pairs = [np.zeros(0, np.int64)]
    for rows in row_blocks(indptr):
        block = indptr[rows.start:rows.stop + 1]
        columns = indices[int(block[0]):int(block[-1])].astype(np.int64)
        readers = parts[row_numbers(block, rows.start)]
        pairs.append(np.unique((columns * n_parts + readers)[readers != parts[columns]]))
    return len(np.unique(np.concatenate(pairs)))
