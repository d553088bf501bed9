"""What the file model.h5 of a checkpoint must hold to be gone on from, beyond its structure and
checksums."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator

import h5py
import numpy as np

from hpcgcn.config import Config, make_config
from hpcgcn.errors import HpcgcnError
from hpcgcn.files.datasets import read_array
from hpcgcn.nn.models import Shape, parameter_specs
from hpcgcn.nn.parameters import LARGEST_PARAMETER, are_usable, moments_agree

Layout = dict[str, tuple[int, tuple[int, ...]]]


def model_problems(file: h5py.File, facts: dict) -> Iterator[str]:
    """Values that training cannot go on from."""
    for name in ("parameters", "best_parameters"):
        if name in file and not are_usable(file[name][...]):
            yield (f"/{name} holds NaN or numbers above {LARGEST_PARAMETER:g}: training diverged; "
                   "go on from an older checkpoint")
    for name in ("m", "v"):
        if not np.isfinite(file[name][...]).all():
            yield (f"/{name} holds NaN or infinity: training diverged; go on from an older "
                   "checkpoint")
    if (file["v"][...] < 0).any():
        yield "/v holds negative numbers, expected second moments"
    elif (file["v"][...].any() or not _trained_by_sgd(facts)) and not moments_agree(
            file["m"][...], file["v"][...]):
        yield "/m and /v are not the two moments of the same gradients"
    rates = file["rate_state"][...]
    if len(rates) % 3 or np.isnan(rates).any() or not np.isfinite(rates[2::3]).all():
        yield ("/rate_state must be a rate, the best loss and the number of epochs since, of each "
               "adaptive schedule")
    best = facts["best_epoch"]       # epochs done then; 0: none was evaluated
    if best > facts["epoch"] or (best > 0) != ("best_parameters" in file):
        yield (f"best_epoch is {facts['best_epoch']} of {facts['epoch']} epochs, which does not "
               "go with its arrays")
    try:
        read_layout(file)
    except ValueError as error:
        yield str(error)


def _trained_by_sgd(facts: dict) -> bool:
    """Do the settings say so? It has a momentum and no second moments."""
    try:
        return bool(stored_config(facts["settings"]).optimiser == "sgd")
    except (KeyError, ValueError):
        return False


def settings_problems(file: h5py.File, facts: dict) -> Iterator[str]:
    """Parameters that are not those of the model in the settings."""
    try:
        fitting_shape(stored_config(facts["settings"]), read_layout(file))
    except ValueError as error:
        yield str(error)


def read_layout(file: h5py.File) -> Layout:
    """{parameter: (where it begins in the flat array, its shape)} in order; ValueError if they do
    not fill the array."""
    entries = sorted((tuple(read_array(entry).tolist()) or (-1,), name)
                     for name, entry in file["layout"].items())
    n_parameters, reached = len(file["parameters"]), 0
    for (at, *shape), name in entries:
        if at != reached or not shape or min(shape) < 1 or max(shape) > n_parameters:
            raise ValueError(f"/layout/{name} must say where the parameter begins (now {at}, "
                             f"expected {reached}) and its shape")
        reached += math.prod(shape)
    if reached != n_parameters or not entries:
        raise ValueError(f"/layout is of {reached} parameters, the arrays hold {n_parameters}")
    return {name: (at, tuple(shape)) for (at, *shape), name in entries}


def stored_config(settings: dict) -> Config:
    """The settings of the run that wrote a checkpoint; ValueError if they are no settings."""
    text = settings.get("config")
    if not isinstance(text, str):
        raise ValueError("the attribute settings has no text `config`")
    try:
        return make_config(tomllib.loads(text), where="its settings")
    except (HpcgcnError, ValueError, RecursionError) as error:
        raise ValueError(f"the settings in it cannot be used: {str(error)[:200]}") from None


def fitting_shape(config: Config, layout: Layout) -> Shape:
    """The shape of a stored model, with the widths that its graph gave it; ValueError if the
    parameters are not its."""
    first = "input.weight" if "input.weight" in layout else "conv1.weight"
    outputs = ("output.weight", f"conv{config.layers}.weight2", f"conv{config.layers}.weight")
    last = next((name for name in outputs if name in layout), outputs[-1])
    if not all(len(layout.get(name, (0, ()))[1]) == 2 for name in (first, last)):
        raise ValueError(f"/layout has no matrices {first} and {last}")
    # With attention the last weight has the classes of all heads side by side.
    classes = layout.get(f"conv{config.layers}.att_src", layout[last])[1]
    shape = Shape.of(config, layout[first][1][0], classes[-1])
    try:
        expected = {spec.name: tuple(spec.shape) for spec in parameter_specs(shape)}
    except HpcgcnError as error:
        raise ValueError(str(error)) from None
    if expected != {name: held for name, (_, held) in layout.items()}:
        raise ValueError(f"/layout is not that of a {config.model} with these settings")
    return shape
