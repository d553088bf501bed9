"""What a model is: one class with its parameters, defaults and options, that builds its steps.

A new model is one file in this folder: a class with `@register` that derives from Architecture.
Nothing outside this folder names a model.
"""

from __future__ import annotations

from dataclasses import dataclass

from hpcgcn.errors import ConfigError
from hpcgcn.nn.builder import Builder
from hpcgcn.nn.fields import Field
from hpcgcn.nn.parameters import Spec

MODELS: dict[str, type[Architecture]] = {}     # by name, in the order in which they are offered


@dataclass(frozen=True)
class Shape:
    """What a model looks like: everything its parameters depend on, and its constants."""

    model: str
    n_features: int
    n_classes: int
    layers: int
    hidden: int
    linear_layers: int = 0           # the last k layers are plain linear
    norm: bool = False               # LayerNorm after every layer but the last
    batch_norm: bool = False         # BatchNorm in the place of LayerNorm
    dropout: float = 0.0
    alpha: float = 0.1               # share of the initial residual
    lambda_: float = 0.5             # strength of the identity mapping
    self_loops: bool = True
    weights_first: bool = True       # A (h W) where W narrows; else always (A h) W
    heads: int = 1                   # of attention
    output_heads: int = 1            # of attention in the last layer
    attention_dropout: float = 0.0   # of its coefficients

    @classmethod
    def of(cls, settings, n_features: int, n_classes: int) -> Shape:
        """The shape that settings mean: what they leave open is the model's own default."""
        kind, choose = MODELS[settings.model], {"yes": True, "batch": True, "no": False}
        # Models without attention are the same model whatever these settings are.
        attention = {name: getattr(settings, name) for name in
                     ("heads", "output_heads", "attention_dropout") if kind.attends}
        return cls(settings.model, n_features, n_classes, settings.layers, settings.hidden,
                   settings.linear_layers, norm=choose.get(settings.norm, kind.norm),
                   batch_norm=settings.norm == "batch", dropout=settings.dropout,
                   alpha=settings.alpha, lambda_=settings.lambda_,
                   self_loops=choose.get(settings.self_loops, kind.self_loops),
                   weights_first=settings.weights_first, **attention)

    @property
    def architecture(self) -> Architecture:
        """The model of this shape."""
        return MODELS[self.model](self)

    @property
    def normalisation(self) -> str:
        """How neighbours are weighted: "symmetric" (by both degrees), "mean" or "sum"."""
        return MODELS[self.model].normalisation


class Architecture:
    """One kind of model. Class attributes are its defaults and options; an instance has a shape."""

    name: str
    title = ""                       # as papers call it
    normalisation = "symmetric"      # of the adjacency: "symmetric", "mean" or "sum"
    attends = False                  # are its coefficients computed from activations?
    self_loops = True                # default of the setting
    norm = False                     # default of the setting
    # The settings that it takes, besides layers, hidden and dropout.
    options: tuple[str, ...] = ()
    # Does it begin with an aggregation of the input, which can be done once at start?
    precomputes_input = False
    for_many_layers = False          # does it train with dozens of layers?
    # Does it have the linear layers `input` and `output` around its graph layers?
    dense_ends = False
    # How libraries name a graph layer's weights: {framework: {our name: (theirs, transposed)}},
    weight_names: dict[str, dict[str, tuple[str, bool]]] = {}
    # which of their weights it has not, so that they are zero,
    zero_weights: dict[str, tuple[str, ...]] = {}
    # and who weights the edges of directed graphs by out-degrees, which is not done here.
    out_degrees_in: tuple[str, ...] = ()

    def __init__(self, shape: Shape):
        self.shape = shape

    def check(self):
        """Refuse a shape that cannot be built."""
        if self.shape.linear_layers and "linear_layers" not in self.options:
            takers = " and ".join(models_with("linear_layers"))
            raise ConfigError(f"linear_layers is for {takers}; {self.name} does not take it: "
                              f"leave it 0")
        if self.shape.batch_norm and "batch_norm" not in self.options:
            raise ConfigError(f"norm = 'batch' is for {', '.join(models_with('batch_norm'))}; "
                              f"{self.name} has no norm")

    def is_linear(self, layer: int) -> bool:
        """Is graph layer `layer` a plain linear one, without aggregation?"""
        return False

    def norm_specs(self, number: int, width: int) -> list[Spec]:
        """The parameters of a norm; with BatchNorm also its running statistics, which no gradient
        moves."""
        learned = [Spec(f"norm{number}.gamma", (width,), 1.0, "norm"),
                   Spec(f"norm{number}.beta", (width,), 0.0, "norm")]
        if not self.shape.batch_norm:
            return learned
        return [*learned, Spec(f"norm{number}.mean", (width,), 0.0, "statistics"),
                Spec(f"norm{number}.deviation", (width,), 1.0, "statistics")]

    def specs(self) -> list[Spec]:
        """Names and shapes of all parameters, in the order of the flat array."""
        raise NotImplementedError

    def build(self, build: Builder) -> Field:
        """Add all steps and hops, in the order of the forward pass; returns the logits."""
        raise NotImplementedError


def register(kind: type[Architecture]) -> type[Architecture]:
    """Make a model known by its name."""
    MODELS[kind.name] = kind
    return kind


def models_with(option: str) -> list[str]:
    """Names of the models that take this setting."""
    return [name for name, kind in MODELS.items() if option in kind.options]


def models_where(attribute: str) -> list[str]:
    """Names of the models with this attribute: `norm`, `self_loops`, `precomputes_input`..."""
    return [name for name, kind in MODELS.items() if getattr(kind, attribute)]


def parameter_specs(shape: Shape) -> list[Spec]:
    """Names and shapes of all parameters in their order; refuses what cannot be built."""
    architecture = shape.architecture
    architecture.check()
    return architecture.specs()


def dense_specs(name: str, d_in: int, d_out: int) -> list[Spec]:
    """The parameters of a linear layer, which does not aggregate."""
    return [Spec(f"{name}.weight", (d_in, d_out), group="dense"),
            Spec(f"{name}.bias", (d_out,), 0.0, "dense")]
