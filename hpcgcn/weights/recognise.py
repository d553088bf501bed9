"""Which model a weight file holds, from the names and shapes of its tensors.

A file does not say what its layers are, nor their order: names like `lin_l.weight` tell PyG's
SAGEConv, numbers tell the order, and plain linear layers come after the graph layers. What could be
read in two ways is refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from hpcgcn.errors import FileError
from hpcgcn.nn.models import MODELS, Shape, models_where, parameter_specs
from hpcgcn.weights.layouts import BATCH_COUNT, BATCH_NORM, LAYERS, LINEAR, biases_by_head
from hpcgcn.weights.modules import (
    checked,
    is_norm,
    kind_of_layer,
    natural,
    norm_names,
    sort_modules,
    taken,
)

_GRAPH_NAME = re.compile(
    r"(g?convs?|graph_?convs?|gcns?|gnns?|gcs?|layers?|gc_?layers?|blocks?)_?\d*", re.IGNORECASE)
_LINEAR_NAME = re.compile(r"(lins?|linears?|fcs?|dense|mlp|out|output|head|classifier|cls|decoder|"
                          r"pred\w*|readout|post\w*)_?\d*", re.IGNORECASE)
_FRONT_NAME = re.compile(r"(pre|in|input|embed|emb|enc|encoder|first|start)(_?\w*)", re.IGNORECASE)
_OUR_NAME = re.compile(
    r"(conv|norm)\d+\.(weight|weight_self|weight2|att_src|att_dst|bias|bias2|gamma|beta|mean|deviation)|(input|output)\.(weight|bias)")


@dataclass
class Found:
    """A model read from a file: its shape (without constants that weights do not tell) and our
    parameters by name."""

    framework: str
    shape: Shape
    parameters: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def weighs_out_degrees(self) -> bool:
        """Does it differ from ours on directed graphs, because it weights edges by out-degrees
        too?"""
        return self.framework in MODELS[self.shape.model].out_degrees_in


def from_theirs(where: str, tensors: dict[str, np.ndarray], framework: str | None = None,
                linear_layers: int | None = None) -> Found:
    """The model of a file. framework, linear_layers: what the file notes of itself, if it does."""
    tensors = {name: checked(where, name, tensor) for name, tensor in tensors.items()
               if not name.endswith(BATCH_COUNT)}
    if framework == "hpcgcn" or _is_ours(tensors):
        return _ours(where, tensors, linear_layers or 0)
    modules = sort_modules(where, tensors)
    signs = {kind for parts in modules.values() for kind in kind_of_layer(parts)}
    if len(signs) > 1:
        raise FileError(f"{where}: layers of "
                        f"{' and '.join(sorted(f'{f} {m}' for f, m in signs))} in one stack; "
                        "expected one kind")
    framework, model = signs.pop() if signs else next(kind
                                                      for kind in LAYERS if _looks_linear(*kind))
    if MODELS[model].dense_ends:
        return _between_linear_layers(where, model, modules)
    return _stack(where, framework, model, modules, linear_layers)


def _looks_linear(framework: str, model: str) -> bool:
    """Does a graph layer have the names of a linear one?

    DGL's GraphConv does, but its weight is (in, out) and theirs (out, in).
    """
    return LAYERS[framework, model]["weight"][0] == LINEAR["weight"][0]


def _last_word(module: str) -> str:
    """What a module is called, without the number of a list."""
    return next((part for part in reversed(module.split(".")) if not part.isdigit()), "")


def _linear_modules(where: str, framework: str, model: str, layers: list[str], modules: dict,
                    noted: int | None) -> list[str]:
    """Those of the layers that are plain linear."""
    if noted is not None:
        if not 0 <= noted < len(layers):
            raise FileError(f"{where}: it notes {noted} linear layers among {len(layers)}; "
                            "expected fewer than all")
        return layers[len(layers) - noted:]
    plain = [name for name in layers if set(modules[name]) <= {"weight", "bias"}]
    if not _looks_linear(framework, model):
        return plain
    linear = [name for name in plain if _LINEAR_NAME.fullmatch(_last_word(name))]
    unclear = [name for name in plain if name not in linear
               and not _GRAPH_NAME.fullmatch(_last_word(name))]
    if len(linear) == len(layers):
        raise FileError(f"{where}: {', '.join(layers)} are plain linear layers by their names; "
                        "expected graph layers (for DGL's GraphConv, in a list "
                        "`layers` or `convs`)")
    square = all(parts["weight"].ndim == 2 and len(set(parts["weight"].shape)) == 1
                 for name, parts in modules.items() if name in plain and "weight" in parts)
    if unclear and square:
        raise FileError(f"{where}: {unclear[0]} may be DGL's GraphConv or a linear layer: its "
                        "weight is square and its name does not tell; expected names such as "
                        "layers.0, conv1, lin1")
    return linear


def _in_order(where: str, layers: list[str], linear: list[str], modules: dict) -> list[str]:
    """Graph layers, then linear ones; refused where a linear one is, or may be, meant to come
    first."""
    graph = [name for name in layers if name not in linear]
    lists = {of for name in graph if (of := _list_of(name)) is not None}
    listed = [name for name in linear if _list_of(name) in lists]
    wrong = [name for name in listed if layers.index(name) < layers.index(graph[-1])]
    wrong += [name
              for name in linear if name not in listed and _FRONT_NAME.fullmatch(_last_word(name))]
    if wrong:
        raise FileError(f"{where}: {wrong[0]} is a plain linear layer before graph layers; "
                        "expected linear layers last")
    width = _input_width(modules[graph[0]])
    either = [name for name in linear if name not in listed
              and modules[name].get("weight", np.zeros(0)).shape == (width, width)]
    # one alone, with a name that does not say otherwise, is the head
    if either and len(linear) > 1:
        raise FileError(f"{where}: {either[0]} may come before or after the graph layers: its "
                        "width fits both; expected it in their list, as "
                        f"{max(lists, default='convs')}.{len(graph)}")
    return graph + linear


def _list_of(module: str) -> str | None:
    """The list that a module is a numbered entry of."""
    parent, _, last = module.rpartition(".")
    return parent if last.isdigit() else None


def _input_width(parts: dict) -> int:
    """Numbers per node that a graph layer takes."""
    weight = next((parts[name] for name in ("lin.weight", "lin_l.weight", "fc_neigh.weight",
                                            "fc.weight", "weight") if name in parts), None)
    if weight is None or weight.ndim != 2:
        return -1                        # refused later, with a better message
    return weight.shape[0] if "weight" in parts else weight.shape[1]


def _stack(where: str, framework: str, model: str, modules: dict, noted: int | None) -> Found:
    """GCN and GraphSAGE: one module a layer; plain linear layers come last."""
    layers = [name for name, parts in modules.items() if not is_norm(parts)]
    if not layers:
        raise FileError(f"{where}: no graph layers; expected at least one")
    linear = _linear_modules(where, framework, model, layers, modules, noted)
    layers = _in_order(where, layers, linear, modules)
    _check_biases(where, framework, model, [modules[name] for name in layers if name not in linear])
    parameters, widths = {}, []
    for number, name in enumerate(layers, 1):
        names = LINEAR if name in linear else LAYERS[framework, model]
        arrays = taken(where, name, modules[name], names, optional=("bias",))
        n_biases = arrays["weight"].shape[1]
        if "att_src" in arrays and number == len(layers):
            n_biases = arrays["att_src"].shape[1]        # of the mean of the heads
        arrays.setdefault("bias", np.zeros(n_biases, np.float32))
        if (biases_by_head(framework, model) and number == len(layers)
                and len(arrays["bias"]) == arrays["att_src"].size):
            arrays["bias"] = arrays["bias"].reshape(arrays["att_src"].shape).mean(axis=0)
        widths.append(arrays["weight"].shape)
        parameters.update({f"conv{number}.{part}": value for part, value in arrays.items()})
    _check_chain(where, layers, widths)
    n_norms, batch_norm = _norms(where, modules, parameters)
    if n_norms not in (0, len(layers) - 1):
        raise FileError(f"{where}: {n_norms} norms for {len(layers)} layers; expected none, or "
                        "one after every layer but the last")
    shape = Shape(model, widths[0][0], widths[-1][1], len(layers), widths[0][1] if len(layers) > 1
                  else 1, len(linear), norm=n_norms > 0, batch_norm=batch_norm,
                  self_loops=MODELS[model].self_loops)
    shape = _with_heads(shape, parameters)
    return Found(framework, shape, _fitted(where, shape, parameters))


def _with_heads(shape: Shape, parameters: dict) -> Shape:
    """The shape with the heads of its first and last layer, if it has any."""
    first, last = (parameters.get(f"conv{layer}.att_src") for layer in (1, shape.layers))
    if first is None or last is None:
        return shape
    return replace(shape, heads=len(first) if shape.layers > 1 else 1, output_heads=len(last),
                   n_classes=last.shape[1])


def _check_biases(where: str, framework: str, model: str, layers: list[dict]):
    """GCNConv without a bias beside others with one is as likely a container of a linear layer
    `lin`."""
    if LAYERS[framework, model]["weight"][0] == "lin.weight" and len({"bias" in parts
                                                                      for parts in layers}) > 1:
        raise FileError(f"{where}: some layers with lin.weight have a bias and some have none; "
                        "expected all or none (a plain linear layer without a bias that is "
                        "called lin cannot be told from GCNConv)")


def _norms(where: str, modules: dict, parameters: dict) -> tuple[int, bool]:
    """How many norms there are, and whether they are BatchNorm's."""
    norms = {name: norm_names(where, name, parts) for name, parts in modules.items()
             if is_norm(parts)}
    for number, (name, names) in enumerate(norms.items(), 1):
        if names is not next(iter(norms.values())):
            raise FileError(f"{where}: {name} is another kind of norm than {next(iter(norms))}; "
                            "expected one kind")
        parameters.update({f"norm{number}.{ours}": value
                           for ours, value in taken(where, name, modules[name], names).items()})
    return len(norms), BATCH_NORM in norms.values()


