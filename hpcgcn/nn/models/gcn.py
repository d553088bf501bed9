"""GCN (Kipf and Welling): h' = relu(A h W + b)."""

from __future__ import annotations

from hpcgcn.errors import ConfigError
from hpcgcn.nn.builder import Builder
from hpcgcn.nn.fields import Field
from hpcgcn.nn.models.base import Architecture, register
from hpcgcn.nn.parameters import Spec


@register
class GCN(Architecture):
    """Layers y = A h W + b, with an optional norm, ReLU and dropout between them."""

    name, title = "gcn", "GCN"
    options: tuple[str, ...] = ("norm", "batch_norm", "linear_layers")
    precomputes_input = True
    adds_own_row = False             # y += h W_self
    weight_names: dict[str, dict[str, tuple[str, bool]]] = {
        "pyg": {"weight": ("lin.weight", True), "bias": ("bias", False)},
        "dgl": {"weight": ("weight", False), "bias": ("bias", False)}}
    out_degrees_in: tuple[str, ...] = ("dgl",)       # its GraphConv

    def check(self):
        super().check()
        if self.shape.linear_layers >= self.shape.layers:
            raise ConfigError(f"linear_layers = {self.shape.linear_layers} leaves no layer that "
                              f"aggregates: less than layers = {self.shape.layers}")

    def width(self, layer: int) -> int:
        """Width of the output of layer l; 0 is the input."""
        shape = self.shape
        if layer == 0:
            return shape.n_features
        return shape.n_classes if layer == shape.layers else shape.hidden

    def convolution_width(self, layer: int) -> int:
        """Width of what a layer aggregates and multiplies by its first weight."""
        return self.width(layer)

    def is_linear(self, layer: int) -> bool:
        return layer > self.shape.layers - self.shape.linear_layers

    def specs(self) -> list[Spec]:
        layers = range(1, self.shape.layers + 1)
        return [spec for layer in layers for spec in self._layer_specs(layer)]

    def _layer_specs(self, layer: int) -> list[Spec]:
        d_in, d_out = self.width(layer - 1), self.width(layer)
        specs = [Spec(f"conv{layer}.weight", (d_in, d_out))]
        if self._has_own_weight(layer):
            specs.append(Spec(f"conv{layer}.weight_self", (d_in, d_out)))
        specs.append(Spec(f"conv{layer}.bias", (d_out,), 0.0))
        has_norm = self.shape.norm and layer < self.shape.layers
        return specs + (self.norm_specs(layer, d_out) if has_norm else [])

    def _has_own_weight(self, layer: int) -> bool:
        return self.adds_own_row and not self.is_linear(layer)

    def build(self, build: Builder) -> Field:
        source, last = None, self.shape.layers
        for layer in range(1, last):
            y = self._convolution(build, layer, source)
            norm = layer if self.shape.norm else None
            # Without a norm the activations take the place of what they are computed from.
            source = build.field("e", y.width, grad_of=y) if norm else build.in_place("e", y)
            build.epilogue(y, source, layer + 1, bias=f"conv{layer}.bias", norm=norm)
            build.embeddings.append(source)
        logits = self._convolution(build, last, source)
        build.bias(logits, f"conv{last}.bias")
        return logits

    def _convolution(self, build: Builder, layer: int, source) -> Field:
        """y = A h W (+ h W_self), in the cheaper order."""
        weight = f"conv{layer}.weight"
        own = f"conv{layer}.weight_self" if self._has_own_weight(layer) else None
        d_in, d_out = self.width(layer - 1), self.convolution_width(layer)
        if layer == 1 and build.inputs.aggregated is not None:
            return self._precomputed_layer(build, weight, own, d_out)
        if layer == 1:
            source = build.input_source()
        if self.is_linear(layer):
            y = build.field("y", d_out)
            build.linear(source, y, weight)
            return y
        # A (h W) instead of (A h) W where W narrows: exchange and aggregation are then narrower.
        if (d_out < d_in and self.shape.weights_first) or build.is_sparse(source):
            u = build.field("u", d_out)
            build.linear(source, u, weight)
            y = build.field("y", d_out)
            build.hop(u, y, transformed=True)
        else:
            z = build.field("z", d_in, gradient=source.wants_gradient)
            build.hop(source, z)
            y = build.field("y", d_out)
            build.linear(z, y, weight)
        if own:
            build.linear(source, y, own, adds=True, draws=False)
        return y

    @staticmethod
    def _precomputed_layer(build: Builder, weight: str, own: str | None, d_out: int) -> Field:
        """Layer 1 on A x, computed once: no traffic and no aggregation in the epoch loop."""
        y = build.field("y", d_out)
        build.linear(build.input_field(build.inputs.aggregated, stream=1), y, weight)
        if own:
            build.linear(build.input_field(build.inputs.dense), y, own, adds=True)
        return y
