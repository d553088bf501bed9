"""KaMinPar, from a compressed copy of the adjacency: a tenth of METIS's memory.

Its Python package reads graphs from files alone, so the adjacency goes through a temporary one, to
a process of its own (kaminpar_process.py), in the binary format of ParHIP: three numbers (which
parts have 32 bits or are left out; nodes; entries), where each row begins (in bytes), the
neighbours, the weights of nodes.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable

import numpy as np

from hpcgcn.errors import BackendError, ConfigError
from hpcgcn.files.atomic import explained
from hpcgcn.files.tidy import temporary_folder
from hpcgcn.graph.partitioners import kaminpar_process
from hpcgcn.graph.partitioners.base import Forecast, Partitioner, Size, Task
from hpcgcn.graph.partitioners.even_out import even_out
from hpcgcn.graph.partitioners.metis import checked_adjacency

_NO_EDGE_WEIGHTS, _NO_NODE_WEIGHTS, _SHORT_IDS = 1, 2, 8
_HEADER_BYTES = 24


class KaMinPar(Partitioner):
    """Multilevel k-way partitioning of a compressed graph; one thread, for the same parts every
    time."""

    name = "kaminpar"

    def missing(self) -> str:
        """Why it cannot be used here."""
        if importlib.util.find_spec("kaminpar"):
            return ""
        return "the package kaminpar is not installed: `pip install kaminpar`"

    def forecast(self, size: Size) -> Forecast:
        """What it would take; a directed graph is made undirected first, in memory."""
        n_edges = size.n_edges * (2 if size.directed else 1)
        symmetrised = 40.0 * n_edges if size.directed else 0.0
        compressed = 20.0 * n_edges + 150.0 * size.n_nodes
        return Forecast(max(symmetrised, compressed) + 6e7, 6e-7 * n_edges)

    def parts(self, task: Task) -> np.ndarray:
        """The part of every node."""
        if self.missing():
            raise ConfigError(f"method = 'kaminpar': {self.missing()}, or choose another method")
        if task.directed:
            task = task.in_memory()
        indptr, indices = checked_adjacency(task.indptr, task.indices, symmetric=not task.directed)
        symmetric = Task(indptr, indices, False, task.n_parts)
        with temporary_folder(tempfile.gettempdir()) as folder:
            path = os.path.join(folder, "graph.parhip")
            with explained(path):
                _write(path, symmetric, task.weights)
            parts = _run(path, os.path.join(folder, "parts.npy"), task)
        if task.marked is not None:
            even_out(task.indptr, task.indices[...], parts, task.marked, task.n_parts)
        return parts


def _run(path: str, answer: str, task: Task) -> np.ndarray:
    """What KaMinPar makes of a file, in a process of its own."""
    command = [sys.executable, "-P", kaminpar_process.__file__, path, str(task.n_parts),
               str(int(task.seed) % 2 ** 31), answer]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if ended.returncode or not os.path.exists(answer):
        said = (ended.stderr.strip().splitlines() or ["no message"])[-1]
        raise BackendError(f"KaMinPar ended with code {ended.returncode} ({said}): choose "
                               "another method")
    return np.load(answer)


def _write(path: str, task: Task, weights: np.ndarray | None):
    """The adjacency as a file that KaMinPar reads, block by block."""
    short = task.n_nodes < 2 ** 31
    kind = _NO_EDGE_WEIGHTS | (_NO_NODE_WEIGHTS if weights is None else 0)
    kind |= _SHORT_IDS if short else 0
    dtype = np.dtype("<u4" if short else "<u8")
    begin = _HEADER_BYTES + 8 * len(task.indptr)
    with open(path, "wb") as file:
        _put(file, [np.array([kind, task.n_nodes, len(task.indices)], "<u8")])
        _put(file, (begin + task.indptr[at:at + (1 << 20)].astype("<u8") * dtype.itemsize
                    for at in range(0, len(task.indptr), 1 << 20)))
        _put(file, (entries.astype(dtype) for _, _, entries in task.blocks()))
        if weights is not None:
            _put(file, [weights.astype("<i8")])


def _put(file, arrays: Iterable[np.ndarray]):
    for array in arrays:
        file.write(np.ascontiguousarray(array).view(np.uint8).data)
