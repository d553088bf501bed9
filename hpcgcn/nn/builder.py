"""The parts from which a model's class (nn/models) puts its steps and hops together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hpcgcn import philox
from hpcgcn.nn.attention import Attention
from hpcgcn.nn.fields import Array, Field
from hpcgcn.nn.model import Hop, Model
from hpcgcn.nn.parameters import Parameters
from hpcgcn.nn.steps import (
    BatchNorm,
    BatchNormEpilogue,
    Bias,
    ColumnStatistics,
    ColumnSums,
    ConstantProduct,
    Dropout,
    Epilogue,
    LayerNorm,
    Linear,
    SparseInput,
    SparseLinear,
    Step,
)


@dataclass
class Inputs:
    """What the rows bring: features, dense or sparse, and global ids.

    Where dense features are not there yet, an Array of fields.py stands for them.
    """

    ids: Any                      # (n_rows,) int64
    dense: Any = None             # (n_rows, n_features)
    aggregated: Any = None        # A @ dense, computed once, or None
    sparse: Any = None            # SparseRows


class Builder:
    """Collects a model's steps and hops in the order of the forward pass.

    Parameters are given by name. Arrays are planned, not allocated: nothing here needs memory.
    """

    def __init__(self, backend, shape, parameters: Parameters, n_rows: int, inputs: Inputs):
        self.backend, self.shape, self.parameters = backend, shape, parameters
        self.n_rows, self.inputs = n_rows, inputs
        self.threshold = philox.dropout_threshold(shape.dropout)
        self.blocks: list[list[Step]] = [[]]
        self.hops: list[Hop] = []
        self.embeddings: list[Field] = []
        self._constants: dict[str, Array] = {}

    # -- arrays ------------------------------------------------------------------------------------
    def field(self, name: str, width: int, *, gradient: bool = True,
              grad_of: Field | None = None) -> Field:
        """A field of its own; with `grad_of` its gradient is in the array of another field's."""
        value = Array(name, (self.n_rows, width))
        if grad_of is not None:
            return Field(name, value, grad_of.planned_grad)
        grad = Array(f"d{name}", value.shape, gradient=True) if gradient else None
        return Field(name, value, grad)

    def in_place(self, name: str, of: Field) -> Field:
        """A field in the arrays of another one, for the target of a step that works in place."""
        return Field(name, of.planned_value, of.planned_grad)

    def _constant(self, name: str, shape: tuple[int, int], fill) -> Array:
        """An array that all steps of the model share."""
        if name not in self._constants:
            self._constants[name] = Array(name, shape, fill=fill)
        return self._constants[name]

    def identity(self, width: int) -> Array:
        """The identity matrix."""
        return self._constant(f"identity {width}", (width, width), lambda: np.eye(width))

    # -- steps and hops ----------------------------------------------------------------------------
    def add(self, step):
        """Append a step to the current block."""
        self.blocks[-1].append(step)

    def hop(self, source: Field, target: Field, transformed: bool = False,
            attention: Attention | None = None):
        """End the block with an aggregation from source to target; transformed: the source is a
        product with a weight; attention: what computes its coefficients."""
        hop = Hop(len(self.hops) + 1, source, target, transformed, attention)
        source.read_by(hop)
        self.hops.append(hop)
        self.blocks.append([])

    def input_field(self, value, stream: int = 0) -> Field:
        """Dense input rows with dropout, as a field without gradient."""
        source = Field.of("input", value)
        if not self.threshold:
            return source
        dropped = self.field("dropped input", source.width, gradient=False)
        self.dropout(source, dropped, 1, stream)
        return dropped

    def input_source(self):
        """The input with dropout: a field, or sparse features (see `is_sparse`)."""
        if self.inputs.sparse is not None:
            return SparseInput(self.backend, self.inputs.sparse, self.inputs.ids, 1, self.threshold)
        return self.input_field(self.inputs.dense)

    @staticmethod
    def is_sparse(source) -> bool:
        """Is this the sparse input? It can be multiplied by a weight, and not be aggregated."""
        return isinstance(source, SparseInput)

    def dropout(self, source: Field, target: Field, layer: int, stream: int = 0):
        """target = dropout(source), drawn for this layer and random stream."""
        self.add(Dropout(self.backend, source, target, self.inputs.ids, layer, self.threshold,
                         stream))

    def linear(self, source, target: Field, weight: str, adds=False, draws=True):
        """target (+)= source @ weight; of the sparse input, `draws` renews the dropout."""
        parameter = self.parameters[weight]
        if self.is_sparse(source):
            self.add(SparseLinear(self.backend, source, target, parameter, adds, draws))
        else:
            self.add(Linear(self.backend, source, target, parameter, adds))

    def epilogue(self, source: Field, target: Field, layer: int, *, bias: str | None = None,
                 norm: int | None = None, keep_source=False, dropout=True, recompute_from=None):
        """Bias, norm, ReLU and dropout (drawn for `layer`) in one step.

        A norm keeps its normalised rows in the source's array, unless that is read later
        (`keep_source`).
        """
        layer_norm, parameters = None, self.parameters
        if norm and self.shape.batch_norm:
            self._batch_norm(source, target, layer, bias, norm, keep_source,
                             self.threshold if dropout else 0)
            return
        if norm:
            saved = Array("xhat", (self.n_rows, source.width))
            layer_norm = LayerNorm(parameters[f"norm{norm}.gamma"], parameters[f"norm{norm}.beta"],
                                   saved if keep_source else source.planned_value,
                                   Array("rstd", (self.n_rows,)))
        self.add(Epilogue(self.backend, source, target, self.inputs.ids, layer,
                          self.threshold if dropout else 0, norm=layer_norm,
                          bias=parameters[bias] if bias else None, recompute_from=recompute_from))

    def _batch_norm(self, source: Field, target: Field, layer: int, bias: str | None, norm: int,
                    keep_source: bool, threshold: int):
        """The same with a norm over the columns: what comes behind waits for all rows."""
        gamma, beta, mean, deviation = (self.parameters[f"norm{norm}.{part}"]
                                        for part in ("gamma", "beta", "mean", "deviation"))
        statistics = ColumnStatistics(self.backend, BatchNorm(
            gamma, beta, mean, deviation, self.parameters[bias] if bias else None))
        summed = (self.field("summed", source.width) if keep_source
                  else self.in_place("summed", source))
        self.add(ColumnSums(self.backend, source, summed, statistics))
        self.add(BatchNormEpilogue(self.backend, summed, target, self.inputs.ids, layer, threshold,
                                   statistics))

    def attention(self, source: Field, target: Field, layer: int, heads: int):
        """A hop whose coefficients are those of attention, with the vectors of graph layer
        `layer`."""
        source_vector, target_vector = (self.parameters[f"conv{layer}.{name}"]
                                        for name in ("att_src", "att_dst"))
        threshold = philox.dropout_threshold(self.shape.attention_dropout)
        # All hops carry a weight here: methods that keep such hops fresh would keep all of them.
        self.hop(source, target,
                 attention=Attention(heads, source_vector, target_vector, layer, threshold,
                                     source.planned_value.shape))

    def mean_of_heads(self, source: Field, target: Field, heads: int):
        """target = the mean of the heads that lie side by side in the source."""
        width = target.width
        fold = self._constant(f"mean of {heads} heads of {width}", (heads * width, width),
                              lambda: np.tile(np.eye(width), (heads, 1)) / heads)
        self.add(ConstantProduct(self.backend, source, target, fold))

    def bias(self, target: Field, name: str):
        """target += bias."""
        shape = (self.n_rows, 1)
        ones = self._constant("ones", shape, lambda: np.ones(shape))
        self.add(Bias(self.backend, target, self.parameters[name], ones))

    def output(self, source: Field) -> Field:
        """The linear output layer: logits = source @ output.weight + output.bias."""
        logits = self.field("logits", self.shape.n_classes)
        self.linear(source, logits, "output.weight")
        self.bias(logits, "output.bias")
        return logits

    def finish(self, logits: Field) -> Model:
        """The model of what was added."""
        return Model(self.shape, self.parameters, self.blocks, self.hops, logits, self.embeddings)
