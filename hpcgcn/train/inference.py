"""A trained model on a whole graph: exact, distributed scores and predictions."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np

from hpcgcn.config import Config, make_config
from hpcgcn.config.metric_names import ALL, chosen_metric, metrics_for
from hpcgcn.errors import CheckpointError, ConfigError
from hpcgcn.files.marker import run_uuid
from hpcgcn.graph.data import Part
from hpcgcn.mpi import large
from hpcgcn.mpi.runtime import Runtime
from hpcgcn.mpi.world import collective_errors, on_root, world
from hpcgcn.nn.models import parameter_specs
from hpcgcn.nn.parameters import Parameters
from hpcgcn.parallel import make_strategy, strategy_name, strategy_named
from hpcgcn.train import checkpoint
from hpcgcn.train.divergence import quiet_overflow
from hpcgcn.train.predictions import predictions_replace, write_predictions
from hpcgcn.train.run import open_backend
from hpcgcn.train.scores import no_answer, rows_without_answer, scores
from hpcgcn.train.trainer import model_shape, precomputes

WHICH = ("best", "last")
WHAT = ("classes", "logits", "embeddings")


def find_checkpoint(path: str) -> tuple[Config, str]:
    """Settings and checkpoint folder of a run folder or of a checkpoint folder."""
    if os.path.isdir(os.path.join(path, "checkpoints")):
        newest = checkpoint.newest(os.path.join(path, "checkpoints"))
        if newest is None:
            raise CheckpointError(f"{path} has no checkpoint that can be read")
        return make_config(toml_path=os.path.join(path, "config.toml")), newest
    if os.path.exists(os.path.join(path, "model.h5")):
        return checkpoint.load_config(path), path
    raise CheckpointError(f"{path} is neither the folder of a run (runs/NAME) nor a checkpoint "
                          "(runs/NAME/checkpoints/epoch-...)")


class TrainedModel:
    """A checkpoint's parameters over a graph, on all ranks of a communicator."""

    def __init__(self, config: Config, part: Part, values: np.ndarray, widths: tuple[int, int],
                 where: str, multilabel: bool = False, comm=None):
        """ends: features and classes of the model; multilabel: does it tell classes one by one,
        whatever the graph's labels?"""
        comm = world() if comm is None else comm
        self.config, self.part = config, fitting_part(part, widths, where)
        self.where, self.run = where, run_uuid(where)
        self.multilabel = multilabel or part.multilabel
        self.runtime = Runtime(comm)
        self.comm = self.runtime.comm
        # Exactly, and among ranks that own nodes, however it was trained.
        name = "single" if comm.size == 1 else "partition"
        strategy = strategy_named(name)(self.runtime,
                                        config.replace(precision="fp32", blocking=False))
        self.backend = open_backend(strategy)
        shape = model_shape(config, self.part)
        parameters = Parameters(self.backend, parameter_specs(shape), config.seed)
        if len(values) != parameters.size:
            raise CheckpointError(f"{where} holds {len(values)} parameters, but its settings "
                                  f"mean {parameters.size}: it is damaged")
        self.backend.copy(np.ascontiguousarray(values, self.backend.dtype), parameters.value)
        self.parameters = parameters
        self.engine = strategy.make_engine(self.backend, self.part, shape, parameters,
                                           precompute=precomputes(config, self.part))

    @quiet_overflow
    def logits(self, embeddings: bool = False) -> np.ndarray:
        """Of the local rows, in the engine's order; embeddings: are those read, too?"""
        return self.backend.to_host(self.engine.evaluate(embeddings))

    def scores(self, metric: str | None = None) -> dict[str, float]:
        """The three splits by the run's metric, or by another. Collective."""
        labels = self.engine.labels
        return scores(self.comm, self.logits(), labels.host, labels.split,
                      metric or self.config.metric)

    def metrics(self, name: str = "auto") -> tuple[str, ...]:
        """Names of the metrics that are meant: the run's, the named one, or "all" that fit."""
        multilabel, n_classes = self.part.multilabel, self.part.n_classes
        if name == ALL:
            return metrics_for(multilabel, n_classes)
        return (chosen_metric(self.config.metric if name == "auto" else name, multilabel,
                              n_classes),)

    def rows(self, what: str, layer: int) -> np.ndarray:
        """Classes, logits or a layer's embeddings of the local rows."""
        logits = self.logits(what == "embeddings")
        if what == "embeddings":
            hidden = self.engine.model.embeddings
            if not 1 <= layer <= len(hidden):
                raise ConfigError(f"--layer {layer}: this model has embeddings of layers "
                                  f"1..{len(hidden)}")
            return self.backend.to_host(hidden[layer - 1].value)
        without = rows_without_answer(logits)
        if without:
            raise no_answer(without)
        if what == "logits":
            return logits
        return (logits
                > 0).astype(np.uint8) if self.multilabel else logits.argmax(axis=1).astype(np.int32)

    def close(self):
        """Free what MPI holds. Collective."""
        self.engine.close()
        self.runtime.close()


