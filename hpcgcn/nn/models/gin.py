"""GIN (Xu et al.): h' = MLP(h + the sum of the neighbours), with an MLP of two layers."""

from __future__ import annotations

from hpcgcn.nn.builder import Builder
from hpcgcn.nn.fields import Field
from hpcgcn.nn.models.base import register
from hpcgcn.nn.models.gcn import GCN
from hpcgcn.nn.parameters import Spec


@register
class GIN(GCN):
    """Layers y = relu(norm(A h W + b)) W2 + b2, where A sums neighbours and the node itself (PyG's
    GINConv with eps = 0); ReLU and dropout between layers."""

    name, title = "gin", "GIN"
    normalisation = "sum"
    options = ("norm", "batch_norm")
    weight_names = {}
    out_degrees_in = ()

    def convolution_width(self, layer: int) -> int:
        return self.shape.hidden

    def _layer_specs(self, layer: int) -> list[Spec]:
        hidden, d_out, name = self.shape.hidden, self.width(layer), f"conv{layer}"
        norm = self.norm_specs(layer, hidden) if self.shape.norm else []
        return [Spec(f"{name}.weight", (self.width(layer - 1), hidden)),
                Spec(f"{name}.bias", (hidden,), 0.0), *norm,
                Spec(f"{name}.weight2", (hidden, d_out)), Spec(f"{name}.bias2", (d_out,), 0.0)]

    def build(self, build: Builder) -> Field:
        source, last = None, self.shape.layers
        for layer in range(1, last + 1):
            y = self._convolution(build, layer, source)
            norm = layer if self.shape.norm else None
            inner = build.field("m", y.width, grad_of=y) if norm else build.in_place("m", y)
            build.epilogue(y, inner, 0, bias=f"conv{layer}.bias", norm=norm, dropout=False)
            out = build.field("y", self.width(layer))
            build.linear(inner, out, f"conv{layer}.weight2")
            if layer == last:
                build.bias(out, f"conv{layer}.bias2")
                return out
            source = build.in_place("e", out)
            build.epilogue(out, source, layer + 1, bias=f"conv{layer}.bias2")
            build.embeddings.append(source)
        raise AssertionError("a model has at least one layer")