def _check_chain(where: str, layers: list[str], widths: list[tuple[int, int]]):
    for before, after, (_, out), (into, _) in zip(layers, layers[1:], widths, widths[1:]):
        if out != into:
            raise FileError(f"{where}: {before} gives {out} numbers per node, but {after} takes "
                            f"{into}; expected the same (layers that see several others at once, "
                            "as with jk='cat', and layers in another order than their names' are "
                            "not known here)")
    hidden = sorted({out for _, out in widths[:-1]})
    if len(hidden) > 1:
        raise FileError(f"{where}: hidden layers of the widths {' and '.join(map(str, hidden))}; "
                        "expected one width for all")


def _between_linear_layers(where: str, model: str, modules: dict) -> Found:
    """Graph layers between two linear ones, input and output."""
    names = MODELS[model].weight_names
    sign = next(iter(names.values()))["weight"][0]
    layers = [name for name, parts in modules.items() if sign in parts]
    linear = [name for name, parts in modules.items() if name not in layers]
    if len(linear) != 2:
        raise FileError(f"{where}: {len(linear)} linear layers beside the {len(layers)} of "
                        f"{MODELS[model].title}; expected two: input and output")
    hidden = modules[layers[0]][sign].shape[0]
    linear_parts = [taken(where, name, modules[name], LINEAR) for name in linear]
    if linear_parts[0]["weight"].shape[1] != hidden or linear_parts[1]["weight"].shape[0] != hidden:
        linear_parts.reverse()
    parameters = {f"{name}.{part}": value for name, end in zip(("input", "output"), linear_parts)
                  for part, value in end.items()}
    framework = next(iter(names))
    for number, name in enumerate(layers, 1):
        parts = dict(modules[name])
        for other, extra in ((other, extra) for other, zeros in MODELS[model].zero_weights.items()
                             for extra in zeros if extra in parts):
            framework = other
            if parts.pop(extra).any():
                raise FileError(f"{where}: {name}.{extra} is not zero; expected "
                                f"{MODELS[model].title} layers without a {extra} ({extra}=False)")
        arrays = taken(where, name, parts, names[framework])
        parameters.update({f"conv{number}.{part}": value for part, value in arrays.items()})
    shape = Shape(model, linear_parts[0]["weight"].shape[0], linear_parts[1]["weight"].shape[1],
                  len(layers), hidden)
    return Found(framework, shape, _fitted(where, shape, parameters))


