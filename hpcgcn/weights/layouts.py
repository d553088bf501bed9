"""How PyG and DGL name and lay out the weights of GCN, GraphSAGE and GCNII stacks, and finding out which a file follows.

Stacks as both libraries' examples build them: graph layers in a list, `norms` beside it, and for GCNII two plain
linear layers `lins`. Any other prefixes are read too, in natural order (conv1, conv2, ..., conv10).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from hpcgcn.errors import ConfigError, FileError
from hpcgcn.nn.models import Shape, parameter_specs

FRAMEWORKS = ("pyg", "dgl", "hpcgcn")
# The names within one graph layer: ours -> (theirs, transposed).
_LAYERS = {
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
_LINEAR = {"weight": ("weight", True), "bias": ("bias", False)}
_NORM = {"gamma": ("weight", False), "beta": ("bias", False)}
# Longest first: what of a name belongs to the layer.
_SUFFIXES = ("fc_neigh.weight", "fc_self.weight", "fc_self.bias", "lin_l.weight", "lin_l.bias", "lin_r.weight", "lin.weight",
             "weight1", "weight2", "weight", "bias")
# A name that only one kind of layer has.
_SIGNS = {"lin.weight": ("pyg", "gcn"), "lin_l.weight": ("pyg", "sage"), "fc_neigh.weight": ("dgl", "sage"),
          "weight1": ("pyg", "gcnii")}


@dataclass
class Found:
    """A model read from a file: its shape (without constants that weights do not tell) and our parameters by name."""

    framework: str
    shape: Shape
    parameters: dict[str, np.ndarray] = field(default_factory=dict)


def their_names(framework: str, shape: Shape) -> dict[str, tuple[str, bool]]:
    """Our name -> (their name, transposed) for every parameter."""
    specs = parameter_specs(shape)
    if framework == "hpcgcn":
        return {spec.name: (spec.name, False) for spec in specs}
    if (framework, shape.model) not in _LAYERS:
        raise ConfigError(f"{framework} has no layers for {shape.model}: export with --to hpcgcn")
    return {spec.name: _their_name(framework, shape, spec.name) for spec in specs}


def _their_name(framework: str, shape: Shape, name: str) -> tuple[str, bool]:
    module, part = name.split(".")
    if module in ("input", "output"):
        theirs, turned = _LINEAR[part]
        return f"lins.{0 if module == 'input' else 1}.{theirs}", turned
    number = int(re.search(r"\d+", module).group()) - 1
    if module.startswith("norm"):
        theirs, turned = _NORM[part]
        return f"norms.{number}.{theirs}", turned
    names = _LAYERS[framework, shape.model]
    if shape.model in ("gcn", "sage") and not shape.aggregates(number + 1):
        names = _LINEAR
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


def from_theirs(where: str, tensors: dict[str, np.ndarray]) -> Found:
    """The model of a file, from the names and shapes of its tensors."""
    if "conv1.weight" in tensors and not any(name.endswith(tuple(_SIGNS)) for name in tensors) and _is_ours(tensors):
        return _ours(where, tensors)
    modules = _modules(where, tensors)
    signs = {_SIGNS[suffix] for parts in modules.values() for suffix in parts if suffix in _SIGNS}
    if len({model for _, model in signs}) > 1 or len(signs) > 1:
        raise FileError(f"{where}: layers of {' and '.join(sorted(f'{f} {m}' for f, m in signs))} in one stack; expected one kind")
    framework, model = signs.pop() if signs else ("dgl", "gcn")
    return _gcnii(where, modules) if model == "gcnii" else _stack(where, framework, model, modules)


def _natural(name: str) -> list:
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.split(r"(\d+)", name)]


def _modules(where: str, tensors: dict[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    """{module: {name within it: tensor}}, in natural order."""
    modules: dict[str, dict[str, np.ndarray]] = {}
    for name in sorted(tensors, key=_natural):
        suffix = next((s for s in _SUFFIXES if name == s or name.endswith("." + s)), None)
        if suffix is None:
            raise FileError(f"{where}: the tensor {name!r} belongs to no layer that is known here; expected GCNConv, GraphConv, "
                            "SAGEConv, GCN2Conv, Linear and LayerNorm weights")
        tensor = tensors[name]
        if tensor.dtype.kind != "f" or not np.isfinite(tensor).all():
            held = "NaN or infinity" if tensor.dtype.kind == "f" else tensor.dtype
            raise FileError(f"{where}: the tensor {name!r} holds {held}; expected finite numbers")
        modules.setdefault(name.removesuffix(suffix).rstrip("."), {})[suffix] = tensor
    return modules


def _taken(where: str, module: str, parts: dict, names: dict, optional=()) -> dict[str, np.ndarray]:
    """A module's tensors under our names and in our layout."""
    parts = dict(parts)
    if "fc_self.bias" in {theirs for theirs, _ in names.values()} and "bias" in parts and "fc_self.bias" not in parts:
        parts["fc_self.bias"] = parts.pop("bias")        # older releases of DGL keep it beside
    found = {}
    for ours, (theirs, turned) in names.items():
        if theirs not in parts:
            if ours in optional:
                continue
            raise FileError(f"{where}: {module} has no {theirs}; expected {', '.join(t for t, _ in names.values())}")
        tensor = parts.pop(theirs)
        wanted = 1 if ours in ("bias", "gamma", "beta") else 2
        if tensor.ndim != wanted:
            raise FileError(f"{where}: {module}.{theirs} has the shape {tensor.shape}; expected {wanted} dimensions")
        found[ours] = np.ascontiguousarray(tensor.T if turned else tensor, np.float32)
    if parts:
        raise FileError(f"{where}: {module} also has {', '.join(parts)}, which the model here has not; expected "
                        f"{', '.join(t for t, _ in names.values())}")
    return found


