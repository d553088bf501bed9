"""The two steps of GCNII: initial residual and identity mapping."""

from __future__ import annotations

import numpy as np

from hpcgcn.nn.fields import Field
from hpcgcn.nn.parameters import Parameter
from hpcgcn.nn.steps.base import Step, pass_on


class InitialResidual(Step):
    """target = (1 - alpha) * aggregated + alpha * initial (GCNII); target and aggregated share their arrays."""

    def __init__(self, backend, aggregated: Field, initial: Field, target: Field, alpha: float):
        super().__init__(backend)
        self.aggregated, self.initial, self.target, self.alpha = aggregated, initial, target, alpha
        aggregated.read_by(self)
        initial.read_by(self)

    def inputs(self):
        return [self.aggregated, self.initial]

    def forward(self, rows, context):
        block = slice(*rows)
        self.backend.axpby(1.0 - self.alpha, self.aggregated.value[block], self.alpha, self.initial.value[block],
                           self.target.value[block])

    def backward(self, rows, context):
        block = slice(*rows)
        pass_on(self.backend, self.target.grad[block], self.initial, self, block, self.alpha)
        pass_on(self.backend, self.target.grad[block], self.aggregated, self, block, 1.0 - self.alpha)


class IdentityMapping(Step):
    """target = (1 - beta) * source + beta * source @ weight (GCNII), as one product with (1 - beta) I + beta weight."""

    def __init__(self, backend, source: Field, target: Field, weight: Parameter, beta: float):
        super().__init__(backend)
        self.source, self.target, self.weight, self.beta = source, target, weight, beta
        self.identity = backend.from_host(np.eye(source.width, dtype=backend.dtype))
        self.folded = backend.zeros((source.width, source.width))
        source.read_by(self)

    def kept(self):
        return [self.source]

    def forward(self, rows, context):
        # For every block anew: next to the product it costs nothing, and no one must say when the weights change.
        self.backend.axpby(self.beta, self.weight.value, 1.0 - self.beta, self.identity, self.folded)
        self.map_rows(rows, self.target.value[slice(*rows)])

    def map_rows(self, rows, out):
        """out = what forward makes of these rows, with the weights of the last forward."""
        self.backend.gemm(self.source.value[slice(*rows)], self.folded, out)

    def backward(self, rows, context):
        block = slice(*rows)
        self.backend.gemm(self.target.grad[block], self.folded, self.source.grad[block], transpose_b=True,
                          accumulate=self.source.adds(self))

    def weight_gradients(self, rows, context):
        block = slice(*rows)
        self.backend.gemm(self.source.value[block], self.target.grad[block], self.weight.grad, transpose_a=True, accumulate=True,
                          alpha=self.beta)
