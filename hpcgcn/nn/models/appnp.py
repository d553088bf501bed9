"""APPNP (Gasteiger et al.): predict, then propagate the predictions."""

from __future__ import annotations

from hpcgcn.nn.builder import Builder
from hpcgcn.nn.fields import Field
from hpcgcn.nn.models.base import Architecture, dense_specs, register
from hpcgcn.nn.parameters import Spec
from hpcgcn.nn.steps import InitialResidual


@register
class APPNP(Architecture):
    """p = relu(x W + b) W' + b', then as many times as there are layers z = (1 - alpha) A z +
    alpha p, from z = p on."""

    name, title = "appnp", "APPNP"
    options = ("alpha",)
    dense_ends = True

    def specs(self) -> list[Spec]:
        shape = self.shape
        return [*dense_specs("input", shape.n_features, shape.hidden),
                *dense_specs("output", shape.hidden, shape.n_classes)]

    def build(self, build: Builder) -> Field:
        hidden = build.field("h", self.shape.hidden)
        build.linear(build.input_source(), hidden, "input.weight")
        activated = build.in_place("e", hidden)
        build.epilogue(hidden, activated, 2, bias="input.bias")
        build.embeddings.append(activated)
        predicted = propagated = build.output(activated)
        for _ in range(self.shape.layers):
            z = build.field("z", self.shape.n_classes)
            # Classes are few, and a weight is in all of them: no hop is wide.
            build.hop(propagated, z)
            propagated = build.in_place("t", z)
            build.add(InitialResidual(build.backend, z, predicted, propagated, self.shape.alpha))
        return propagated
