"""The tensors of a weight file sorted into modules: which belong to one layer, and what each is
within it."""

from __future__ import annotations

import re

import numpy as np

from hpcgcn.errors import FileError
from hpcgcn.nn.parameters import LARGEST_PARAMETER, are_usable
from hpcgcn.weights.layouts import (
    BATCH_NORM,
    BY_HEAD,
    LAYERS,
    LINEAR,
    NORM,
    RUNNING_VARIANCE,
    THEIRS_BY_HEAD,
)

# Longest first: what of a name belongs to the layer.
_SUFFIXES = ("fc_neigh.weight", "fc_self.weight", "fc_self.bias", "lin_l.weight", "lin_l.bias",
             "lin_r.weight", "lin.weight", "fc.weight", *THEIRS_BY_HEAD, "running_mean",
             RUNNING_VARIANCE,
             "weight1", "weight2", "weight", "bias")
# A name that only one kind of layer has, and which it is. A layer whose weight is called like a
# linear layer's has none.
SIGNS: dict[str, tuple[str, str]] = {}
for _kind, _names in LAYERS.items():
    _by_head = [_names[name][0] for name in BY_HEAD if name in _names]
    if _by_head:
        SIGNS |= dict.fromkeys(_by_head, _kind)          # its weight is called like GCNConv's
    elif _names["weight"][0] != LINEAR["weight"][0]:
        SIGNS.setdefault(_names["weight"][0], _kind)
# Parts of layers that are not known here, but whose weights would pass for plain ones.
_OTHERS = re.compile(r"lin_(rel|root|out|key|query|value|skip|src|dst|edge|beta|self|neigh|f|s)|"
                     r"fc_pool|lstm|rnn|gru|nn|apply_func|att(?!_src$|_dst$|n_l$|n_r$)\w*")
_BATCH_NORM = re.compile(r"bns?\d*|batch_?norms?\d*|BatchNorm\w*")
KNOWN = "GCNConv, GraphConv, SAGEConv, GCN2Conv, GATConv, Linear, LayerNorm and BatchNorm"


def kind_of_layer(parts: dict) -> set[tuple[str, str]]:
    """The kind of graph layer that a module is; of several that share a name, the one that has most
    of its names."""
    kinds = {SIGNS[suffix] for suffix in parts if suffix in SIGNS}
    most = max((_n_named(kind, parts) for kind in kinds), default=0)
    return {kind for kind in kinds if _n_named(kind, parts) == most}


def _n_named(kind: tuple[str, str], parts: dict) -> int:
    return sum(theirs in parts for theirs, _ in LAYERS[kind].values())


def checked(where: str, name: str, tensor: np.ndarray) -> np.ndarray:
    """A tensor in our precision."""
    if tensor.dtype.kind != "f":
        raise FileError(f"{where}: the tensor {name!r} holds {tensor.dtype}; expected finite "
                        "numbers")
    if name.endswith(THEIRS_BY_HEAD) and tensor.ndim == 3 and len(tensor) == 1:
        tensor = tensor[0]
    if tensor.ndim not in (1, 2):
        raise FileError(f"{where}: the tensor {name!r} has the shape {tensor.shape}; expected "
                        "one or two dimensions")
    if name.endswith(RUNNING_VARIANCE):
        if (tensor < 0).any():
            raise FileError(f"{where}: the tensor {name!r} holds negative numbers; expected "
                            "variances")
        tensor = np.sqrt(tensor)             # ours is the standard deviation
    with np.errstate(over="ignore"):
        tensor = tensor.astype(np.float32)
    if not are_usable(tensor):
        raise FileError(f"{where}: the tensor {name!r} holds NaN, infinity or numbers above "
                        f"{LARGEST_PARAMETER:g}, with which outputs overflow; expected weights of "
                        "a model whose training converged")
    return tensor


def natural(name: str) -> list:
    """A key that sorts names with their numbers by value, of any length."""
    parts = re.split(r"([0-9]+)", name)
    return [(1, len(part.lstrip("0")), part.lstrip("0")) if k % 2 else (0, 0, part)
            for k, part in enumerate(parts)]


