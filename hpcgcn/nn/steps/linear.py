"""Products with weights: dense rows, sparse features, and a bias where no epilogue adds it."""

from __future__ import annotations

import numpy as np

from hpcgcn.nn.fields import Array, Field
from hpcgcn.nn.parameters import Parameter
from hpcgcn.nn.steps.base import PassContext, Step


class Linear(Step):
    """target = source @ weight, added to what is there already if `adds`."""

    has_weight_gradients = True

    def __init__(self, backend, source: Field, target: Field, weight: Parameter,
                 adds: bool = False):
        super().__init__(backend, [source], target, adds=adds, saves=[source.planned_value],
                         parameters=[weight])
        self.source, self.weight = source, weight

    def forward(self, rows, context):
        block = slice(*rows)
        self.backend.gemm(self.source.value[block], self.weight.value, self.target.value[block],
                          accumulate=self.adds)

    def backward(self, rows, context):
        if self.source.wants_gradient:
            block = slice(*rows)
            self.backend.gemm(self.target.grad[block], self.weight.value, self.source.grad[block],
                              transpose_b=True, accumulate=self.source.adds(self))

    def weight_gradients(self, rows, context):
        block = slice(*rows)
        self.backend.gemm(self.source.value[block], self.target.grad[block], self.weight.grad,
                          transpose_a=True, accumulate=True)


class ConstantProduct(Step):
    """target = source @ matrix, for a constant that is not learned."""

    def __init__(self, backend, source: Field, target: Field, matrix: Array):
        super().__init__(backend, [source], target, scratch=[matrix])
        self.source, self.matrix = source, matrix

    def forward(self, rows, context):
        block = slice(*rows)
        self.backend.gemm(self.source.value[block], self.matrix.data, self.target.value[block])

    def backward(self, rows, context):
        block = slice(*rows)
        self.backend.gemm(self.target.grad[block], self.matrix.data, self.source.grad[block],
                          transpose_b=True, accumulate=self.source.adds(self))


class Bias(Step):
    """target += bias, in place, where no epilogue does it.

    A GEMM with a column of ones keeps the table of operations small.
    """

    def __init__(self, backend, target: Field, bias: Parameter, ones: Array):
        """ones: (n_rows, 1), the same for all biases of a model."""
        super().__init__(backend, [], target, adds=True, scratch=[ones], parameters=[bias])
        self.bias, self.ones = bias, ones

    def forward(self, rows, context):
        block = slice(*rows)
        self.backend.gemm(self.ones.data[block], self.bias.value.reshape(1, -1),
                          self.target.value[block], accumulate=True)

    def backward(self, rows, context):
        self.backend.column_sum_add(self.target.grad[slice(*rows)], self.bias.grad)


class SparseInput:
    """Sparse features and, in training, their dropped-out copy: other weights of the entries.

    Its matrices are made when they are first needed: not every rank that plans a model reads
    features.
    """

    def __init__(self, backend, features, ids, layer: int, threshold: int):
        self.backend, self.features, self.ids = backend, features, ids
        self.layer, self.threshold = layer, threshold
        self._plain = self._dropped = None

    def _make(self):
        features, backend = self.features, self.backend
        values = features.values
        values = np.ones(len(features.indices), backend.dtype) if values is None else values
        values = np.ascontiguousarray(values, backend.dtype)
        structure = features.indptr, features.indices, features.n_columns
        self._plain = backend.csr(*structure, values)
        self._dropped = backend.csr(*structure, values.copy()) if self.threshold else None

    def now(self, rows, context: PassContext, draw: bool):
        """The matrix of this pass; `draw` renews the dropout of these rows first."""
        if self._plain is None:
            self._make()
        key, threshold = context.dropout(self.threshold, self.layer)
        if not threshold:
            return self._plain
        if draw:
            self.backend.sparse_dropout(self._plain, self._dropped, key, threshold, self.ids, rows)
        return self._dropped


class SparseLinear(Step):
    """target (+)= features @ weight for sparse features; `draws` renews their dropout."""

    has_weight_gradients = True
    reads_features = True

    def __init__(self, backend, source: SparseInput, target: Field, weight: Parameter,
                 adds: bool = False, draws: bool = True):
        super().__init__(backend, [], target, adds=adds, parameters=[weight])
        self.source, self.weight, self.draws = source, weight, draws

    def forward(self, rows, context):
        matrix = self.source.now(rows, context, self.draws)
        self.backend.spmm(matrix, self.weight.value, self.target.value, rows=rows,
                          accumulate=self.adds)

    def backward(self, rows, context):
        """Features have no gradient."""

    def weight_gradients(self, rows, context):
        matrix = self.source.now(rows, context, False)
        self.backend.spmm_transposed_add(matrix, self.target.grad, self.weight.grad, rows=rows)
