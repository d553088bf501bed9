"""Weight files: safetensors, or a torch file loaded without code; a run's parameters out, and a run
made of a file."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterable

import numpy as np

from hpcgcn.config import Config, make_config
from hpcgcn.errors import ConfigError, FileError
from hpcgcn.files.atomic import atomic_file, atomic_folder
from hpcgcn.files.replace import REMEDY, Replaces
from hpcgcn.formats.files import check_readable
from hpcgcn.nn.models import MODELS, Shape, parameter_specs
from hpcgcn.train import checkpoint
from hpcgcn.train.folder import RunFolder
from hpcgcn.weights.layouts import BATCH_COUNT, FRAMEWORKS, to_theirs
from hpcgcn.weights.recognise import Found, from_theirs

_FORMAT = "hpcgcn weights 1"
_FLOATS = {"F16": np.float16, "F32": np.float32, "F64": np.float64}
# What people wrap a state_dict in when they save it.
_WRAPPERS = ("state_dict", "model_state_dict", "model", "net")


def read_tensors(path: str | os.PathLike) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """(tensors, metadata) of a .safetensors file, or of a .pt file that holds nothing but
    tensors."""
    check_readable(path)
    with open(path, "rb") as file:
        if file.read(2) == b"PK" or os.fspath(path).endswith((".pt", ".pth")):
            return _read_torch(path), {}
    from safetensors import SafetensorError, deserialize, safe_open
    try:
        with safe_open(os.fspath(path), framework="numpy") as file:
            metadata = file.metadata() or {}
        with open(path, "rb") as file:
            return {name: _array(held) for name, held in deserialize(file.read())
                    if not name.endswith(BATCH_COUNT)}, metadata
    except (SafetensorError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise FileError(f"{path} cannot be read ({error}); expected a safetensors file of BF16, "
                        "F16, F32 or F64 numbers") from None


def _array(held: dict) -> np.ndarray:
    """A tensor of a safetensors file."""
    if held["dtype"] == "BF16":              # the upper half of an F32
        halves = np.frombuffer(held["data"], np.uint16).astype(np.uint32)
        return (halves << 16).view(np.float32).reshape(held["shape"])
    if held["dtype"] not in _FLOATS:
        raise ValueError(f"it holds {held['dtype']}")
    return np.frombuffer(held["data"], _FLOATS[held["dtype"]]).reshape(held["shape"])


def _read_torch(path) -> dict[str, np.ndarray]:
    from hpcgcn.formats.torch_objects import array, load_torch
    state = load_torch(path)
    if isinstance(state, dict):
        state = next((state[name] for name in _WRAPPERS if isinstance(state.get(name), dict)),
                     state)
    if not isinstance(state, dict) or not state:
        raise FileError(f"{path} holds a {type(state).__name__}; expected the dictionary of "
                        "model.state_dict()")
    return {str(name): array(f"{path} ({name})", value) for name, value in state.items()}


def read_weights(path: str | os.PathLike) -> tuple[Found, dict[str, str]]:
    """The model of a weight file and its metadata."""
    tensors, metadata = read_tensors(path)
    if not tensors:
        raise FileError(f"{path} holds no tensors; expected the weights of a model")
    notes = _noted(path, metadata)
    return from_theirs(str(path), tensors, notes.get("framework"),
                       notes.get("linear_layers")), metadata


def imported_config(path, weights: Found, metadata: dict[str, str], given: dict) -> Config:
    """Settings of a run with these weights: from their shapes, the file's own notes, and what the
    user gave."""
    shape = weights.shape
    chosen = {"model": shape.model, "layers": shape.layers, "linear_layers": shape.linear_layers,
              "dropout": 0.0, "norm": _norm_setting(shape), "hidden": shape.hidden}
    if MODELS[shape.model].attends:
        chosen |= {"heads": shape.heads, "output_heads": shape.output_heads}
    chosen |= {name: value for name, value in _noted(path, metadata).items()
               if name in ("alpha", "lambda", "self_loops")}
    config = make_config(chosen | given, where=str(path))
    for name in ("model", "layers", "linear_layers", "norm"):
        if getattr(config, name) != chosen[name]:
            raise ConfigError(f"{path} holds a {shape.model} with {name} = {chosen[name]}, not "
                              f"{getattr(config, name)}; leave it out")
    return config


def _norm_setting(shape: Shape) -> str:
    if shape.batch_norm:
        return "batch"
    return "yes" if shape.norm else "no"


def _noted(path, metadata: dict[str, str]) -> dict:
    """What a file of ours notes of itself; nothing, for files of others."""
    if metadata.get("format") != _FORMAT:
        return {}
    try:
        constants = {"alpha": float(metadata["alpha"]), "lambda": float(metadata["lambda"]),
                 "self_loops": metadata["self_loops"]}
        if "linear_layers" in metadata:      # not in the first files of this format
            constants |= {"linear_layers": int(metadata["linear_layers"]),
                      "framework": metadata["framework"]}
        if constants.get("framework", "pyg") not in FRAMEWORKS:
            raise ValueError(f"framework {constants['framework']!r}")
        return constants
    except (KeyError, ValueError) as error:
        raise FileError(f"{path}: its notes are damaged ({error}); expected alpha, lambda and "
                        "linear_layers as numbers, framework and self_loops") from None


def flat_values(weights: Found) -> np.ndarray:
    """All parameters in one array, as checkpoints keep them."""
    flat = [value.ravel() for value in weights.parameters.values()]
    return np.concatenate(flat).astype(np.float32)


def check_ending(path: str | os.PathLike):
    """Refuse a name that promises another format than the one that is written."""
    if not os.fspath(path).endswith(".safetensors"):
        raise ConfigError(f"cannot write {path}: weights are written as safetensors, which "
                          "torch.load does not read; give a name that ends in .safetensors, and "
                          "load it with safetensors.torch.load_file")


def weights_replace(run: str, overwrite: bool = False) -> Replaces:
    """What the weights of a run (its uuid) may replace: weights of the same run, or of any."""
    def fits(path: str) -> bool:
        held = _metadata(path)
        return held.get("format") == _FORMAT and (overwrite or bool(run) and held.get("run") == run)
    return Replaces("a weight file of hpcgcn" if overwrite else "a weight file of this run", fits,
                    "give another name with -o" if overwrite else REMEDY)


def _metadata(path: str) -> dict[str, str]:
    """The notes of a safetensors file; none, if it is another file."""
    try:
        return read_tensors(path)[1]
    except (FileError, ConfigError):
        return {}


def write_weights(path: str | os.PathLike, framework: str, shape: Shape,
                  parameters: dict[str, np.ndarray], run: str = "",
                  replaces: Replaces | None = None, inputs: Iterable = ()):
    """A safetensors file with the names and layouts of a framework.

    What weights do not tell is in its metadata. run: the uuid of the run they are of;
    replaces: what may be there already, by default any weight file of hpcgcn.
    """
    from safetensors.numpy import save
    check_ending(path)
    metadata = {"format": _FORMAT, "framework": framework, "model": shape.model,
                "layers": str(shape.layers), "linear_layers": str(shape.linear_layers),
                "alpha": repr(shape.alpha), "lambda": repr(shape.lambda_), "self_loops": "yes"
                if shape.self_loops else "no", "dropout": repr(shape.dropout), "run": run}
    data = save(to_theirs(framework, shape, parameters), metadata)
    replaces = replaces or weights_replace(run, overwrite=True)
    with atomic_file(path, replaces, inputs) as temporary, open(temporary, "wb") as file:
        file.write(data)


def run_parameters(run: str, which: str = "best") -> tuple[Config, Shape, dict[str, np.ndarray]]:
    """Settings, shape and parameters by name of a run folder or a checkpoint folder."""
    from hpcgcn.train.inference import find_checkpoint
    config, folder = find_checkpoint(run)
    snapshot = checkpoint.load(folder)
    values = (snapshot.best.parameters if which == "best"
              and snapshot.best.parameters is not None else snapshot.parameters)
    parameters = {name: values[at:at + int(np.prod(shape))].reshape(shape)
                  for name, (at, shape) in checkpoint.load_layout(folder).items()}
    return config, checkpoint.load_shape(folder, config), parameters


def make_run(path: str, config: Config, weights: Found):
    """A run folder with these weights, for evaluate, predict and resumed training."""
    values = flat_values(weights)
    snapshot = checkpoint.Snapshot(0, values, np.zeros_like(values), np.zeros_like(values), 0,
                                   checkpoint.Best(), [], 1)
    with atomic_folder(path) as folder:
        run = RunFolder(folder)
        run.set_up(config, "", dataclasses.asdict(weights.shape))
        run.list_checkpoint(0, 1)
        inner = os.path.join(run.checkpoints, "epoch-000000")
        os.makedirs(inner)
        checkpoint.write_model(os.path.join(inner, "model.h5"), snapshot,
                               parameter_specs(weights.shape), config, " ".join(sys.argv))


def open_weights(path: str, graph: str, given: dict | None = None, overrides: dict | None = None,
                 comm=None):
    """The model of a weight file over a graph or partition file, exact on any number of ranks.

    Collective over `comm` (default: all ranks).
    """
    from hpcgcn.mpi.world import collective_errors, on_root, world
    from hpcgcn.train.inference import TrainedModel, load_for_inference
    comm = world() if comm is None else comm
    weights, config = on_root(comm, _found_and_config, path, given or {})
    with collective_errors(comm):
        config = config.replace(**(overrides or {}))
    part = load_for_inference(graph, config, comm)
    with collective_errors(comm):
        if weights.weighs_out_degrees and part.directed:
            raise ConfigError(f"{path} is of DGL's GraphConv, which on a directed graph such as "
                              f"{graph} weighs an edge by the out-degree of its source; here it "
                              "is the in-degree; import the graph with --undirected, or use "
                              "PyG's GCNConv")
        return TrainedModel(config, part, flat_values(weights),
                            (weights.shape.n_features, weights.shape.n_classes), path, comm=comm)


def _found_and_config(path: str, given: dict) -> tuple[Found, Config]:
    weights, metadata = read_weights(path)
    return weights, imported_config(path, weights, metadata, given)
