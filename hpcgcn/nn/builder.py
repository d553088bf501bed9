"""The parts from which a model's class (nn/models) puts its steps and hops together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcgcn import philox
from hpcgcn.nn.fields import Field, Workspace
from hpcgcn.nn.model import Hop, Model
from hpcgcn.nn.parameters import Parameters
from hpcgcn.nn.steps import Bias, Dropout, Epilogue, Linear, SparseInput, SparseLinear


@dataclass
class Inputs:
    """What the rows bring: dense features (and their aggregate, if precomputed) or sparse ones, and global ids."""

    ids: object                      # (n_rows,) int64
    dense: object = None             # (n_rows, n_features)
    aggregated: object = None        # A @ dense, computed once, or None
    sparse: object = None            # SparseRows


class Builder:
    """Collects a model's steps and hops in the order of the forward pass. Parameters are given by name."""

    def __init__(self, backend, shape, parameters: Parameters, workspace: Workspace, inputs: Inputs):
        self.backend, self.shape, self.parameters = backend, shape, parameters
        self.workspace, self.inputs = workspace, inputs
        self.field = workspace.field
        self.threshold = philox.dropout_threshold(shape.dropout)
        self.blocks, self.hops, self.embeddings = [[]], [], []
        self.ones = None

    def add(self, step):
        """Append a step to the current block."""
        self.blocks[-1].append(step)

    def hop(self, source: Field, target: Field):
        """End the block with an aggregation from source to target."""
        hop = Hop(len(self.hops) + 1, source, target)
        source.read_by(hop)
        self.hops.append(hop)
        self.blocks.append([])

    def input_field(self, value, stream: int = 0) -> Field:
        """Dense input rows with dropout, as a field without gradient."""
        width = value.shape[1]
        source = Field("input", value, None, width)
        if not self.threshold:
            return source
        dropped = self.field("dropped input", stream, width, grad=None)
        self.add(Dropout(self.backend, source, dropped, self.inputs.ids, 1, self.threshold, stream))
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

    def linear(self, source, target: Field, weight: str, adds=False, draws=True):
        """target (+)= source @ weight; of the sparse input, `draws` renews the dropout."""
        if self.is_sparse(source):
            self.add(SparseLinear(self.backend, source, target, self.parameters[weight], adds, draws))
        else:
            self.add(Linear(self.backend, source, target, self.parameters[weight], adds))

    def epilogue(self, source: Field, target: Field, dropout_layer: int, bias: str | None = None,
                 norm: int | None = None, keep_source=False, dropout=True, maker=None):
        """Bias, norm, ReLU, dropout; norm keeps its normalised rows in the source's array unless that is needed."""
        norms = xhat = rstd = None
        if norm:
            norms = (self.parameters[f"norm{norm}.gamma"], self.parameters[f"norm{norm}.beta"])
            xhat = self.workspace.array(source.width) if keep_source else source.value
            rstd = self.workspace.vector()
        self.add(Epilogue(self.backend, source, target, self.inputs.ids, dropout_layer,
                          self.threshold if dropout else 0, self.parameters[bias] if bias else None, norms,
                          xhat, rstd, maker))

    def bias(self, target: Field, name: str):
        """target += bias."""
        if self.ones is None:
            self.ones = self.backend.zeros((self.workspace.n_rows, 1))
            self.backend.copy(np.ones(self.ones.shape, self.backend.dtype), self.ones)
        self.add(Bias(self.backend, target, self.parameters[name], self.ones))

    def output(self, source: Field) -> Field:
        """The linear output layer: logits = source @ output.weight + output.bias."""
        logits = self.field("logits", 0, self.shape.n_classes)
        self.linear(source, logits, "output.weight")
        self.bias(logits, "output.bias")
        return logits

    def finish(self, logits: Field) -> Model:
        """The model of what was added."""
        return Model(self.shape, self.parameters, self.blocks, self.hops, logits, self.embeddings)
