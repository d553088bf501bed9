"""GraphSAINT's four files: adj_full.npz, feats.npy, class_map.json, role.json (Reddit, Yelp,
Flickr, Amazon)."""

from __future__ import annotations

import json
import os

import numpy as np

from hpcgcn.errors import FileError, GraphError
from hpcgcn.formats.archive import Archive, read_npy
from hpcgcn.formats.draft import (
    Draft,
    ReadOptions,
    checked_csr,
    checked_dense,
    checked_labels,
    checked_weights,
    csr_edges,
    split_from_lists,
)
from hpcgcn.formats.files import bad, inside, key_line, present, read_json
from hpcgcn.formats.rows import is_whole
from hpcgcn.graph.data import SPLIT_NAMES, Graph, SparseRows

_FILES = ("adj_full.npz", "feats.npy", "class_map.json", "role.json")
_ROLES = ("tr", "va", "te")


def recognises(sources: list[str]) -> bool:
    """Is this a folder of GraphSAINT's files?"""
    return len(sources) == 1 and os.path.isdir(sources[0]) and present(sources[0],
                                                                       "adj_full.npz") is not None


def read(sources: list[str], options: ReadOptions) -> Draft:
    """The graph in a folder of GraphSAINT's files."""
    folder = sources[0]
    if not os.path.isdir(folder):
        raise FileError(f"{folder} is not a folder; expected one with {', '.join(_FILES)}")
    adjacency, features, classes, roles = (inside(folder, name) for name in _FILES)
    with Archive(adjacency) as archive:
        n_nodes = len(archive["indptr"]) - 1
        indptr, indices = checked_csr(adjacency, archive["indptr"], archive["indices"], n_nodes,
                                      n_nodes)
        weights = checked_weights(f"{adjacency} (data)",
                                  archive.get("data") if options.weights else None, len(indices))
    return Draft(lambda: csr_edges(indptr, indices, weights), n_nodes,
                 weighted=weights is not None,
                 features=checked_dense(features, read_npy(features), n_nodes),
                 labels=_labels(classes, read_json(classes), n_nodes),
                 split=_split(roles, read_json(roles), n_nodes),
                 source=os.path.basename(os.path.abspath(folder)))


def _labels(path: str, classes, n_nodes: int) -> np.ndarray:
    """{"node": class} or, multi-label, {"node": [0, 1, ...]}."""
    if not isinstance(classes, dict) or not classes:
        raise bad(path, None, "no object with an entry a node", '{"0": class, ...}')
    values = list(classes.values())
    width = len(values[0]) if isinstance(values[0], list) else 0
    labels = np.full(n_nodes, -1, np.int64) if not width else np.zeros((n_nodes, width), np.int64)
    for key, value in classes.items():
        if not is_whole(key) or not 0 <= int(key) < n_nodes:
            raise bad(path, key_line(path, key), f"a class for node {key[:40]!r}",
                      f"nodes 0..{n_nodes - 1}")
        numbers = value if isinstance(value, list) else [value]
        if len(numbers) != max(width, 1) or isinstance(value, list) != bool(width) \
                or not all(type(n) is int and abs(n) < 2 ** 31 for n in numbers):
            raise bad(path, key_line(path, key), f"the class {str(value)[:40]} of node {key}",
                      f"a list of {width} numbers, as for the others" if width
                      else "a whole number")
        labels[int(key)] = value
    return checked_labels(path, labels, n_nodes, lambda node: key_line(path, str(node)))


def _split(path: str, roles, n_nodes: int) -> np.ndarray:
    if not isinstance(roles, dict) or not all(isinstance(roles.get(role), list) for role in _ROLES):
        raise bad(path, None, "no lists tr, va and te",
                  '{"tr": [nodes], "va": [nodes], "te": [nodes]}')
    return split_from_lists(path, n_nodes, *(roles[role] for role in _ROLES))


def write(folder: str, graph: Graph):
    """The four files."""
    if len(graph.split) != 1:
        raise GraphError("this format holds one split; choose --format npz")
    features = graph.features.to_dense() if isinstance(graph.features,
                                                       SparseRows) else graph.features
    labels = enumerate(graph.labels.tolist())
    shape = np.array([graph.n_nodes, graph.n_nodes])
    np.savez(os.path.join(folder, "adj_full.npz"), indices=graph.indices, indptr=graph.indptr,
             format=np.bytes_(b"csr"), shape=shape,
             data=np.ones(graph.n_edges, np.float32) if graph.edge_weights is None
             else graph.edge_weights)
    np.save(os.path.join(folder, "feats.npy"), features)
    _write_json(folder, "class_map.json", {str(node): label for node, label in labels})
    _write_json(folder, "role.json", {role: np.flatnonzero(graph.split[0] == code).tolist()
                                      for role, code in zip(_ROLES, SPLIT_NAMES)})


def _write_json(folder: str, name: str, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        json.dump(value, file)
