"""GCNII (Chen et al.): initial residual and identity mapping, for many layers."""

from __future__ import annotations

import math

from hpcgcn.nn.builder import Builder
from hpcgcn.nn.fields import Field
from hpcgcn.nn.models.base import Architecture, dense_specs, register
from hpcgcn.nn.parameters import Spec
from hpcgcn.nn.steps import IdentityMapping, InitialResidual


@register
class GCNII(Architecture):
    """t = (1 - alpha) A h + alpha h0; h' = relu((1 - beta) t + beta t W).

    In layer l beta is log(lambda / l + 1).
    """

    name, title = "gcnii", "GCNII"
    options = ("alpha", "lambda_")
    for_many_layers = dense_ends = True
    weight_names = {"pyg": {"weight": ("weight1", False)}, "dgl": {"weight": ("weight1", False)}}
    zero_weights = {"dgl": ("bias",)}

    def specs(self) -> list[Spec]:
        shape, hidden = self.shape, self.shape.hidden
        layers = range(1, shape.layers + 1)
        return [*dense_specs("input", shape.n_features, hidden),
                *(Spec(f"conv{layer}.weight", (hidden, hidden)) for layer in layers),
                *dense_specs("output", hidden, shape.n_classes)]

    def build(self, build: Builder) -> Field:
        shape, backend = self.shape, build.backend
        initial = build.field("h0", shape.hidden)
        build.linear(build.input_source(), initial, "input.weight")
        activated = build.in_place("h0", initial)
        build.epilogue(initial, activated, 0, bias="input.bias", dropout=False)
        source = build.field("e", shape.hidden)
        build.dropout(activated, source, 2)
        for layer in range(1, shape.layers + 1):
            z = build.field("z", shape.hidden)
            build.hop(source, z)
            t = build.in_place("t", z)
            build.add(InitialResidual(backend, z, activated, t, shape.alpha))
            y = build.field("y", shape.hidden)
            beta = math.log(shape.lambda_ / layer + 1.0)
            weight = build.parameters[f"conv{layer}.weight"]
            mapping = IdentityMapping(backend, t, y, weight, beta, build.identity(shape.hidden))
            build.add(mapping)
            source = build.in_place("e", y)
            build.epilogue(y, source, layer + 2, recompute_from=mapping)
            build.embeddings.append(source)
        return build.output(source)
