"""Graph files, and the one place from which all file functions are imported. data/FORMAT.md
describes the files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

import h5py
import numpy as np

from hpcgcn.errors import GraphError
from hpcgcn.files.datasets import content_checksum
from hpcgcn.files.h5 import atomic_h5
from hpcgcn.files.replace import Replaces
from hpcgcn.graph.checks import permutation_problems, validate_graph
from hpcgcn.graph.contents import (
    lazy_graph,
    read_feature_rows,
    reordered,
    shape_facts,
    write_contents,
)
from hpcgcn.graph.csr import invert
from hpcgcn.graph.data import Graph
from hpcgcn.graph.header import header, kind, open_file, write_header
from hpcgcn.graph.partition_file import (
    read_part,
    read_parts,
    read_share,
    read_slice,
    write_partition,
)
from hpcgcn.graph.replaceable import own_h5

__all__ = ["header", "kind", "read_graph", "read_part", "read_parts", "read_share", "read_slice",
           "read_structure", "validate_graph", "write_graph", "write_partition"]

OWN_GRAPH = own_h5("graph")


def write_graph(path: str | os.PathLike, graph: Graph, command: str = "",
                settings: dict | None = None, replaces: Replaces = OWN_GRAPH,
                inputs: Iterable = ()) -> str:
    """Write a graph file; returns its uuid, which `graph` is given too.

    replaces: what may be there already; inputs: files that are never replaced.
    """
    with atomic_h5(path, replaces, inputs) as file:
        uuid = write_header(file, "graph", command=command, settings=settings, source=graph.source,
                            source_uuid="", n_parts=1, **shape_facts(graph))
        write_contents(file, graph)
        file.attrs["checksum"] = content_checksum(file)
    graph.uuid = uuid
    return uuid


def read_graph(path: str | os.PathLike) -> Graph:
    """The graph of a graph file, checked; that of a partition file too, in its original order."""
    with open_file(path) as file:
        graph = _load(lazy_graph(file))
        check_graph(path, graph)
        if "original_ids" not in file:
            return replace(graph, uuid=file.attrs["uuid"])
        return replace(reordered(graph, invert(read_original_ids(file))),
                       uuid=file.attrs["source_uuid"])


def read_original_ids(file: h5py.File) -> np.ndarray:
    """The ids of a partition file's nodes in its graph file, a permutation; ValueError if they are
    not."""
    ids = file["original_ids"][...]
    for problem in permutation_problems(ids, len(ids)):
        raise ValueError(problem)
    return ids


def read_structure(path: str | os.PathLike) -> Graph:
    """A graph file without its features (they have no rows); for ranks whose root has checked the
    file."""
    with open_file(path, "graph") as file:
        held = lazy_graph(file)
        return replace(held, indptr=held.indptr[...], indices=held.indices[...],
                       edge_weights=_loaded(held.edge_weights),
                       features=read_feature_rows(held.features, 0, 0),
                       labels=held.labels[...], split=held.split[...], node_names=None)


def check_graph(path: str | os.PathLike, graph: Graph):
    """Refuse the graph of a file if it cannot be used; its arrays may be datasets."""
    try:
        validate_graph(graph, need_train=False)
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from None


def _load(graph: Graph) -> Graph:
    """The same graph with arrays in place of datasets."""
    return replace(graph, indptr=graph.indptr[...], indices=graph.indices[...],
                   edge_weights=_loaded(graph.edge_weights),
                   features=read_feature_rows(graph.features, 0, graph.features.shape[0]),
                   labels=graph.labels[...], split=graph.split[...],
                   node_names=_loaded(graph.node_names))


def _loaded(dataset):
    """What may not be there, as an array."""
    return None if dataset is None else dataset[...]
