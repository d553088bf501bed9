"""Label propagation on the ranks of a job: each holds its block of the adjacency and the labels of
its nodes and of their neighbours, and sends labels that changed to those who need them."""

from __future__ import annotations

import numpy as np

from hpcgcn.backend.native.library import available
from hpcgcn.graph.partitioners.base import Forecast, Partitioner, Size, Task
from hpcgcn.graph.partitioners.multilevel import check_task, divide_view
from hpcgcn.graph.partitioners.views import RankRows


class Labels(Partitioner):
    """The steps of `streaming`, on all ranks at once."""

    name = "labels"
    on_ranks = True

    def missing(self) -> str:
        """Why it cannot be used here."""
        return "" if available()[0] else available()[1]

    def forecast(self, size: Size) -> Forecast:
        """What it would take; every node may be a neighbour of a rank's nodes."""
        owned = size.n_nodes / size.n_ranks
        seen = min(size.n_nodes, owned + size.n_edges / size.n_ranks)
        n_bytes = (14.0 * size.n_nodes + 24 * seen + 40 * owned
                   + 4.0 * size.n_edges / size.n_ranks + 2.0e8)
        return Forecast(n_bytes * size.ranks_per_host, 1.2e-6 * size.n_edges / size.n_ranks)

    def parts(self, task: Task) -> np.ndarray:
        """The part of every node, on rank 0. Collective over the task's ranks."""
        check_task(task)
        return divide_view(RankRows(task), task)
