"""Predictions as files: HDF5, or CSV for people, both with the ids and class names that the graph
came with."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from hpcgcn.errors import FileError
from hpcgcn.files.atomic import atomic_file
from hpcgcn.files.datasets import content_checksum, write_array
from hpcgcn.files.h5 import atomic_h5
from hpcgcn.files.replace import NOTHING, REMEDY, Replaces
from hpcgcn.graph.contents import lazy_graph
from hpcgcn.graph.header import open_file, source_uuid, write_header
from hpcgcn.graph.replaceable import any_but_ours, own_h5
from hpcgcn.graph.store import read_original_ids


def names_and_extra(graph: str) -> tuple[np.ndarray | None, dict]:
    """(the user's own ids in the order of the graph file, or None; further facts) of a graph or
    partition file."""
    with open_file(graph) as file:
        held = lazy_graph(file)
        names = None if held.node_names is None else held.node_names[...]
        if names is not None and "original_ids" in file:
            ordered = np.empty_like(names)
            ordered[read_original_ids(file)] = names
            names = ordered
        return names, held.extra


def predictions_replace(path: str, graph: str, run: str, overwrite: bool) -> Replaces:
    """What predictions of a run (its uuid, "" if it has none) over a graph file may replace."""
    if path.endswith(".csv"):                # which does not tell whose it is
        return any_but_ours("a CSV file") if overwrite else replace(NOTHING, remedy=REMEDY)
    if not path.endswith((".h5", ".hdf5")):
        raise FileError(f"{path}: predictions are HDF5 or CSV; give a name that ends in .h5 or "
                        ".csv")
    if overwrite:
        return own_h5("predictions")
    if not run or not graph:
        return replace(NOTHING, remedy=REMEDY)
    return own_h5("predictions", REMEDY, source_uuid=source_uuid(graph), run_uuid=run)


def write_predictions(path: str, what: str, rows: np.ndarray, layer: int, command: str,
                      graph: str = "", run: str = "", replaces: Replaces | None = None,
                      inputs: Iterable = ()):
    """Write the rows of all nodes; the ending of the name says how.

    run: the uuid of the run whose model it was; replaces: what may be there already.
    """
    names, extra = names_and_extra(graph) if graph else (None, {})
    replaces = replaces or predictions_replace(path, graph, run, overwrite=False)
    if path.endswith(".csv"):
        with atomic_file(path, replaces, inputs) as temporary:
            _write_csv(temporary, what, rows, names, extra)
        return
    with atomic_h5(path, replaces, inputs) as file:
        write_header(file, "predictions", command=command, settings={"what": what, "layer": layer},
                     n_nodes=len(rows), source_uuid=source_uuid(graph) if graph else "",
                     run_uuid=run)
        write_array(file, what, rows)
        if names is not None:
            write_array(file, "node_names", names)
        file.attrs["checksum"] = content_checksum(file)


def _write_csv(path: str, what: str, rows: np.ndarray, names: np.ndarray | None, extra: dict):
    """A header, then one row per node: its id, and its class by name, or its numbers."""
    classes = extra.get("class_names") or []
    head = [what.removesuffix("es") if rows.ndim == 1
            else f"{what}:{classes[k] if _fits(classes, rows, what) else k}"
            for k in range(1 if rows.ndim == 1 else rows.shape[1])]
    ids = range(len(rows)) if names is None else (n.decode() if isinstance(n, bytes) else n
                                                  for n in names.tolist())
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([extra.get("id_column", "id"), *head])
        for identity, row in zip(ids, rows):
            shown = row.tolist() if rows.ndim == 2 else [classes[row] if row < len(classes)
                                                         else int(row)]
            writer.writerow([identity, *shown])


def _fits(classes, rows: np.ndarray, what: str) -> bool:
    return bool(classes) and what != "embeddings" and len(classes) == rows.shape[1]