def _common_prefix(names: list[str]) -> str:
    """The module that all names are within: what is left of `model.conv1.bias` and `model.lin.bias`
    is `model`."""
    paths = [name.split(".")[:-1] for name in names]
    first, last = min(paths), max(paths)
    n = next((k for k, (a, b) in enumerate(zip(first, last)) if a != b), min(len(first), len(last)))
    return ".".join(first[:n])


def sort_modules(where: str, tensors: dict[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    """{module: {name within it: tensor}}, in natural order."""
    modules: dict[str, dict[str, np.ndarray]] = {}
    root = _common_prefix(list(tensors))
    for name in sorted(tensors, key=natural):
        module, suffix = _split(where, name, tensors, root)
        modules.setdefault(module, {})[suffix] = tensors[name]
    for name in modules:
        parent = name.rpartition(".")[0]
        if parent != root and set(modules.get(parent, ())) & set(SIGNS):
            raise FileError(f"{where}: {name} lies within the layer {parent}; expected {KNOWN} "
                            "as they are by default (SAGEConv with project=True is another layer)")
    return modules


def _split(where: str, name: str, tensors: dict, root: str) -> tuple[str, str]:
    """(module, name within it) of a tensor."""
    suffix = next((s for s in _SUFFIXES if name == s or name.endswith("." + s)), None)
    inner = name.removeprefix(root).split(".")  # how the model itself is called does not matter
    if suffix is None or any(_OTHERS.fullmatch(part) for part in inner):
        raise FileError(f"{where}: the tensor {name!r} belongs to no layer that is known here; "
                        f"expected {KNOWN} weights")
    module = name.removesuffix(suffix).rstrip(".")
    if suffix == "lin.weight" and _is_linear(module, tensors, root):
        return f"{module}.lin".lstrip("."), "weight"
    if suffix == "fc.weight" and f"{module}.attn_l".lstrip(".") not in tensors:
        return f"{module}.fc".lstrip("."), "weight"          # a plain linear layer
    return module, suffix


def _is_linear(module: str, tensors: dict, root: str) -> bool:
    """Is MODULE.lin a plain linear layer, and not the inside of PyG's GCNConv, which has its bias
    beside it?"""
    inside = f"{module}." if module else ""
    if f"{inside}lin.bias" in tensors:
        return True
    return module == root and f"{inside}bias" not in tensors and len(tensors) > 1


def taken(where: str, module: str, parts: dict, names: dict, optional=()) -> dict[str, np.ndarray]:
    """A module's tensors under our names and in our layout."""
    parts = dict(parts)
    if ("fc_self.bias" in {theirs for theirs, _ in names.values()} and "bias" in parts
        and "fc_self.bias" not in parts):
        parts["fc_self.bias"] = parts.pop("bias")        # older releases of DGL keep it beside
    arrays = {}
    for ours, (theirs, turned) in names.items():
        if theirs not in parts:
            if ours in optional:
                continue
            raise FileError(f"{where}: {module} has no {theirs}; expected "
                            f"{', '.join(t for t, _ in names.values())}")
        tensor = parts.pop(theirs)
        n_dimensions = 1 if ours in ("bias", *BATCH_NORM) else 2
        if tensor.ndim != n_dimensions:
            raise FileError(f"{where}: {module}.{theirs} has the shape {tensor.shape}; expected "
                            f"{n_dimensions} dimensions")
        arrays[ours] = np.ascontiguousarray(tensor.T if turned else tensor)
    if parts:
        raise FileError(f"{where}: {module} also has {', '.join(parts)}, which the model here "
                        f"has not; expected {', '.join(t for t, _ in names.values())}")
    return arrays


def is_norm(parts: dict) -> bool:
    """Is this the module of a normalisation? Its weight is a vector."""
    return "running_mean" in parts or ("weight" in parts and parts["weight"].ndim == 1)


def norm_names(where: str, module: str, parts: dict) -> dict[str, tuple[str, bool]]:
    """How the tensors of a norm are called: LayerNorm's, or BatchNorm's with its statistics."""
    if {"running_mean", RUNNING_VARIANCE} & set(parts):
        return BATCH_NORM
    if any(_BATCH_NORM.fullmatch(part) for part in module.split(".")):
        raise FileError(f"{where}: {module} is a batch normalisation by its name and has no "
                        "running_mean and running_var, by which evaluation normalises; expected "
                        "one with track_running_stats=True, or LayerNorm")
    return NORM