# -- our own names ---------------------------------------------------------------------------------
def _is_ours(tensors: dict) -> bool:
    """Names that only our own files have; a plain GCN's conv1.weight and conv1.bias are DGL's too,
    and mean the same."""
    return (all(_OUR_NAME.fullmatch(name) for name in tensors)
            and any(name.endswith(("weight_self", "weight2", "gamma", "att_src"))
                    or name.startswith(("input.", "output.")) for name in tensors))


def _ours(where: str, tensors: dict, linear_layers: int) -> Found:
    """A file with our own names."""
    convs = {name for name in tensors if re.fullmatch(r"conv\d+\.weight", name)}
    layers = len(convs)
    first_last = ("conv1.weight", f"conv{layers}.weight")
    if "input.weight" in tensors:
        first_last = ("input.weight", "output.weight")
    elif f"conv{layers}.weight2" in tensors:
        first_last = ("conv1.weight", f"conv{layers}.weight2")
    if not convs or not all(tensors.get(name, convs) is not convs and tensors[name].ndim == 2
                            for name in {*first_last, *convs}):
        raise FileError(f"{where}: layers are missing or have no two dimensions; expected "
                        "conv1.weight, conv2.weight and so on, and for "
                        f"{' and '.join(models_where('dense_ends'))} input.weight and "
                        "output.weight")
    n_features, n_classes = tensors[first_last[0]].shape[0], tensors[first_last[1]].shape[1]
    has_width = layers > 1 or first_last != ("conv1.weight", "conv1.weight")
    hidden = tensors[first_last[0]].shape[1] if has_width else 1
    shapes = [_with_heads(replace(shape, n_features=n_features, n_classes=n_classes,
                                  hidden=hidden), tensors)
              for shape in _shapes(layers, _linear_counts(tensors, layers, linear_layers))]
    shape = min(shapes,
                key=lambda s: len({spec.name for spec in parameter_specs(s)} ^ set(tensors)))
    return Found("hpcgcn", shape, _fitted(where, shape, tensors))


