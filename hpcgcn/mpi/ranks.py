"""The ranks of a job as a partitioner sees them: arrays from each to each, and sums."""

from __future__ import annotations

import numpy as np

from hpcgcn.mpi import large
from hpcgcn.mpi.world import collective_errors, local_rank


class Ranks:
    """All ranks of a communicator; arrays are one-dimensional and of one type per call."""

    def __init__(self, comm):
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        self.per_host = max(comm.allgather(local_rank(comm)[1]))

    def agreed(self):
        """A block whose errors are raised on all ranks. Collective."""
        return collective_errors(self.comm)

    def exchange(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """What each rank has sent to this one, given what this one sends to each. Collective."""
        lengths = np.array([len(array) for array in arrays], np.int64)
        coming = np.empty(self.size, np.int64)
        self.comm.Alltoall(lengths, coming)
        received = [np.empty(n, arrays[0].dtype) for n in coming]
        others = [peer for peer in range(self.size) if peer != self.rank]
        large.exchange(self.comm, [(received[peer], peer) for peer in others],
                       [(np.ascontiguousarray(arrays[peer]), peer) for peer in others])
        received[self.rank][:] = arrays[self.rank]
        return received

    def sum(self, array: np.ndarray) -> np.ndarray:
        """The sum of an array over all ranks. Collective."""
        total = np.empty_like(array)
        self.comm.Allreduce(np.ascontiguousarray(array), total)
        return total
