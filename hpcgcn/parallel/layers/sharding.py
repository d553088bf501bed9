"""Who holds which parameters of a pipeline: every stage its own."""

from __future__ import annotations

import numpy as np

from hpcgcn.nn.parameters import Parameters
from hpcgcn.parallel.sharding import Replicated


class Staged(Replicated):
    """Every stage holds its own parameters; the ranks of a stage share them."""

    def __init__(self, grid, parameters: Parameters):
        self.grid, self.parameters = grid, parameters
        self.gradient = parameters.backend.host_copy(parameters.grad)
        self.specs = parameters.all_specs
        self.size = sum(spec.size for spec in self.specs)
        self.sizes = grid.stages.comm.allgather(parameters.size)

    def _sum(self, agreed, gradient):
        self.grid.world.sum_in_place(agreed)
        self.grid.partitions.sum_in_place(gradient)

    def everywhere(self, number: float) -> float:
        return self.grid.stages.comm.allreduce(number)

    def whole(self, array) -> np.ndarray | None:
        host = np.ascontiguousarray(self.parameters.backend.to_host(array))
        whole = np.empty(self.size, host.dtype) if self.grid.first else None
        self.grid.stages.comm.Gatherv(host, (whole, self.sizes) if self.grid.first else None)
        return whole

    def own(self, array: np.ndarray) -> np.ndarray:
        return array[self.parameters.offset:self.parameters.offset + self.parameters.size]
