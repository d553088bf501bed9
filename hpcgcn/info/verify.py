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
    yield from _graph_values(file, facts)
    yield from checks.offset_problems(file["offsets"][...], facts["n_nodes"])
    yield from checks.permutation_problems(file["original_ids"], facts["n_nodes"])


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
