"""What kind of graph a file holds: degrees, homophily, components; counted in bounded memory."""

from __future__ import annotations

import h5py
import numpy as np

from hpcgcn.files.datasets import pieces
from hpcgcn.graph.components import components
from hpcgcn.graph.csr import row_blocks, row_numbers


def degree_histogram(file: h5py.File) -> dict:
    """Nodes by their number of in-neighbours: 0, 1, 2-3, 4-7, ...: a list of [smallest, largest,
    nodes]."""
    indptr = file["indptr"]
    counts = np.zeros(64, np.int64)
    for rows in pieces(len(indptr) - 1, 8):
        degrees = np.diff(indptr[rows.start:rows.stop + 1])
        # The number of binary digits: 0 for 0, 1 for 1, 2 for 2 and 3, ...
        bins = np.frexp(degrees.astype(np.float64))[1]
        counts += np.bincount(bins, minlength=64)
    used = int(np.flatnonzero(counts)[-1]) + 1
    return {"degree_histogram": [[0 if k == 0 else 1 << (k - 1), 0 if k == 0 else (1 << k) - 1,
                                  int(counts[k])] for k in range(used)]}


def homophily(file: h5py.File) -> dict:
    """Share of edges between nodes of the same class, among edges with both ends labelled (one
    class a node only).

    `expected` is that share if edges knew nothing of classes: nodes weighed by their degree.
    """
    if file["labels"].ndim == 2:
        return {}
    labels, indptr, indices = file["labels"][...], file["indptr"][...], file["indices"]
    same = known = 0
    by_class = np.zeros(int(file.attrs["n_classes"]), np.float64)
    for block in row_blocks(indptr):
        block_indptr = indptr[block.start:block.stop + 1]
        mine = labels[row_numbers(block_indptr, block.start)]
        theirs = labels[indices[int(block_indptr[0]):int(block_indptr[-1])]]
        both = (mine >= 0) & (theirs >= 0)
        known += int(np.count_nonzero(both))
        same += int(np.count_nonzero(both & (mine == theirs)))
        by_class += np.bincount(mine[both], minlength=len(by_class))
    if not known:
        return {}
    return {"homophily": {"edges": same / known,
                          "expected": float(((by_class / known) ** 2).sum())}}


def component_sizes(file: h5py.File) -> dict:
    """How many connected components there are, directions ignored, the nodes of the largest, and
    nodes without any edge."""
    indptr = file["indptr"][...]
    sizes = np.bincount(components(indptr, file["indices"]))
    sizes = sizes[sizes > 0]
    return {"components": {"count": len(sizes), "largest": int(sizes.max())},
            "isolated_nodes": int(np.count_nonzero(sizes == 1))}


def split_by_class(file: h5py.File) -> dict:
    """Of the first split: train, val and test nodes of every class (one class a node only)."""
    if file["labels"].ndim == 2:
        return {}
    labels, split, n_classes = file["labels"][...], file["split"][0], int(file.attrs["n_classes"])
    if not split.any():
        return {}
    return {"split_by_class": {name: np.bincount(labels[(split == code) & (labels >= 0)],
                                                 minlength=n_classes).tolist()
                               for code, name in ((1, "train"), (2, "val"), (3, "test"))}}
