"""GCN, GraphSAGE, GCNII and ResGCN+ as row-wise steps between aggregations.

A model is blocks of steps with one aggregation (a hop) between each block and the next:

    block 0, hop 1, block 1, hop 2, ..., hop H, block H, loss

It knows nothing of ranks: a strategy (hpcgcn/parallel) carries out the hops.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hpcgcn import philox
from hpcgcn.errors import ConfigError
from hpcgcn.nn.fields import Field, Workspace
from hpcgcn.nn.parameters import Parameters, Spec
from hpcgcn.nn.steps import (Bias, Dropout, Epilogue, IdentityMapping, InitialResidual, Linear, SparseInput,
                             SparseLinear, eager_weight_gradients, run_backward, run_weight_gradients)

MODELS = ("gcn", "sage", "gcnii", "resgcn")


@dataclass(frozen=True)
class Shape:
    """What a model looks like: everything its parameters depend on, and its constants."""

    model: str
    n_features: int
    n_classes: int
    layers: int
    hidden: int
    linear_layers: int = 0           # the last k layers are plain linear (GCN and GraphSAGE)
    norm: bool = False               # LayerNorm after every layer but the last (GCN and GraphSAGE)
    dropout: float = 0.0
    alpha: float = 0.1               # GCNII: share of the initial residual
    lambda_: float = 0.5             # GCNII: beta_l = log(lambda / l + 1)
    self_loops: bool = True

    @property
    def normalisation(self) -> str:
        """How neighbours are weighed: by symmetric degree, or the mean."""
        return "mean" if self.model == "sage" else "symmetric"

    def width(self, layer: int) -> int:
        """Width of the output of layer l (0 is the input) of a GCN or GraphSAGE."""
        return self.n_features if layer == 0 else self.n_classes if layer == self.layers else self.hidden

    def aggregates(self, layer: int) -> bool:
        """Does this layer look at neighbours?"""
        return layer <= self.layers - self.linear_layers

    def transforms_first(self, layer: int) -> bool:
        """A (h W) instead of (A h) W where W narrows: exchange and aggregation run at the smaller width."""
        return self.width(layer) < self.width(layer - 1)


@dataclass
class Hop:
    """One aggregation: target = A source, over all rows of the graph."""

    number: int                      # 1 is the first
    source: Field
    target: Field


@dataclass
class Model:
    """Blocks of row-wise steps with a hop between each block and the next."""

    shape: Shape
    parameters: Parameters
    blocks: list[list]
    hops: list[Hop]
    logits: Field
    embeddings: list[Field]          # the output of every hidden layer

    def __post_init__(self):
        self.eager = [eager_weight_gradients(steps) for steps in self.blocks]

    def forward(self, number: int, rows, context):
        """Run block `number` on a range of rows."""
        for step in self.blocks[number]:
            step.forward(rows, context)

    def backward(self, number: int, rows, context):
        """Run block `number` backwards on a range of rows."""
        run_backward(self.blocks[number], self.eager[number], rows, context)

    def clear(self, number: int, rows):
        """Run block `number` backwards on rows whose gradients are zero."""
        for step in reversed(self.blocks[number]):
            step.clear(rows)

    def weight_gradients(self, number: int, rows, context):
        """Add up the gradients of the block's matrices on these rows, which have been run backwards."""
        run_weight_gradients(self.blocks[number], self.eager[number], rows, context)


def check_shape(shape: Shape):
    """Refuse what cannot be built."""
    if shape.linear_layers and shape.model not in ("gcn", "sage"):
        raise ConfigError(f"linear_layers is for gcn and sage; {shape.model} ends in one linear layer anyway: leave it 0")
    if shape.linear_layers >= shape.layers and shape.model in ("gcn", "sage"):
        raise ConfigError(f"linear_layers = {shape.linear_layers} leaves no layer that looks at neighbours; "
                          f"make it less than layers = {shape.layers}")


def parameter_specs(shape: Shape) -> list[Spec]:
    """Names and shapes of all parameters, in the order of the flat array."""
    check_shape(shape)
    if shape.model in ("gcn", "sage"):
        return [spec for layer in range(1, shape.layers + 1) for spec in _layer_specs(shape, layer)]
    hidden = shape.hidden
    specs = [Spec("input.weight", (shape.n_features, hidden), group="dense"), Spec("input.bias", (hidden,), 0.0, "dense")]
    for layer in range(1, shape.layers + 1):
        if shape.model == "resgcn":
            specs += _norm_specs(layer, hidden)
        specs.append(Spec(f"conv{layer}.weight", (hidden, hidden)))
        if shape.model == "resgcn":
            specs.append(Spec(f"conv{layer}.bias", (hidden,), 0.0))
    if shape.model == "resgcn":
        specs += _norm_specs(shape.layers + 1, hidden)
    return specs + [Spec("output.weight", (hidden, shape.n_classes), group="dense"),
                    Spec("output.bias", (shape.n_classes,), 0.0, "dense")]