def _linear_counts(tensors: dict, layers: int, noted: int) -> list[int]:
    """How many layers may be plain linear: as the file notes, or as many as lack a weight that
    others have."""
    parts = Counter(name.split(".")[1] for name in tensors
                    if name.startswith("conv") and "." in name)
    return [n for n in dict.fromkeys([noted, *(layers - count for count in parts.values())])
            if 0 <= n < layers]


def _shapes(layers: int, linear_counts: list[int]) -> Iterator[Shape]:
    """Every model of so many layers."""
    for name, kind in MODELS.items():
        norms: list[dict[str, bool]] = [{}] + [{"norm": True}] * ("norm" in kind.options)
        norms += [{"norm": True, "batch_norm": True}] * ("batch_norm" in kind.options)
        for norm in norms:
            for n_linear in linear_counts if "linear_layers" in kind.options else (0,):
                yield Shape(name, 1, 1, layers, 1, n_linear, self_loops=kind.self_loops, **norm)


def _fitted(where: str, shape: Shape, parameters: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The parameters in the order of the flat array; all must be there, in their shapes."""
    specs = {spec.name: spec.shape for spec in parameter_specs(shape)}
    for name in sorted({*specs, *parameters}, key=natural):
        if name not in parameters or name not in specs or parameters[name].shape != specs[name]:
            held = parameters[name].shape if name in parameters else "missing"
            raise FileError(f"{where}: {name} is {held}; expected "
                            f"{specs.get(name, 'no such parameter')} in a {shape.model} of "
                            f"{shape.layers} layers and width {shape.hidden}")
    return {name: parameters[name] for name in specs}
