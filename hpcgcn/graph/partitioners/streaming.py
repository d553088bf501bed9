"""Streaming: one process, a few numbers per node and one block of the adjacency in memory."""

from __future__ import annotations

import numpy as np

from hpcgcn.backend.native.library import available
from hpcgcn.graph.partitioners.base import Forecast, Partitioner, Size, Task
from hpcgcn.graph.partitioners.multilevel import check_task, divide_view
from hpcgcn.graph.partitioners.views import WholeGraph

NODE_BYTES = 48


class Streaming(Partitioner):
    """Clusters by labels, METIS on the graph of clusters, then passes of Fennel over all rows."""

    name = "streaming"

    def missing(self) -> str:
        """Why it cannot be used here."""
        return "" if available()[0] else available()[1]

    def forecast(self, size: Size) -> Forecast:
        """What it would take: the graph of clusters is kept within the memory that is left."""
        return Forecast(NODE_BYTES * size.n_nodes + 2.0e8, 1.2e-6 * size.n_edges)

    def parts(self, task: Task) -> np.ndarray:
        """The part of every node."""
        check_task(task)
        return divide_view(WholeGraph(task), task)
