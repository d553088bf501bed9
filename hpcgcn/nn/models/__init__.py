"""The models, one file each; a file in this folder is found without being named anywhere."""

from __future__ import annotations

import importlib
import pkgutil

from hpcgcn.nn.builder import Builder, Inputs
from hpcgcn.nn.fields import Array
from hpcgcn.nn.model import Hop, Model
from hpcgcn.nn.models.base import (
    MODELS,
    Architecture,
    Shape,
    models_where,
    models_with,
    parameter_specs,
    register,
)
from hpcgcn.nn.parameters import Parameters
from hpcgcn.nn.plan import Plan, whole_line

DEFAULT = "sage"

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")


def build_model(backend, shape: Shape, parameters, n_rows: int, inputs: Inputs) -> Model:
    """The model over so many rows; a plan (nn/plan.py) gives its arrays memory."""
    build = Builder(backend, shape, parameters, n_rows, inputs)
    return build.finish(shape.architecture.build(build))


def plan_model(shape: Shape, n_rows: int, *, sparse: bool = False,
               precomputed: bool = False) -> Plan:
    """The plan of a model over so many rows, before there is a graph or a backend.

    sparse: are the features sparse? precomputed: is the first aggregation done once, at start?
    """
    features = Array.elsewhere("input", (n_rows, shape.n_features))
    inputs = Inputs(None, sparse=features) if sparse and not precomputed else Inputs(
        None, dense=features, aggregated=features if precomputed else None)
    parameters = Parameters(None, parameter_specs(shape), 0, allocate=False)
    model = build_model(None, shape, parameters, n_rows, inputs)
    return Plan(whole_line(model, embeddings=False))


def precomputes_input(settings, sparse: bool) -> bool:
    """Is the model's first aggregation done once, at start? By default for dense features."""
    if not MODELS[settings.model].precomputes_input:
        return False
    return {"yes": True, "no": False}.get(settings.precompute, not sparse)


__all__ = ["Architecture", "Builder", "DEFAULT", "Hop", "Inputs", "MODELS", "Model", "Shape",
           "build_model", "models_where", "models_with", "parameter_specs", "plan_model",
           "precomputes_input", "register"]
