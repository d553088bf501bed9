"""NumPy archives in three layouts: plain CSR, the heterophilous benchmark's, and
gnn-benchmark's."""

from __future__ import annotations

import os

import numpy as np

from hpcgcn.errors import FileError, GraphError
from hpcgcn.formats.archive import Archive
from hpcgcn.formats.draft import (
    Draft,
    ReadOptions,
    check_ids,
    checked_csr,
    checked_dense,
    checked_labels,
    checked_names,
    checked_weights,
    csr_edges,
    split_from_masks,
)
from hpcgcn.graph.csr import row_numbers, turned_csr
from hpcgcn.graph.data import SPLIT_NAMES, Graph, SparseRows


def recognises(sources: list[str]) -> bool:
    """Is this an archive of NumPy arrays in a layout known here?"""
    if len(sources) != 1 or not sources[0].endswith(".npz"):
        return False
    with Archive(sources[0]) as archive:
        return _layout(archive) is not None


def _layout(archive: Archive):
    for needed, reader in ((("edges", "node_labels"), _read_heterophilous),
                           (("adj_indptr", "adj_indices"), _read_benchmark),
                           (("indptr", "indices"), _read_plain)):
        if all(name in archive for name in needed):
            return reader
    return None


def read(sources: list[str], options: ReadOptions) -> Draft:
    """The graph in an archive of NumPy arrays in a layout known here."""
    with Archive(sources[0]) as archive:
        reader = _layout(archive)
        if reader is None:
            raise FileError(f"{sources[0]} holds the arrays "
                            f"{', '.join(sorted(archive.names()))}; expected indptr and indices, "
                            "or edges and node_labels, or adj_indptr and adj_indices")
        draft = reader(str(sources[0]), archive, options)
    draft.source = os.path.basename(sources[0])
    return draft


def _read_plain(where: str, archive: Archive, options: ReadOptions) -> Draft:
    n_nodes = len(archive["indptr"]) - 1
    indptr, indices = checked_csr(f"{where} (indptr, indices)", archive["indptr"],
                                  archive["indices"], n_nodes, n_nodes)
    labels = archive.get("y")
    weights = checked_weights(f"{where} (data)", archive.get("data") if options.weights else None,
                              len(indices))
    return Draft(lambda: csr_edges(indptr, indices, weights), n_nodes,
                 weighted=weights is not None,
                 features=_features(where, archive, "x", n_nodes),
                 labels=None if labels is None else checked_labels(f"{where} (y)", labels, n_nodes),
                 split=_masks(where, archive, n_nodes, "train", "val", "test"),
                 n_classes=_scalar(archive, "n_classes"),
                 node_names=_names(where, archive, n_nodes))


def _read_heterophilous(where: str, archive: Archive, options: ReadOptions) -> Draft:
    labels = archive["node_labels"]
    n_nodes = len(labels)
    edges = archive["edges"]
    if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
        raise GraphError(f"{where}: edges are {edges.dtype} of shape {edges.shape}; expected "
                         "pairs of node numbers")
    check_ids(where, edges, n_nodes)
    return Draft(lambda: [(edges[:, 0], edges[:, 1])], n_nodes,
                 features=checked_dense(f"{where} (node_features)", archive["node_features"],
                                        n_nodes),
                 labels=checked_labels(f"{where} (node_labels)", labels, n_nodes), pairs=True,
                 split=_masks(where, archive, n_nodes, "train_masks", "val_masks", "test_masks"))


def _read_benchmark(where: str, archive: Archive, options: ReadOptions) -> Draft:
    """Row u of the matrix lists the targets of u's edges."""
    n_nodes = len(archive["adj_indptr"]) - 1
    shape, values = archive.get("adj_shape"), archive.get("adj_data")
    if (shape is not None and shape.tolist() != [n_nodes, n_nodes]) or \
            (values is not None and values.shape != archive["adj_indices"].shape):
        raise GraphError(f"{where}: adj_shape or adj_data do not fit adj_indptr and adj_indices; "
                         f"expected {n_nodes} rows and columns, and a value for each entry")
    indptr, indices = checked_csr(f"{where} (adj_indptr, adj_indices)", archive["adj_indptr"],
                                  archive["adj_indices"], n_nodes, n_nodes)
    features = _features(where, archive, "attr", n_nodes)
    if features is None and "attr_matrix" in archive:
        features = checked_dense(f"{where} (attr_matrix)", archive["attr_matrix"], n_nodes)
    labels = archive.get("labels")
    weights = checked_weights(f"{where} (adj_data)", values if options.weights else None,
                              len(indices))
    return Draft(lambda: csr_edges(indptr, indices, weights, turned=True), n_nodes,
                 weighted=weights is not None, features=features, labels=None if labels is None
                 else checked_labels(f"{where} (labels)", labels, n_nodes))


