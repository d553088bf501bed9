"""What all hops of a partitioned graph have in common: rows come in, and when all are there, halo
rows are sent."""

from __future__ import annotations

from hpcgcn.mpi.runtime import Runtime
from hpcgcn.parallel.aggregation import Aggregation, Storage
from hpcgcn.parallel.partition.host_exchange import HaloExchange
from hpcgcn.parallel.partition.matrices import HaloMatrices, PartitionedMatrices
from hpcgcn.trace.recorder import HopMarks


class HaloAggregation(Aggregation):
    """A hop in one direction: sends when all its input is there."""

    def __init__(self, matrices: PartitionedMatrices, halo: HaloMatrices, exchange: HaloExchange,
                 rows: tuple[int, int], width: int, blocking: bool, progress: Runtime,
                 hop: int, direction: str):
        """rows: how many of the input and of the output, which are the first ones."""
        self.matrices, self.halo, self.exchange = matrices, halo, exchange
        self.blocking, self.progress = blocking, progress
        self.n_source, n_target = rows
        self.interior, self.boundary = (matrices.blocks(n_target, boundary, width)
                                        for boundary in (False, True))
        self._n_pushed = 0
        self.marks = HopMarks.of(progress.trace, hop, direction)

    storage: Storage                 # the input, as SpMM gathers it

    def push(self, rows, context):
        self.storage.keep(rows)
        self._n_pushed += rows[1] - rows[0]
        if self._n_pushed == self.n_source:      # boundary rows come last
            self._send(context)
        self.progress.progress()

    def _begin(self, context):
        """Before the first row of the output."""
        if not self.n_source:                # nobody pushed, but there may be something to receive
            self._send(context)
        self._n_pushed = 0
        if self.blocking:
            self.exchange.finish()

    def _send(self, context):
        raise NotImplementedError
