"""Predictions as files: HDF5, or CSV for people, both with the ids and class names that the graph came with."""

from __future__ import annotations

import csv

import numpy as np

from hpcgcn.errors import FileError
from hpcgcn.formats.output import atomic_file
from hpcgcn.graph.atomic import atomic_h5
from hpcgcn.graph.contents import lazy_graph
from hpcgcn.graph.header import open_file, write_header


def names_and_extra(graph: str) -> tuple[np.ndarray | None, dict]:
    """(the user's own ids in the order of the graph file, or None; further facts) of a graph or partition file."""
    with open_file(graph) as file:
        held = lazy_graph(file)
        names = None if held.node_names is None else held.node_names[...]
        if names is not None and "original_ids" in file:
            ordered = np.empty_like(names)
            ordered[file["original_ids"][...]] = names
            names = ordered
        return names, held.extra


def write_predictions(path: str, what: str, rows: np.ndarray, layer: int, command: str, graph: str = ""):
    """Write the rows of all nodes; the ending of the name says how."""
    names, extra = names_and_extra(graph) if graph else (None, {})
    if path.endswith(".csv"):
        _write_csv(path, what, rows, names, extra)
        return
    if not path.endswith((".h5", ".hdf5")):
        raise FileError(f"{path}: predictions are HDF5 or CSV; give a name that ends in .h5 or .csv")
    with atomic_h5(path) as file:
        write_header(file, "predictions", command=command, settings={"what": what, "layer": layer}, n_nodes=len(rows))
        file[what] = rows
        if names is not None:
            file["node_names"] = names


def _write_csv(path: str, what: str, rows: np.ndarray, names: np.ndarray | None, extra: dict):
    """A header, then one row a node: its id, and its class by name, or its numbers."""
    classes = extra.get("class_names")
    head = [what.removesuffix("es") if rows.ndim == 1 else f"{what}:{classes[k] if _fits(classes, rows, what) else k}"
            for k in range(1 if rows.ndim == 1 else rows.shape[1])]
    ids = range(len(rows)) if names is None else (n.decode() if isinstance(n, bytes) else n for n in names.tolist())
    with atomic_file(path) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([extra.get("id_column", "id"), *head])
        for identity, row in zip(ids, rows):
            shown = row.tolist() if rows.ndim == 2 else [classes[row] if classes and row < len(classes) else int(row)]
            writer.writerow([identity, *shown])


def _fits(classes, rows: np.ndarray, what: str) -> bool:
    return bool(classes) and what != "embeddings" and len(classes) == rows.shape[1]
