"""The datasets that graph and partition files have in common: written from a Graph, seen again as a
Graph."""

from __future__ import annotations

import json
from dataclasses import replace

import h5py
import numpy as np

from hpcgcn.files.datasets import array_pieces, read_json, write_array, write_json, write_pieces
from hpcgcn.graph.csr import index_dtype, permuted_indices, permuted_values, take_indptr
from hpcgcn.graph.data import SPLIT_NAMES, Graph, SparseRows
from hpcgcn.graph.ordered import ordered_entries, ordered_rows, renumbered


def write_contents(file: h5py.File, graph: Graph, order: np.ndarray | None = None):
    """Write all arrays of a graph; with `order`, node order[i] of the graph becomes node i of the
    file."""
    dtype = index_dtype(graph.n_nodes)
    if order is None:
        write_array(file, "indptr", graph.indptr, np.int64)
        write_array(file, "indices", graph.indices, dtype)
    else:
        write_array(file, "indptr", take_indptr(graph.indptr, order), np.int64)
        write_pieces(file, "indices", graph.indices.shape, dtype,
                     renumbered(graph.indptr, graph.indices, order))
    _write_edge_weights(file, graph, order)
    _write_features(file, graph.features, order)
    _write_rows(file, "labels", graph.labels, np.uint8 if graph.multilabel else np.int32, order)
    split = np.atleast_2d(graph.split)
    write_pieces(file, "split", split.shape, np.uint8,
                 ((row if order is None else row[order])[None] for row in split))
    if graph.node_names is not None:
        names = _storable_names(graph.node_names)
        _write_rows(file, "node_names", names, names.dtype, order)
    if graph.extra:
        write_json(file, "extra", graph.extra)


def shape_facts(graph: Graph) -> dict:
    """The sizes and kinds of a graph's contents, as file attributes."""
    features = graph.features
    sparse = isinstance(features, SparseRows)
    dtype = np.float32 if isinstance(features, SparseRows) else _feature_dtype(features)
    split = np.atleast_2d(graph.split)
    counts = [{name: int(np.count_nonzero(row == code)) for code, name in SPLIT_NAMES.items()}
              for row in split]
    return {"n_nodes": graph.n_nodes, "n_edges": graph.n_edges, "n_features": graph.n_features,
            "n_classes": int(graph.n_classes), "n_splits": len(split),
            "directed": bool(graph.directed),
            "multilabel": graph.multilabel, "sparse_features": sparse,
            "weighted": graph.edge_weights is not None,
            "feature_dtype": np.dtype(dtype).name,
            "split_counts": json.dumps(counts)}


def lazy_graph(file: h5py.File) -> Graph:
    """The graph of an open file, with datasets in place of arrays: nothing but `extra` is read
    yet."""
    return Graph(indptr=file["indptr"], indices=file["indices"],
                 features=lazy_features(file["features"]),
                 labels=file["labels"], split=file["split"], n_classes=int(file.attrs["n_classes"]),
                 directed=bool(file.attrs["directed"]), node_names=file.get("node_names"),
                 source=file.attrs["source"], edge_weights=file.get("edge_weights"),
                 extra=read_json(file["extra"]) if "extra" in file else {})


def lazy_features(item: h5py.Dataset | h5py.Group):
    """Features as they are in the file: a dataset, or sparse rows of datasets."""
    if isinstance(item, h5py.Dataset):
        return item
    return SparseRows(item["indptr"], item["indices"], item.get("values"),
                      int(item.attrs["n_columns"]))


def read_feature_rows(features, start: int, stop: int):
    """Rows of lazy features as arrays, reading no others."""
    if not isinstance(features, SparseRows):
        return features[start:stop]
    indptr = features.indptr[start:stop + 1]
    first, last = int(indptr[0]), int(indptr[-1])
    values = None if features.values is None else features.values[first:last]
    return SparseRows(indptr - first, features.indices[first:last], values, features.n_columns)


def reordered(graph: Graph, order: np.ndarray) -> Graph:
    """A copy of a graph in memory whose node i is node order[i] of the graph."""
    features, weights = graph.features, graph.edge_weights
    if weights is not None:
        weights = np.concatenate(list(permuted_values(graph.indptr, graph.indices, order,
                                                      weights)))
    return replace(graph, indptr=take_indptr(graph.indptr, order), indices=np.concatenate(
        list(permuted_indices(graph.indptr, graph.indices, order))), edge_weights=weights,
                   features=(features.take(order) if isinstance(features, SparseRows)
                             else features[order]),
                   labels=graph.labels[order], split=graph.split[:, order],
                   node_names=None if graph.node_names is None else graph.node_names[order])


def _write_edge_weights(file: h5py.File, graph: Graph, order: np.ndarray | None):
    if graph.edge_weights is not None:
        write_pieces(file, "edge_weights", graph.edge_weights.shape, np.float32,
                     array_pieces(graph.edge_weights) if order is None else
                     renumbered(graph.indptr, graph.indices, order, graph.edge_weights))


def _write_features(file: h5py.File, features, order):
    if not isinstance(features, SparseRows):
        _write_rows(file, "features", features, _feature_dtype(features), order)
        return
    group = file.create_group("features")
    group.attrs["n_columns"] = features.n_columns
    indptr = features.indptr[...]
    order = np.arange(features.shape[0]) if order is None else order
    write_array(group, "indptr", take_indptr(indptr, order), np.int64)
    for name, array, dtype in (("indices", features.indices, np.int32),
                               ("values", features.values, np.float32)):
        if array is not None:
            write_pieces(group, name, array.shape, dtype,
                         (entries[0] for _, _, entries in ordered_entries(indptr, [array], order)))


def _write_rows(file: h5py.File, name: str, array, dtype, order):
    """Write an array or dataset with one row per node, in the given order of nodes."""
    if order is None:
        write_array(file, name, array, dtype)
    else:
        write_pieces(file, name, array.shape, dtype, ordered_rows(array, order))


def _feature_dtype(features: np.ndarray):
    """float16 stays; all other numbers become float32."""
    return np.float16 if features.dtype == np.float16 else np.float32


def _storable_names(names):
    """Node names as int64 or as fixed-length UTF-8 bytes."""
    if isinstance(names, h5py.Dataset):          # they are in a file of ours
        return names
    names = np.asarray(names)
    if names.dtype.kind in "iu":
        return names.astype(np.int64)
    if names.dtype.kind not in "SU":
        names = np.array([str(name) for name in names])
    if names.dtype.kind == "U":
        names = np.char.encode(names, "utf-8")
    # HDF5 has no strings of length 0, which NumPy makes of all-empty names.
    return names.astype(f"S{max(1, names.dtype.itemsize)}")
