"""Is a file sound?

Then reading, partitioning, training and predicting from it succeed. The whole file is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import h5py
import numpy as np

from hpcgcn.files.datasets import checksum_problems
from hpcgcn.graph import checks
from hpcgcn.graph.contents import lazy_graph
from hpcgcn.graph.data import SPLIT_NAMES
from hpcgcn.graph.halo_cover import stored_cover
from hpcgcn.graph.header import Opened, examine


def verify(path: str | os.PathLike) -> list[str]:
    """What is wrong with a file: structure, checksums, values; empty if it is sound.

    FileError if it cannot be opened.
    """
    with examine(path) as held:
        return problems(held)


def problems(held: Opened) -> list[str]:
    """All that is wrong with an open file."""
    if held.problems:
        return held.problems
    try:
        return [*checksum_problems(held.file), *_VALUES[held.schema](held.file, held.facts)]
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        return [f"cannot be read to its end: {error}"]


def _graph_values(file: h5py.File, facts: dict) -> Iterator[str]:
    graph = lazy_graph(file)
    wrong = list(checks.graph_problems(graph))
    yield from wrong
    if not wrong and facts["split_counts"] != (held := _split_counts(graph.split)):
        yield f"the header says split_counts = {facts['split_counts']}, the arrays hold {held}"


def _partition_values(file: h5py.File, facts: dict) -> Iterator[str]:
    wrong = [*_graph_values(file, facts),
             *checks.offset_problems(file["offsets"][...], facts["n_nodes"]),
             *checks.permutation_problems(file["original_ids"], facts["n_nodes"])]
    yield from wrong or _cover_problems(file)


def _cover_problems(file: h5py.File) -> Iterator[str]:
    """Of the covers that are kept, part by part."""
    offsets, indptr = file["offsets"][...], file["indptr"]
    for part, (start, stop) in enumerate(zip(offsets[:-1], offsets[1:])):
        try:
            stored_cover(file, offsets, part, file["indices"][indptr[start]:indptr[stop]])
        except ValueError as error:
            yield str(error)
            return


def _split_counts(split: h5py.Dataset) -> list[dict[str, int]]:
    """Nodes of train, val and test in every split."""
    return [{name: int(np.count_nonzero(row == code)) for code, name in SPLIT_NAMES.items()}
            for row in split]


def _prediction_values(file: h5py.File, facts: dict) -> Iterator[str]:
    yield from checks.name_problems(file.get("node_names"))


def _model_values(file: h5py.File, facts: dict) -> Iterator[str]:
    from hpcgcn.train.model_file import model_problems, settings_problems  # graphs need no models
    yield from model_problems(file, facts)
    yield from settings_problems(file, facts)


def _no_values(file: h5py.File, facts: dict) -> Iterator[str]:
    """Exchange state is compared with the exchanges of the run when it is restored."""
    yield from ()


_VALUES = {"graph": _graph_values, "partition": _partition_values,
           "predictions": _prediction_values, "model": _model_values, "exchange": _no_values}
