"""The two steps of GCNII: initial residual and identity mapping."""

from __future__ import annotations

from hpcgcn.nn.fields import Array, Field
from hpcgcn.nn.parameters import Parameter
from hpcgcn.nn.steps.base import Step, pass_on


class InitialResidual(Step):
    """target = (1 - alpha) * aggregated + alpha * initial; it works in place of aggregated."""

    def __init__(self, backend, aggregated: Field, initial: Field, target: Field, alpha: float):
        super().__init__(backend, [aggregated, initial], target)
        self.aggregated, self.initial, self.alpha = aggregated, initial, alpha

    def forward(self, rows, context):
        block = slice(*rows)
        self.backend.axpby(1.0 - self.alpha, self.aggregated.value[block],
                           self.alpha, self.initial.value[block], self.target.value[block])

    def backward(self, rows, context):
        block = slice(*rows)
        dtarget = self.target.grad[block]
        pass_on(self.backend, dtarget, self.initial, self, block, self.alpha)
        pass_on(self.backend, dtarget, self.aggregated, self, block, 1.0 - self.alpha)


class IdentityMapping(Step):
    """target = (1 - beta) * source + beta * source @ weight, as one product.

    Its matrix is (1 - beta) I + beta weight.
    """

    has_weight_gradients = True

    def __init__(self, backend, source: Field, target: Field, weight: Parameter, beta: float,
                 identity: Array):
        """identity: (width, width), a constant that all layers share."""
        self.folded = Array("folded weight", identity.shape, per_row=False)
        super().__init__(backend, [source], target, saves=[source.planned_value, self.folded],
                         scratch=[identity], parameters=[weight])
        self.source, self.weight, self.beta, self.identity = source, weight, beta, identity

    def forward(self, rows, context):
        # For every block anew: next to the product it costs nothing, and no one must say when
        # weights change.
        self.backend.axpby(self.beta, self.weight.value, 1.0 - self.beta, self.identity.data,
                           self.folded.data)
        self.map_rows(rows, self.target.value[slice(*rows)])

    def map_rows(self, rows, out):
        """out = what forward computes from these rows, with the weights of the last forward."""
        self.backend.gemm(self.source.value[slice(*rows)], self.folded.data, out)

    def backward(self, rows, context):
        block = slice(*rows)
        self.backend.gemm(self.target.grad[block], self.folded.data, self.source.grad[block],
                          transpose_b=True, accumulate=self.source.adds(self))

    def weight_gradients(self, rows, context):
        block = slice(*rows)
        self.backend.gemm(self.source.value[block], self.target.grad[block], self.weight.grad,
                          transpose_a=True, accumulate=True, alpha=self.beta)