def fitting_part(part: Part, widths: tuple[int, int], where: str) -> Part:
    """The part with the model's classes: a graph to predict may have no labels, or none of the last
    classes."""
    n_features, n_classes = widths
    if (part.n_features != n_features or part.n_classes > n_classes
        or (part.multilabel and part.n_classes != n_classes)):
        raise ConfigError(f"{where} is for {n_features} features and {n_classes} classes, but "
                          f"the graph has {part.n_features} and {part.n_classes}: it was trained "
                          "on another graph")
    return replace(part, n_classes=n_classes)


def open_model(run: str | os.PathLike, graph: str | os.PathLike, which: str = "best",
               overrides: dict | None = None, comm=None) -> TrainedModel:
    """The model of a run over a graph or partition file.

    Collective over `comm` (default: all ranks).

    which: parameters of the "best" validation, or the "last". overrides: settings to change.
    """
    comm = world() if comm is None else comm
    config, folder = on_root(comm, find_checkpoint, run)
    with collective_errors(comm):
        config = config.replace(**(overrides or {}))
        config = inference_config(config, comm)
    part = load_for_inference(graph, config, comm)
    with collective_errors(comm):
        snapshot = checkpoint.load(folder)
        shape = checkpoint.load_shape(folder, config)
        values = (snapshot.best.parameters if which == "best"
                  and snapshot.best.parameters is not None else snapshot.parameters)
    with collective_errors(comm):
        return TrainedModel(config, part, values, (shape.n_features, shape.n_classes), folder,
                            snapshot.multilabel, comm)


def inference_config(config: Config, comm) -> Config:
    """The settings with which a model is evaluated; some strategies are for training only."""
    return strategy_named(strategy_name(config, comm.size)).inference_config(config)


def load_for_inference(graph: str | os.PathLike, config: Config, comm) -> Part:
    """This rank's part of a graph to evaluate. Collective."""
    with Runtime(comm) as runtime:
        with collective_errors(comm):
            strategy = make_strategy(runtime, config)
        return strategy.load(graph)


def predict(model: TrainedModel, path: str | os.PathLike, what: str = "classes", layer: int = 1,
            command: str = "", graph: str | os.PathLike = "", overwrite: bool = False):
    """Write predictions to HDF5 or CSV in global node order. Collective over the model's ranks.

    what: "classes", "logits" or "embeddings" (of `layer`). graph: a file with the user's own ids.
    """
    comm = model.comm
    with collective_errors(comm):
        local = model.rows(what, layer)
    ids, n_nodes = model.engine.local.ids, model.part.n_nodes
    with collective_errors(comm):
        # The ids are a permutation, so rows are put in order in memory and written once.
        n_rows = n_nodes if comm.rank == 0 else 0
        whole = np.empty((n_rows, *local.shape[1:]), local.dtype)
        large.gather_rows(comm, (ids, local), whole.__setitem__)
        if comm.rank == 0:
            target, graph_file = os.fspath(path), os.fspath(graph)
            replaces = predictions_replace(target, graph_file, model.run, overwrite)
            write_predictions(target, what, whole, layer, command, graph_file, model.run, replaces,
                              [name for name in (graph_file, model.where) if name])
