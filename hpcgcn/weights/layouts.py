"""How PyG and DGL name and lay out the weights of stacks of layers; recognise.py finds out which a
file follows.

Stacks as both libraries' examples build them: graph layers in a list, `norms` beside it, and where
a model has linear layers around them, `lins`. What they call the weights of one graph layer is in
the model's own file (nn/models).
"""

from __future__ import annotations

import re

import numpy as np

from hpcgcn.errors import ConfigError
from hpcgcn.nn.models import MODELS, Shape, parameter_specs

FRAMEWORKS = ("pyg", "dgl", "hpcgcn")
# The names within one graph layer: ours -> (theirs, transposed), by framework and model.
LAYERS = {(framework, name): names for name, kind in MODELS.items()
          for framework, names in kind.weight_names.items()}
_LIST = {"pyg": "convs", "dgl": "layers"}
LINEAR = {"weight": ("weight", True), "bias": ("bias", False)}
# Vectors by head: ours, and theirs, which have an axis in front.
BY_HEAD = ("att_src", "att_dst")
THEIRS_BY_HEAD = (*BY_HEAD, "attn_l", "attn_r")
NORM = {"gamma": ("weight", False), "beta": ("bias", False)}
# Of a BatchNorm: how many batches it has seen, which is no weight, and the variance.
BATCH_COUNT = "num_batches_tracked"
RUNNING_VARIANCE = "running_var"
BATCH_NORM = NORM | {"mean": ("running_mean", False), "deviation": (RUNNING_VARIANCE, False)}


def their_names(framework: str, shape: Shape) -> dict[str, tuple[str, bool]]:
    """Our name -> (their name, transposed) for every parameter."""
    specs = parameter_specs(shape)
    if framework == "hpcgcn":
        return {spec.name: (spec.name, False) for spec in specs}
    if (framework, shape.model) not in LAYERS:
        raise ConfigError(f"{framework} has no layers for {shape.model}: export with --to hpcgcn")
    return {spec.name: _their_name(framework, shape, spec.name) for spec in specs}


def _their_name(framework: str, shape: Shape, name: str) -> tuple[str, bool]:
    module, part = name.split(".")
    if module in ("input", "output"):
        theirs, turned = LINEAR[part]
        return f"lins.{0 if module == 'input' else 1}.{theirs}", turned
    number = int(re.sub(r"\D", "", module)) - 1
    if module.startswith("norm"):
        theirs, turned = BATCH_NORM[part]
        return f"{'bns' if shape.batch_norm else 'norms'}.{number}.{theirs}", turned
    names = LINEAR if shape.architecture.is_linear(number + 1) else LAYERS[framework, shape.model]
    theirs, turned = names[part]
    return f"{_LIST[framework]}.{number}.{theirs}", turned


def biases_by_head(framework: str, model: str) -> bool:
    """Has the last layer a bias for each head, of which the user takes the mean with the heads?"""
    return framework == "dgl" and MODELS[model].attends


def to_theirs(framework: str, shape: Shape,
              parameters: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Our parameters under their names and in their layout."""
    tensors = {theirs: np.ascontiguousarray(parameters[ours].T if turned else parameters[ours],
                                            np.float32)
               for ours, (theirs, turned) in their_names(framework, shape).items()}
    if framework != "hpcgcn":
        tensors = {name: value[None] if name.endswith(THEIRS_BY_HEAD)
                   else value ** 2 if name.endswith(RUNNING_VARIANCE) else value
                   for name, value in tensors.items()}
        tensors |= {name.removesuffix(RUNNING_VARIANCE) + BATCH_COUNT: np.zeros((), np.int64)
                    for name in tensors if name.endswith(RUNNING_VARIANCE)}
    if biases_by_head(framework, shape.model):
        name = f"{_LIST[framework]}.{shape.layers - 1}.bias"
        tensors[name] = np.tile(tensors[name], shape.output_heads)
    for name in MODELS[shape.model].zero_weights.get(framework, ()):
        tensors.update({f"{_LIST[framework]}.{k}.{name}": np.zeros(shape.hidden, np.float32)
                        for k in range(shape.layers)})
    return tensors
