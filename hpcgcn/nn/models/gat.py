"""GAT (Velickovic et al.): neighbours are weighted by attention, in several heads."""

from __future__ import annotations

from hpcgcn.errors import ConfigError
from hpcgcn.nn.builder import Builder
from hpcgcn.nn.fields import Field
from hpcgcn.nn.models.base import Architecture, register
from hpcgcn.nn.parameters import Spec


@register
class GAT(Architecture):
    """Layers y = sum over neighbours of a (h W) + b; heads lie side by side, and the last layer
    takes their mean."""

    name, title = "gat", "GAT"
    normalisation = "sum"
    attends = True
    options = ("norm", "batch_norm", "heads", "output_heads", "attention_dropout")
    weight_names = {"pyg": {"weight": ("lin.weight", True), "att_src": ("att_src", False),
                            "att_dst": ("att_dst", False), "bias": ("bias", False)},
                    "dgl": {"weight": ("fc.weight", True), "att_src": ("attn_l", False),
                            "att_dst": ("attn_r", False), "bias": ("bias", False)}}

    def check(self):
        super().check()
        shape = self.shape
        if shape.layers > 1 and shape.hidden % shape.heads:
            raise ConfigError(f"hidden = {shape.hidden} cannot be divided into heads = "
                              f"{shape.heads} of equal width; choose a multiple")

    def heads(self, layer: int) -> int:
        """Heads of a layer."""
        return self.shape.output_heads if layer == self.shape.layers else self.shape.heads

    def _widths(self, layer: int) -> tuple[int, int]:
        """(of the input, of one head)"""
        shape = self.shape
        last = layer == shape.layers
        return (shape.n_features if layer == 1 else shape.hidden,
                shape.n_classes if last else shape.hidden // shape.heads)

    def specs(self) -> list[Spec]:
        return [spec for layer in range(1, self.shape.layers + 1)
                for spec in self._layer_specs(layer)]

    def _layer_specs(self, layer: int) -> list[Spec]:
        (d_in, columns), heads = self._widths(layer), self.heads(layer)
        last = layer == self.shape.layers
        name = f"conv{layer}"
        specs = [Spec(f"{name}.weight", (d_in, heads * columns)),
                 Spec(f"{name}.att_src", (heads, columns)),
                 Spec(f"{name}.att_dst", (heads, columns)),
                 Spec(f"{name}.bias", (columns if last else heads * columns,), 0.0)]
        has_norm = self.shape.norm and not last
        return specs + (self.norm_specs(layer, heads * columns) if has_norm else [])

    def build(self, build: Builder) -> Field:
        source, last = build.input_source(), self.shape.layers
        for layer in range(1, last):
            y = self._convolution(build, layer, source)
            norm = layer if self.shape.norm else None
            source = build.field("e", y.width, grad_of=y) if norm else build.in_place("e", y)
            build.epilogue(y, source, layer + 1, bias=f"conv{layer}.bias", norm=norm)
            build.embeddings.append(source)
        logits = self._convolution(build, last, source)
        if self.heads(last) > 1:
            mean = build.field("logits", self.shape.n_classes)
            build.mean_of_heads(logits, mean, self.heads(last))
            logits = mean
        build.bias(logits, f"conv{last}.bias")
        return logits

    def _convolution(self, build: Builder, layer: int, source) -> Field:
        heads, width = self.heads(layer), self.heads(layer) * self._widths(layer)[1]
        u, y = build.field("u", width), build.field("y", width)
        build.linear(source, u, f"conv{layer}.weight")
        build.attention(u, y, layer, heads)
        return y
