"""DGL's Reddit: reddit_data.npz (feature, label, node_types) and reddit_graph.npz (a SciPy sparse
matrix)."""

from __future__ import annotations

import os

import numpy as np

from hpcgcn.errors import FileError, GraphError
from hpcgcn.formats.archive import Archive
from hpcgcn.formats.draft import (
    Draft,
    ReadOptions,
    checked_csr,
    checked_dense,
    checked_labels,
    checked_names,
    checked_weights,
    csr_edges,
)
from hpcgcn.formats.files import present
from hpcgcn.graph.csr import row_numbers, turned_csr
from hpcgcn.graph.data import TEST, Graph, SparseRows


def recognises(sources: list[str]) -> bool:
    """Are these DGL's two files of Reddit?"""
    return _located(sources) is not None


def _located(sources: list[str]) -> tuple[str, str] | None:
    """(data, graph), from the folder or from the two files in any order."""
    if len(sources) == 1 and os.path.isdir(sources[0]):
        data, graph = present(sources[0], "reddit_data.npz"), present(sources[0],
                                                                      "reddit_graph.npz")
        return (data, graph) if data and graph else None
    if len(sources) == 2:
        data_files = [s for s in sources if s.endswith("data.npz")]
        graph_files = [s for s in sources if s.endswith("graph.npz")]
        one_each = len(data_files) == len(graph_files) == 1
        return (data_files[0], graph_files[0]) if one_each else None
    return None


def read(sources: list[str], options: ReadOptions) -> Draft:
    """The graph in DGL's two files of Reddit."""
    located = _located(sources)
    if located is None:
        raise FileError(f"{' '.join(sources)}: no such pair of files; expected reddit_data.npz "
                        "and reddit_graph.npz")
    data_path, graph_path = located
    with Archive(data_path) as data:
        labels, types = data["label"], data["node_types"]
        n_nodes = labels.shape[0] if labels.ndim else 0
        labels = checked_labels(f"{data_path} (label)", labels, n_nodes)
        features = checked_dense(f"{data_path} (feature)", data["feature"], n_nodes)
        if (types.shape != (n_nodes,) or types.dtype.kind not in "iu"
            or not ((types >= 0) & (types <= TEST)).all()):
            raise GraphError(f"{data_path}: node_types are {types.dtype} of shape {types.shape}; "
                             f"expected 1 (train), 2 (val) or 3 (test) for each of the {n_nodes} "
                             "nodes")
        names = data.get("node_ids")
        names = None if names is None else checked_names(f"{data_path} (node_ids)", names, n_nodes)
    edges, weighted = _edges(graph_path, n_nodes, options)
    return Draft(edges, n_nodes, features=features, labels=labels, weighted=weighted,
                 split=types.astype(np.uint8)[None],
                 node_names=names, source=os.path.basename(data_path))


def _edges(path: str, n_nodes: int, options: ReadOptions):
    """(edges, do they have weights?): entry (u, v) of the matrix is an edge from u to v; the matrix
    is in coordinates or in rows."""
    with Archive(path) as matrix:
        values = matrix.get("data") if options.weights else None
        if "row" in matrix:
            sources, targets = matrix["row"], matrix["col"]
            if (sources.shape != targets.shape or sources.ndim != 1
                or {sources.dtype.kind, targets.dtype.kind} - set("iu")):
                raise GraphError(f"{path}: row and col are of shapes {sources.shape} and "
                                 f"{targets.shape}; expected two lists of node numbers of the "
                                 "same length")
            for nodes in (sources, targets):
                if len(nodes) and (nodes.min() < 0 or nodes.max() >= n_nodes):
                    raise GraphError(f"{path}: there is an edge to node "
                                     f"{nodes.min() if nodes.min() < 0 else nodes.max()}; expected "
                                     f"ids in 0..{n_nodes - 1}")
            weights = checked_weights(f"{path} (data)", values, len(sources))
            block = (sources, targets) if weights is None else (sources, targets, weights)
            return lambda: [block], weights is not None
        indptr, indices = checked_csr(path, matrix["indptr"], matrix["indices"], n_nodes, n_nodes)
        weights = checked_weights(f"{path} (data)", values, len(indices))
        return lambda: csr_edges(indptr, indices, weights, turned=True), weights is not None


def write(folder: str, graph: Graph):
    """The two files in a folder, the matrix in coordinates."""
    if len(graph.split) != 1 or graph.multilabel:
        raise GraphError("this format holds one split and one class a node; choose --format npz")
    features = graph.features.to_dense() if isinstance(graph.features,
                                                       SparseRows) else graph.features
    indptr, targets, values = turned_csr(graph)
    names = np.arange(graph.n_nodes) if graph.node_names is None else graph.node_names
    np.savez(os.path.join(folder, "reddit_data.npz"), feature=features,
             label=graph.labels.astype(np.int64),
             node_types=graph.split[0].astype(np.int64), node_ids=names)
    np.savez(os.path.join(folder, "reddit_graph.npz"), row=row_numbers(indptr), col=targets,
             format=np.bytes_(b"coo"),
             data=values, shape=np.array([graph.n_nodes, graph.n_nodes]))
