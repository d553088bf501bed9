"""How PyG and DGL name and lay out the weights of GCN, GraphSAGE and GCNII stacks; recognise.py finds out which a file follows.

Stacks as both libraries' examples build them: graph layers in a list, `norms` beside it, and for GCNII two plain
linear layers `lins`.
"""

from __future__ import annotations

import re

import numpy as np

from hpcgcn.errors import ConfigError
from hpcgcn.nn.models import Shape, parameter_specs

FRAMEWORKS = ("pyg", "dgl", "hpcgcn")
# The names within one graph layer: ours -> (theirs, transposed).
LAYERS = {
    ("pyg", "gcn"): {"weight": ("lin.weight", True), "bias": ("bias", False)},
    ("pyg", "sage"): {"weight": ("lin_l.weight", True), "bias": ("lin_l.bias", False),
                      "weight_self": ("lin_r.weight", True)},
    ("pyg", "gcnii"): {"weight": ("weight1", False)},
    ("dgl", "gcn"): {"weight": ("weight", False), "bias": ("bias", False)},
    ("dgl", "sage"): {"weight": ("fc_neigh.weight", True), "bias": ("fc_self.bias", False),
                      "weight_self": ("fc_self.weight", True)},
    ("dgl", "gcnii"): {"weight": ("weight1", False)},
}
_LIST = {"pyg": "convs", "dgl": "layers"}
LINEAR = {"weight": ("weight", True), "bias": ("bias", False)}
NORM = {"gamma": ("weight", False), "beta": ("bias", False)}


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
    number = int(re.search(r"\d+", module).group()) - 1
    if module.startswith("norm"):
        theirs, turned = NORM[part]
        return f"norms.{number}.{theirs}", turned
    names = LAYERS[framework, shape.model]
    if shape.model in ("gcn", "sage") and not shape.aggregates(number + 1):
        names = LINEAR
    theirs, turned = names[part]
    return f"{_LIST[framework]}.{number}.{theirs}", turned


def to_theirs(framework: str, shape: Shape, parameters: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Our parameters under their names and in their layout."""
    tensors = {theirs: np.ascontiguousarray(parameters[ours].T if turned else parameters[ours], np.float32)
               for ours, (theirs, turned) in their_names(framework, shape).items()}
    if (framework, shape.model) == ("dgl", "gcnii"):
        # DGL's layer has a bias, which this model has not.
        tensors.update({f"layers.{k}.bias": np.zeros(shape.hidden, np.float32) for k in range(shape.layers)})
    return tensors
