"""Who holds which parameters: all ranks all of them, or every stage of a pipeline its own."""

from __future__ import annotations

import numpy as np

from hpcgcn.mpi.runtime import Runtime
from hpcgcn.nn.parameters import Parameters


class Replicated:
    """Every rank holds all parameters."""

    def __init__(self, runtime: Runtime, parameters: Parameters):
        self.runtime, self.parameters = runtime, parameters
        self.size, self.specs = parameters.size, parameters.specs

    def sum(self, agreed: np.ndarray):
        """Add up the gradient over the ranks that share it, and `agreed` over all ranks."""
        backend, p = self.parameters.backend, self.parameters
        gradient = backend.to_host(p.grad)                           # the array itself where MPI can read it
        self._sum(agreed, gradient)
        backend.copy(gradient, p.grad)

    def _sum(self, agreed, gradient):
        self.runtime.sum_in_place(agreed, gradient)

    def everywhere(self, number: float) -> float:
        """A number that every holder has of its own parameters, added up over the model."""
        return number

    def whole(self, array) -> np.ndarray | None:
        """An array of the size of the parameters for the whole model, on rank 0 (elsewhere it may be None). Collective."""
        return np.array(self.parameters.backend.to_host(array))

    def own(self, array: np.ndarray) -> np.ndarray:
        """This rank's share of an array for the whole model."""
        return array


class Staged(Replicated):
    """Every stage holds its own parameters; the ways of a stage share them."""

    def __init__(self, grid, parameters: Parameters):
        self.grid, self.parameters = grid, parameters
        self.specs = parameters.all_specs
        self.size = sum(spec.size for spec in self.specs)
        self.sizes = grid.stages.comm.allgather(parameters.size)

    def _sum(self, agreed, gradient):
        self.grid.world.sum_in_place(agreed)
        self.grid.ways.sum_in_place(gradient)

    def everywhere(self, number: float) -> float:
        return self.grid.stages.comm.allreduce(number)

    def whole(self, array) -> np.ndarray | None:
        host = np.ascontiguousarray(self.parameters.backend.to_host(array))
        found = np.empty(self.size, host.dtype) if self.grid.first else None
        self.grid.stages.comm.Gatherv(host, (found, self.sizes) if self.grid.first else None)
        return found

    def own(self, array: np.ndarray) -> np.ndarray:
        return array[self.parameters.offset:self.parameters.offset + self.parameters.size]
