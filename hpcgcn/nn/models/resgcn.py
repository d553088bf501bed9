"""ResGCN+ (Li et al., DeeperGCN): h' = h + A dropout(relu(norm(h))) W + b, for many layers."""

from __future__ import annotations

from hpcgcn.nn.builder import Builder
from hpcgcn.nn.fields import Field
from hpcgcn.nn.models.base import Architecture, dense_specs, register
from hpcgcn.nn.parameters import Spec


@register
class ResGCN(Architecture):
    """Pre-activation residual blocks around one running sum."""

    name, title = "resgcn", "ResGCN+"
    options = ("batch_norm",)
    for_many_layers = dense_ends = True

    def specs(self) -> list[Spec]:
        shape, hidden = self.shape, self.shape.hidden
        specs = dense_specs("input", shape.n_features, hidden)
        for layer in range(1, shape.layers + 1):
            specs += [*self.norm_specs(layer, hidden),
                      Spec(f"conv{layer}.weight", (hidden, hidden)),
                      Spec(f"conv{layer}.bias", (hidden,), 0.0)]
        if shape.batch_norm:         # all that reads the stream subtracts its mean
            specs = [spec for spec in specs if not spec.name.endswith(".bias")]
        return [*specs, *self.norm_specs(shape.layers + 1, hidden),
                *dense_specs("output", hidden, shape.n_classes)]

    def build(self, build: Builder) -> Field:
        layers, hidden = self.shape.layers, self.shape.hidden
        # One running sum of residuals: every layer adds to it, every epilogue reads it.
        stream = build.field("stream", hidden)
        build.linear(build.input_source(), stream, "input.weight")
        self._bias(build, stream, "input.bias")
        for layer in range(1, layers + 1):
            source = build.field("e", hidden)
            build.epilogue(stream, source, layer + 1, norm=layer, keep_source=True)
            build.embeddings.append(source)
            z = build.field("z", hidden)
            build.hop(source, z)
            build.linear(z, stream, f"conv{layer}.weight", adds=True)
            self._bias(build, stream, f"conv{layer}.bias")
        last = build.field("e", hidden)
        build.epilogue(stream, last, layers + 2, norm=layers + 1, keep_source=True)
        return build.output(last)

    def _bias(self, build: Builder, target: Field, name: str):
        if not self.shape.batch_norm:
            build.bias(target, name)
