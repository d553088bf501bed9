"""What a file of ours is and holds, as plain facts; the command line prints them."""

from __future__ import annotations

import os

import h5py
import numpy as np

from hpcgcn.files.datasets import all_datasets, pieces, read_json
from hpcgcn.graph.data import TRAIN
from hpcgcn.graph.header import examine
from hpcgcn.graph.statistics import component_sizes, degree_histogram, homophily, split_by_class
from hpcgcn.info.verify import problems


def describe(path: str | os.PathLike) -> dict:
    """Header, datasets, size, contents and problems of a file; FileError if it cannot be opened.

    `problems` is empty if the file is sound; `contents` are counted from the arrays, and are left
    out if it is not.
    """
    with examine(path) as held:
        facts = {"path": str(path), "header": held.facts, "bytes": os.path.getsize(path),
                 "problems": problems(held), "datasets": []}
        if not held.problems:
            facts["datasets"] = [
                {"name": item.name, "dtype": str(item.dtype), "shape": list(item.shape),
                 "bytes": item.size * item.dtype.itemsize} for item in all_datasets(held.file)]
        if not facts["problems"]:
            facts["contents"] = {name: value for describer in CONTENTS.get(held.kind, ())
                                 for name, value in describer(held.file).items()}
    return facts


def _degrees(file: h5py.File) -> dict:
    """Mean, smallest and largest number of in-neighbours."""
    indptr = file["indptr"]
    n_nodes = len(indptr) - 1
    low, high = n_nodes, 0
    for rows in pieces(n_nodes, 8):
        degrees = np.diff(indptr[rows.start:rows.stop + 1])
        low, high = min(low, int(degrees.min())), max(high, int(degrees.max()))
    return {"degree": {"mean": int(indptr[-1]) / n_nodes, "min": low, "max": high}}


def _labels(file: h5py.File) -> dict:
    """How many nodes are labelled, and the nodes of every class."""
    labels, n_classes = file["labels"], int(file.attrs["n_classes"])
    per_class = np.zeros(n_classes, np.int64)
    labelled = 0
    for rows in pieces(len(labels), 4 * (1 if labels.ndim == 1 else n_classes)):
        block = labels[rows]
        if labels.ndim == 2:
            per_class += block.sum(axis=0, dtype=np.int64)
            labelled += int(np.count_nonzero(block.any(axis=1)))
        else:
            per_class += np.bincount(block[block >= 0], minlength=n_classes)
            labelled += int(np.count_nonzero(block >= 0))
    names = read_json(file["extra"]).get("class_names", []) if "extra" in file else []
    return {"labelled_nodes": labelled, "class_sizes": per_class.tolist(),
            **({"class_names": names} if len(names) == n_classes else {})}


def _training_nodes(file: h5py.File) -> dict:
    """Of every split."""
    return {"training_nodes": [int(np.count_nonzero(row == TRAIN)) for row in file["split"]]}


def _parts(file: h5py.File) -> dict:
    """Nodes and edges of every part."""
    offsets = file["offsets"][...]
    edge_stops = file["indptr"][offsets]
    return {"parts": {"nodes": np.diff(offsets).tolist(), "edges": np.diff(edge_stops).tolist()}}


def _edge_weights(file: h5py.File) -> dict:
    """Smallest, largest and mean weight of the edges, if they have any."""
    if "edge_weights" not in file or not len(file["edge_weights"]):
        return {}
    weights, low, high, total = file["edge_weights"], np.inf, 0.0, 0.0
    for rows in pieces(len(weights), 4):
        block = weights[rows]
        low, high = min(low, float(block.min())), max(high, float(block.max()))
        total += float(block.sum(dtype=np.float64))
    return {"edge_weights": {"mean": total / len(weights), "min": low, "max": high}}


# What is counted for each kind of file: functions of the open file that return facts.
_GRAPH = (_degrees, _edge_weights, degree_histogram, component_sizes, _labels, homophily,
          split_by_class, _training_nodes)
CONTENTS = {"graph": _GRAPH, "partition": (*_GRAPH, _parts)}
