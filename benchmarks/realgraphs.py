"""Real graphs for the benchmarks: found through HPCGCN_TEST_DATA, written as graph files that all ranks can read."""

from __future__ import annotations

import os

import numpy as np

from hpcgcn.errors import FileError
from hpcgcn.graph.csr import csr_from_edges
from hpcgcn.graph.data import TEST, TRAIN, UNUSED, VAL, Graph, SparseRows

TRAIN_PER_CLASS, VAL_PER_CLASS = 20, 30     # where a data set brings no split
N_RANDOM_SPLITS = 10


def graph_file(name: str, folder: str) -> str:
    """The graph file of a data set (or `name` itself, if it is a file), written into `folder` unless it is there."""
    from hpcgcn.graph.store import write_graph
    if os.path.isfile(name):
        return name
    target = os.path.join(folder, f"{name}.h5")
    if not os.path.exists(target):
        os.makedirs(folder, exist_ok=True)
        write_graph(target, load(name), command="benchmarks")
    return target


def load(name: str) -> Graph:
    """A data set of HPCGCN_TEST_DATA by its file name without the ending."""
    root = os.environ.get("HPCGCN_TEST_DATA", "")
    for folder, read in (("npz", _read_npz), ("heterophilous", _read_heterophilous)):
        path = os.path.join(root, folder, f"{name}.npz")
        if os.path.exists(path):
            with np.load(path) as arrays:
                return read(arrays, name)
    raise FileError(f"no data set '{name}': give a graph file, or set HPCGCN_TEST_DATA to the folder that holds "
                    f"npz/{name}.npz or heterophilous/{name}.npz (now '{root}')")


def _read_npz(arrays, name: str) -> Graph:
    labels = arrays["y"].astype(np.uint8 if arrays["y"].ndim == 2 else np.int32)
    if "train" in arrays:
        split = np.select([arrays["train"], arrays["val"], arrays["test"]], [TRAIN, VAL, TEST], UNUSED).astype(np.uint8)[None]
    else:
        split = np.stack([random_split(labels, seed) for seed in range(N_RANDOM_SPLITS)])
    features = SparseRows(arrays["x_indptr"].astype(np.int64), arrays["x_indices"].astype(np.int32),
                          arrays["x_data"].astype(np.float32) if "x_data" in arrays else None, int(arrays["x_shape"][1]))
    return Graph(arrays["indptr"].astype(np.int64), arrays["indices"].astype(np.int32), features, labels, split,
                 int(labels.max()) + 1, source=name)


def _read_heterophilous(arrays, name: str) -> Graph:
    labels, edges = arrays["node_labels"].astype(np.int32), arrays["edges"]
    split = np.select([arrays["train_masks"], arrays["val_masks"], arrays["test_masks"]], [TRAIN, VAL, TEST], UNUSED)
    indptr, indices = csr_from_edges(len(labels), edges[:, 0], edges[:, 1], undirected=True)
    return Graph(indptr, indices, _features(arrays["node_features"]), labels, split.astype(np.uint8), int(labels.max()) + 1,
                 source=name)


def _features(dense: np.ndarray) -> np.ndarray | SparseRows:
    """Sparse rows where nearly all is zero."""
    if np.count_nonzero(dense) > 0.05 * dense.size:
        return dense.astype(np.float32)
    rows, columns = np.nonzero(dense)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(dense)))]).astype(np.int64)
    return SparseRows(indptr, columns.astype(np.int32), dense[rows, columns].astype(np.float32), dense.shape[1])


def random_split(labels: np.ndarray, seed: int) -> np.ndarray:
    """20 nodes of every class to train on, 30 to validate, the rest to test; (n,) uint8."""
    generator = np.random.default_rng(seed)
    split = np.where(labels >= 0, TEST, UNUSED).astype(np.uint8)
    for label in range(labels.max() + 1):
        members = generator.permutation(np.flatnonzero(labels == label))
        split[members[:TRAIN_PER_CLASS]] = TRAIN
        split[members[TRAIN_PER_CLASS:TRAIN_PER_CLASS + VAL_PER_CLASS]] = VAL
    return split