def _features(where: str, archive: Archive, prefix: str, n_nodes: int):
    if prefix in archive:
        return checked_dense(f"{where} ({prefix})", archive[prefix], n_nodes)
    if f"{prefix}_indptr" not in archive:
        return None
    shape = archive[f"{prefix}_shape"].reshape(-1)
    if len(shape) != 2 or shape.dtype.kind not in "iu" or not 0 < shape[1] < 2 ** 31:
        held = f"{shape.tolist()}" if len(shape) <= 4 else f"an array of {len(shape)} values"
        raise GraphError(f"{where}: {prefix}_shape is {held}; expected the numbers of nodes and "
                         "columns")
    n_columns = int(shape[1])
    indptr, indices = checked_csr(f"{where} ({prefix}_indptr, {prefix}_indices)",
                                  archive[f"{prefix}_indptr"],
                                  archive[f"{prefix}_indices"], n_nodes, n_columns)
    values = archive.get(f"{prefix}_data")
    if values is not None:
        if values.shape != indices.shape or values.dtype.kind not in "fiub":
            raise GraphError(f"{where}: {prefix}_data is {values.dtype} of shape {values.shape}; "
                             f"expected a number for each of the {len(indices)} entries")
        values = values.astype(np.float32)
        values = None if (values == 1).all() else values
    return SparseRows(indptr, indices.astype(np.int32), values, n_columns)


def _masks(where: str, archive: Archive, n_nodes: int, *names: str) -> np.ndarray | None:
    if not any(name in archive for name in names):
        return None
    return split_from_masks(where, n_nodes, *(archive[name] for name in names))


def _scalar(archive: Archive, name: str) -> int | None:
    value = archive.get(name)
    if value is not None and (value.size != 1 or value.dtype.kind not in "iu"
                              or not 0 < value.reshape(-1)[0] < 2 ** 31):
        raise GraphError(f"{archive.path}: {name} is {value.reshape(-1)[:5].tolist()}; expected "
                         "a number of classes")
    return None if value is None else int(value.reshape(-1)[0])


def _names(where: str, archive: Archive, n_nodes: int) -> np.ndarray | None:
    names = archive.get("node_names")
    return None if names is None else checked_names(f"{where} (node_names)", names, n_nodes)


def write(path: str, graph: Graph):
    """The plain layout."""
    arrays = {"indptr": graph.indptr, "indices": graph.indices, "y": graph.labels,
              "n_classes": np.int64(graph.n_classes),
              **_feature_arrays(graph.features, "x"), **_mask_arrays(graph)}
    if graph.node_names is not None:
        arrays["node_names"] = graph.node_names
    if graph.edge_weights is not None:
        arrays["data"] = graph.edge_weights
    _save(path, arrays)


def write_heterophilous(path: str, graph: Graph):
    """node_features, node_labels, edges (each pair once), *_masks."""
    if graph.directed or graph.multilabel:
        raise GraphError("this layout holds undirected graphs with one class a node; choose "
                         "--format npz")
    rows = row_numbers(graph.indptr)
    once = rows < graph.indices
    features = graph.features.to_dense() if isinstance(graph.features,
                                                       SparseRows) else graph.features
    _save(path,
          {"node_features": features, "node_labels": graph.labels.astype(np.int64),
           "edges": np.stack([rows[once], graph.indices[once]], axis=1).astype(np.int64),
           **{f"{name}_masks": np.atleast_2d(mask) for name, mask in _mask_arrays(graph).items()}})


def write_benchmark(path: str, graph: Graph):
    """adj_*, attr_*, labels; this layout has no place for a split."""
    if graph.multilabel:
        raise GraphError("this layout holds graphs with one class a node; choose --format npz")
    indptr, indices, values = turned_csr(graph)
    shape = np.array([graph.n_nodes, graph.n_nodes])
    features = _feature_arrays(graph.features, "attr")
    if "attr" in features:
        features = {"attr_matrix": features["attr"]}
    _save(path, {"adj_data": values, "adj_indices": indices,
                 "adj_indptr": indptr, "adj_shape": shape, "labels": graph.labels, **features})


def _feature_arrays(features, prefix: str) -> dict:
    if not isinstance(features, SparseRows):
        return {prefix: features}
    values = np.ones(len(features.indices),
                     np.float32) if features.values is None else features.values
    return {f"{prefix}_indptr": features.indptr, f"{prefix}_indices": features.indices,
            f"{prefix}_data": values, f"{prefix}_shape": np.array(features.shape)}


def _mask_arrays(graph: Graph) -> dict:
    split = graph.split[0] if len(graph.split) == 1 else graph.split
    return {name: split == code for code, name in SPLIT_NAMES.items()}


def _save(path: str, arrays: dict):
    with open(path, "wb") as file:
        np.savez_compressed(file, **arrays)
