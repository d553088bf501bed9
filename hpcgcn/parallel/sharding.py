"""Who holds which parameters: here all ranks all of them."""

from __future__ import annotations

import numpy as np

from hpcgcn.mpi.runtime import Runtime
from hpcgcn.nn.parameters import Parameters


class Replicated:
    """Every rank holds all parameters."""

    def __init__(self, runtime: Runtime, parameters: Parameters):
        self.runtime, self.parameters = runtime, parameters
        self.size, self.specs = parameters.size, parameters.specs
        self.gradient = parameters.backend.host_copy(parameters.grad)

    def sum(self, agreed: np.ndarray):
        """Add up the gradient over the ranks that share it, and `agreed` over all ranks."""
        self._sum(agreed, self.gradient.read())
        self.gradient.write()

    def _sum(self, agreed, gradient):
        self.runtime.sum_in_place(agreed, gradient)

    def everywhere(self, number: float) -> float:
        """A number that every holder has of its own parameters, added up over the model."""
        return number

    def whole(self, array) -> np.ndarray | None:
        """An array of the size of the parameters for the whole model, on rank 0 (elsewhere it may
        be None). Collective."""
        return np.array(self.parameters.backend.to_host(array))

    def own(self, array: np.ndarray) -> np.ndarray:
        """This rank's share of an array for the whole model."""
        return array
