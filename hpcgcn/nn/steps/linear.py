"""Products with weights: dense rows, sparse features, and a bias where no epilogue adds it."""

from __future__ import annotations

import numpy as np

from hpcgcn.nn.fields import Field
from hpcgcn.nn.parameters import Parameter
from hpcgcn.nn.steps.base import PassContext, Step


class Linear(Step):
    """target = source @ weight, added to what is there already if `adds`."""

    def __init__(self, backend, source: Field, target: Field, weight: Parameter, adds: bool = False):
        super().__init__(backend)
        self.source, self.target, self.weight, self.adds = source, target, weight, adds
        source.read_by(self)

    def inputs(self):
        return [self.source, *([self.target] if self.adds else [])]

    def kept(self):
        return [self.source]

    def forward(self, rows, context):
        block = slice(*rows)
        self.backend.gemm(self.source.value[block], self.weight.value, self.target.value[block], accumulate=self.adds)

    def backward(self, rows, context):
        if self.source.grad is not None:
            block = slice(*rows)
            self.backend.gemm(self.target.grad[block], self.weight.value, self.source.grad[block], transpose_b=True,
                              accumulate=self.source.adds(self))

    def weight_gradients(self, rows, context):
        block = slice(*rows)
        self.backend.gemm(self.source.value[block], self.target.grad[block], self.weight.grad, transpose_a=True, accumulate=True)


class Bias(Step):
    """target += bias, in place, where no epilogue does it. A GEMM with a column of ones keeps the table small."""

    def __init__(self, backend, target: Field, bias: Parameter, ones):
        """ones: (n_rows, 1), the same for all biases of a model."""
        super().__init__(backend)
        self.target, self.bias, self.ones = target, bias, ones

    def inputs(self):
        return [self.target]

    def forward(self, rows, context):
        block = slice(*rows)
        self.backend.gemm(self.ones[block], self.bias.value.reshape(1, -1), self.target.value[block], accumulate=True)

    def backward(self, rows, context):
        self.backend.column_sum_add(self.target.grad[slice(*rows)], self.bias.grad)


class SparseInput:
    """Sparse features and, in training, their dropped-out copy: the same entries with other weights."""

    def __init__(self, backend, features, ids, layer: int, threshold: int):
        self.backend, self.ids, self.layer, self.threshold = backend, ids, layer, threshold
        values = features.values if features.values is not None else np.ones(len(features.indices), backend.dtype)
        values = np.ascontiguousarray(values, backend.dtype)
        self.plain = backend.csr(features.indptr, features.indices, features.n_columns, values)
        self.dropped = backend.csr(features.indptr, features.indices, features.n_columns, values.copy()) if threshold else None

    def now(self, rows, context: PassContext, draw: bool):
        """The matrix of this pass; `draw` renews the dropout of these rows first."""
        key, threshold = context.dropout(self.threshold, self.layer)
        if not threshold:
            return self.plain
        if draw:
            self.backend.sparse_dropout(self.plain, self.dropped, key, threshold, self.ids, rows)
        return self.dropped


class SparseLinear(Step):
    """target = features @ weight for sparse input features; added if `adds`; `draws` renews their dropout."""

    reads_features = True

    def __init__(self, backend, source: SparseInput, target: Field, weight: Parameter, adds: bool = False,
                 draws: bool = True):
        super().__init__(backend)
        self.source, self.target, self.weight, self.adds, self.draws = source, target, weight, adds, draws

    def inputs(self):
        return [self.target] if self.adds else []

    def forward(self, rows, context):
        self.backend.spmm(self.source.now(rows, context, self.draws), self.weight.value, self.target.value, rows=rows,
                          accumulate=self.adds)

    def backward(self, rows, context):
        """Features have no gradient."""

    def weight_gradients(self, rows, context):
        self.backend.spmm_transposed_add(self.source.now(rows, context, False), self.target.grad, self.weight.grad, rows=rows)