def _is_norm(parts: dict) -> bool:
    return "weight" in parts and parts["weight"].ndim == 1


def _norms(where: str, modules: dict, parameters: dict) -> int:
    norms = [name for name, parts in modules.items() if _is_norm(parts)]
    for number, name in enumerate(norms, 1):
        parameters.update({f"norm{number}.{ours}": value for ours, value in _taken(where, name, modules[name], _NORM).items()})
    return len(norms)


def _stack(where: str, framework: str, model: str, modules: dict) -> Found:
    """GCN and GraphSAGE: one module a layer; plain linear layers may come last."""
    layers = [name for name, parts in modules.items() if not _is_norm(parts)]
    if not layers:
        raise FileError(f"{where}: no graph layers; expected at least one")
    parameters, widths, linear = {}, [], 0
    for number, name in enumerate(layers, 1):
        plain = set(modules[name]) <= {"weight", "bias"} and (framework, model) != ("dgl", "gcn")
        if linear and not plain:
            raise FileError(f"{where}: {name} looks at neighbours after a plain linear layer; expected linear layers last")
        linear += plain
        found = _taken(where, name, modules[name], _LINEAR if plain else _LAYERS[framework, model], optional=("bias",))
        found.setdefault("bias", np.zeros(found["weight"].shape[1], np.float32))
        widths.append(found["weight"].shape)
        parameters.update({f"conv{number}.{part}": value for part, value in found.items()})
    _check_chain(where, layers, widths)
    n_norms = _norms(where, modules, parameters)
    if n_norms not in (0, len(layers) - 1):
        raise FileError(f"{where}: {n_norms} norms for {len(layers)} layers; expected none, or one after every layer but the last")
    shape = Shape(model, widths[0][0], widths[-1][1], len(layers), widths[0][1] if len(layers) > 1 else 1, linear,
                  norm=n_norms > 0, self_loops=model != "sage")
    return Found(framework, shape, _fitted(where, shape, parameters))


def _check_chain(where: str, layers: list[str], widths: list[tuple[int, int]]):
    for before, after, (_, out), (into, _) in zip(layers, layers[1:], widths, widths[1:]):
        if out != into:
            raise FileError(f"{where}: {before} gives {out} numbers a node, but {after} takes {into}; expected the same "
                            "(is the order of the layers clear from their names?)")


def _gcnii(where: str, modules: dict) -> Found:
    layers = [name for name, parts in modules.items() if "weight1" in parts]
    linear = [name for name, parts in modules.items() if name not in layers]
    if len(linear) != 2:
        raise FileError(f"{where}: {len(linear)} linear layers beside the {len(layers)} of GCNII; expected two: input and output")
    hidden = modules[layers[0]]["weight1"].shape[0]
    ends = [_taken(where, name, modules[name], _LINEAR) for name in linear]
    if ends[0]["weight"].shape[1] != hidden or ends[1]["weight"].shape[0] != hidden:
        ends.reverse()
    parameters = {f"{name}.{part}": value for name, end in zip(("input", "output"), ends) for part, value in end.items()}
    framework = "pyg"
    for number, name in enumerate(layers, 1):
        parts = dict(modules[name])
        if "bias" in parts:
            framework = "dgl"
            if parts.pop("bias").any():
                raise FileError(f"{where}: {name}.bias is not zero; expected GCNII layers without a bias (bias=False)")
        parameters[f"conv{number}.weight"] = _taken(where, name, parts, _LAYERS["pyg", "gcnii"])["weight"]
    shape = Shape("gcnii", ends[0]["weight"].shape[0], ends[1]["weight"].shape[1], len(layers), hidden)
    return Found(framework, shape, _fitted(where, shape, parameters))


def _is_ours(tensors: dict) -> bool:
    return all(re.fullmatch(r"(conv|norm)\d+\.(weight|weight_self|bias|gamma|beta)|(input|output)\.(weight|bias)", name)
               for name in tensors) and ("input.weight" in tensors or "conv1.weight_self" in tensors or
                                         not any(name.startswith("convs") for name in tensors))


def _ours(where: str, tensors: dict) -> Found:
    """A file with our own names."""
    layers = sum(bool(re.fullmatch(r"conv\d+\.weight", name)) for name in tensors)
    norm = any(name.startswith("norm") for name in tensors)
    if "input.weight" in tensors:
        model = "resgcn" if norm else "gcnii"
        shape = Shape(model, tensors["input.weight"].shape[0], tensors["output.weight"].shape[1], layers,
                      tensors["input.weight"].shape[1])
    else:
        selves = sum(name.endswith("weight_self") for name in tensors)
        model = "sage" if selves else "gcn"
        shape = Shape(model, tensors["conv1.weight"].shape[0], tensors[f"conv{layers}.weight"].shape[1], layers,
                      tensors["conv1.weight"].shape[1] if layers > 1 else 1, layers - selves if selves else 0, norm=norm,
                      self_loops=model != "sage")
    return Found("hpcgcn", shape, _fitted(where, shape, {name: value.astype(np.float32) for name, value in tensors.items()}))


def _fitted(where: str, shape: Shape, parameters: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The parameters in the order of the flat array; all must be there, in their shapes."""
    specs = {spec.name: spec.shape for spec in parameter_specs(shape)}
    for name in {*specs, *parameters}:
        if name not in parameters or name not in specs or parameters[name].shape != specs[name]:
            found = parameters[name].shape if name in parameters else "missing"
            raise FileError(f"{where}: {name} is {found}; expected {specs.get(name, 'no such parameter')} in a {shape.model} of "
                            f"{shape.layers} layers and width {shape.hidden}")
    return {name: parameters[name] for name in specs}