def _norm_specs(layer: int, width: int) -> list[Spec]:
    return [Spec(f"norm{layer}.gamma", (width,), 1.0, "norm"), Spec(f"norm{layer}.beta", (width,), 0.0, "norm")]


def _layer_specs(shape: Shape, layer: int) -> list[Spec]:
    d_in, d_out = shape.width(layer - 1), shape.width(layer)
    specs = [Spec(f"conv{layer}.weight", (d_in, d_out))]
    if shape.model == "sage" and shape.aggregates(layer):
        specs.append(Spec(f"conv{layer}.weight_self", (d_in, d_out)))
    specs.append(Spec(f"conv{layer}.bias", (d_out,), 0.0))
    return specs + (_norm_specs(layer, d_out) if shape.norm and layer < shape.layers else [])


@dataclass
class Inputs:
    """What the rows bring: dense features (and their aggregate, if precomputed) or sparse ones, and global ids."""

    ids: object                      # (n_rows,) int64
    dense: object = None             # (n_rows, n_features)
    aggregated: object = None        # A @ dense, computed once, or None
    sparse: object = None            # SparseRows


class Builder:
    """Assembles a model; one method a model."""

    def __init__(self, backend, shape: Shape, parameters: Parameters, workspace: Workspace, inputs: Inputs):
        self.backend, self.shape, self.parameters = backend, shape, parameters
        self.workspace, self.inputs = workspace, inputs
        self.threshold = philox.dropout_threshold(shape.dropout)
        self.blocks, self.hops, self.embeddings = [[]], [], []
        self.ones = None

    def build(self) -> Model:
        logits = getattr(self, f"_{self.shape.model}")()
        return Model(self.shape, self.parameters, self.blocks, self.hops, logits, self.embeddings)

    # -- small parts --------------------------------------------------------------------------------------------------
    def add(self, step):
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
        dropped = self.workspace.field("dropped input", stream, width, grad=None)
        self.add(Dropout(self.backend, source, dropped, self.inputs.ids, 1, self.threshold, stream))
        return dropped

    def input_linear(self, source, target: Field, weight, adds=False, draws=True):
        """target (+)= input @ weight, for dense or sparse input."""
        if isinstance(source, SparseInput):
            self.add(SparseLinear(self.backend, source, target, weight, adds, draws))
        else:
            self.add(Linear(self.backend, source, target, weight, adds))

    def input_source(self):
        """The input with dropout: a SparseInput or a field."""
        if self.inputs.sparse is not None:
            return SparseInput(self.backend, self.inputs.sparse, self.inputs.ids, 1, self.threshold)
        return self.input_field(self.inputs.dense)

    def epilogue(self, layer: int, source: Field, target: Field, dropout_layer: int, bias=None, norm=None, keep_source=False,
                 dropout=True, maker=None):
        """Bias, norm, ReLU, dropout; norm keeps its normalised rows in the source's array unless that is needed."""
        xhat = rstd = None
        if norm:
            norm = (self.parameters[f"norm{norm}.gamma"], self.parameters[f"norm{norm}.beta"])
            xhat = self.workspace.array(source.width) if keep_source else source.value
            rstd = self.workspace.vector()
        threshold = self.threshold if dropout else 0
        self.add(Epilogue(self.backend, source, target, self.inputs.ids, dropout_layer, threshold, bias, norm, xhat, rstd, maker))

    def bias(self, target: Field, name: str):
        """target += bias."""
        if self.ones is None:
            self.ones = self.backend.zeros((self.workspace.n_rows, 1))
            self.backend.copy(np.ones(self.ones.shape, self.backend.dtype), self.ones)
        self.add(Bias(self.backend, target, self.parameters[name], self.ones))

    def finish(self, source: Field) -> Field:
        """The output layer of the deep models."""
        logits = self.workspace.field("logits", 0, self.shape.n_classes)
        self.add(Linear(self.backend, source, logits, self.parameters["output.weight"]))
        self.bias(logits, "output.bias")
        return logits

    # -- GCN and GraphSAGE --------------------------------------------------------------------------------------------
    def _gcn(self) -> Field:
        source = None
        for layer in range(1, self.shape.layers + 1):
            y = self._convolution(layer, source)
            if layer == self.shape.layers:
                self.bias(y, f"conv{layer}.bias")
                return y
            norm = layer if self.shape.norm else None
            # Without a norm the activations take the place of what they are made from.
            source = self.workspace.field("e", layer, y.width, value=None if norm else y.value, grad=y.grad)
            self.epilogue(layer, y, source, layer + 1, bias=self.parameters[f"conv{layer}.bias"], norm=norm)
            self.embeddings.append(source)

    _sage = _gcn

    def _convolution(self, layer: int, source) -> Field:
        """y = A h W (+ h W_self), in the cheaper order."""
        shape, parameters = self.shape, self.parameters
        weight = parameters[f"conv{layer}.weight"]
        has_self = shape.model == "sage" and shape.aggregates(layer)
        weight_self = parameters[f"conv{layer}.weight_self"] if has_self else None
        d_in, d_out = shape.width(layer - 1), shape.width(layer)

        if layer == 1 and self.inputs.aggregated is not None:
            return self._precomputed_layer(weight, weight_self, d_out)
        if layer == 1:
            source = self.input_source()
        if not shape.aggregates(layer):
            y = self.workspace.field("y", layer, d_out)
            self.input_linear(source, y, weight)
            return y
        if shape.transforms_first(layer) or isinstance(source, SparseInput):
            u = self.workspace.field("u", layer, d_out, scratch=True)
            self.input_linear(source, u, weight)
            y = self.workspace.field("y", layer, d_out)
            self.hop(u, y)
        else:
            z = self.workspace.field("z", layer, d_in, grad="new" if source.grad is not None else None)
            self.hop(source, z)
            y = self.workspace.field("y", layer, d_out)
            self.add(Linear(self.backend, z, y, weight))
        if has_self:
            self.input_linear(source, y, weight_self, adds=True, draws=False)
        return y

    def _precomputed_layer(self, weight, weight_self, d_out) -> Field:
        """Layer 1 on A x, computed once: no traffic and no aggregation in the epoch loop."""
        y = self.workspace.field("y", 1, d_out)
        self.add(Linear(self.backend, self.input_field(self.inputs.aggregated, stream=1), y, weight))
        if weight_self is not None:
            self.add(Linear(self.backend, self.input_field(self.inputs.dense), y, weight_self, adds=True))
        return y

    # -- deep models --------------------------------------------------------------------------------------------------
    def _gcnii(self) -> Field:
        shape, workspace, backend = self.shape, self.workspace, self.backend
        initial = workspace.field("h0", 0, shape.hidden)
        self.input_linear(self.input_source(), initial, self.parameters["input.weight"])
        activated = Field("h0", initial.value, initial.grad, shape.hidden)
        self.epilogue(0, initial, activated, 0, bias=self.parameters["input.bias"], dropout=False)
        source = workspace.field("e", 0, shape.hidden)
        self.add(Dropout(backend, activated, source, self.inputs.ids, 2, self.threshold))
        for layer in range(1, shape.layers + 1):
            z = workspace.field("z", layer, shape.hidden)
            self.hop(source, z)
            t = Field("t", z.value, z.grad, shape.hidden)
            self.add(InitialResidual(backend, z, activated, t, shape.alpha))
            y = workspace.field("y", layer, shape.hidden)
            beta = math.log(shape.lambda_ / layer + 1.0)
            mapping = IdentityMapping(backend, t, y, self.parameters[f"conv{layer}.weight"], beta)
            self.add(mapping)
            source = Field("e", y.value, y.grad, shape.hidden)
            self.epilogue(layer, y, source, layer + 2, maker=mapping)
            self.embeddings.append(source)
        return self.finish(source)

    def _resgcn(self) -> Field:
        shape, workspace, backend = self.shape, self.workspace, self.backend
        # One running sum of residuals: every layer adds to it, every epilogue reads it.
        stream = workspace.field("stream", 0, shape.hidden)
        self.input_linear(self.input_source(), stream, self.parameters["input.weight"])
        self.bias(stream, "input.bias")
        for layer in range(1, shape.layers + 1):
            source = workspace.field("e", layer, shape.hidden)
            self.epilogue(layer, stream, source, layer + 1, norm=layer, keep_source=True)
            self.embeddings.append(source)
            z = workspace.field("z", layer, shape.hidden)
            self.hop(source, z)
            self.add(Linear(backend, z, stream, self.parameters[f"conv{layer}.weight"], adds=True))
            self.bias(stream, f"conv{layer}.bias")
        last = workspace.field("e", shape.layers + 1, shape.hidden)
        self.epilogue(shape.layers + 1, stream, last, shape.layers + 2, norm=shape.layers + 1, keep_source=True)
        return self.finish(last)


def build_model(backend, shape: Shape, parameters: Parameters, workspace: Workspace, inputs: Inputs) -> Model:
    """The model over the given rows, with its activations allocated."""
    return Builder(backend, shape, parameters, workspace, inputs).build()
