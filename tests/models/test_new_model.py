"""A model that is not in the project, in one class: it trains and is divided like all others."""

import json
import os
import sys

import h5py
import numpy as np
import pytest
from launch import launch
from small_graphs import dense_adjacency, dense_features, make_trainer, small_graph
from test_finite_differences import TOLERANCE, directions, loss_at, slope

from hpcgcn import write_graph
from hpcgcn.config import make_config
from hpcgcn.errors import ConfigError
from hpcgcn.nn.models import MODELS, Architecture
from hpcgcn.nn.models.base import dense_specs
from hpcgcn.nn.steps import InitialResidual

SETTINGS = {"model": "propagation", "layers": 5, "hidden": 9, "dropout": 0.5, "alpha": 0.2,
            "seed": 3, "dtype": "float64", "backend": "reference"}


class Propagation(Architecture):
    """Predict, then propagate (Gasteiger et al.): h = MLP(x); z = (1 - alpha) A z + alpha h."""

    name, title = "propagation", "Propagation"
    options = ("alpha",)
    dense_ends = True

    def specs(self):
        shape = self.shape
        return [*dense_specs("input", shape.n_features, shape.hidden),
                *dense_specs("output", shape.hidden, shape.n_classes)]

    def build(self, build):
        hidden = build.field("hidden", self.shape.hidden)
        build.linear(build.input_source(), hidden, "input.weight")
        activated = build.in_place("activated", hidden)
        build.epilogue(hidden, activated, 2, bias="input.bias")
        build.embeddings.append(activated)
        predicted = propagated = build.output(activated)
        for _ in range(self.shape.layers):
            aggregated = build.field("aggregated", self.shape.n_classes)
            build.hop(propagated, aggregated)
            propagated = build.in_place("propagated", aggregated)
            build.add(InitialResidual(build.backend, aggregated, predicted, propagated,
                                      self.shape.alpha))
        return propagated


@pytest.fixture
def propagation(monkeypatch):
    monkeypatch.setitem(MODELS, "propagation", Propagation)


def test_a_model_is_known_by_its_class_alone(propagation):
    assert make_config({"model": "propagation"}).model == "propagation"
    with pytest.raises(ConfigError, match="propagation does not take it"):
        make_trainer(small_graph(), **SETTINGS, linear_layers=1)


def test_without_its_class_it_is_refused():
    with pytest.raises(ConfigError, match="choose one of"):
        make_config({"model": "propagation"})


@pytest.mark.parametrize("graph_changes", [{}, {"sparse": True}, {"directed": True},
                                           {"multilabel": True}])
def test_its_gradients_are_the_slopes_of_the_loss(propagation, graph_changes):
    trainer, rng = make_trainer(small_graph(**graph_changes), **SETTINGS), np.random.default_rng(1)
    trainer.parameters.value += 0.1 * rng.standard_normal(trainer.parameters.size)
    loss_at(trainer, 2)
    gradient = trainer.parameters.grad.copy()
    assert np.linalg.norm(gradient) > 1e-3
    for where, direction in directions(trainer, rng):
        assert abs(slope(trainer, direction, 2) - gradient @ direction) < TOLERANCE, where


def test_its_logits_are_those_of_the_formula(propagation):
    graph = small_graph()
    trainer = make_trainer(graph, **SETTINGS)
    p, matrix = trainer.parameters.host_values(), dense_adjacency(graph) + np.eye(graph.n_nodes)
    degree = matrix.sum(1)
    matrix = matrix / np.sqrt(degree)[:, None] / np.sqrt(degree)[None, :]
    hidden = np.maximum(dense_features(graph) @ p["input.weight"] + p["input.bias"], 0)
    predicted = hidden @ p["output.weight"] + p["output.bias"]
    logits = predicted
    for _ in range(SETTINGS["layers"]):
        logits = 0.8 * matrix @ logits + 0.2 * predicted
    engine = trainer.engine
    np.testing.assert_allclose(engine.evaluate(), logits[engine.local.order], atol=1e-12)


SCRIPT = """
import json, sys
sys.path[:0] = {paths!r}
from test_new_model import Propagation, SETTINGS
from hpcgcn.nn.models import register
from hpcgcn import open_model, predict, train_model
register(Propagation)
losses, name = [], sys.argv[2]
result = train_model("g.h5", SETTINGS | {{"epochs": 6, "eval_every": 2}} | json.loads(sys.argv[1]),
                     callback=lambda report: losses.append(report.loss))
predict(open_model(result.folder, "g.h5", "last"), f"{{name}}.h5", "logits")
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 0:
    json.dump(losses, open(f"{{name}}.json", "w"))
"""

# Exact ones, whose losses are those of one rank.
DIVISIONS = {"partition": (3, {"parallel": "partition"}), "features": (2, {"parallel": "features"}),
             "stages": (2, {"parallel": "layers", "history": "none"}),
             "one-stage": (1, {"parallel": "layers", "history": "none", "chunks": 5})}


@pytest.mark.mpi_skip
def test_it_is_divided_and_predicts_like_every_model(tmp_path):
    write_graph(tmp_path / "g.h5", small_graph(120, 400))
    here = os.path.dirname(__file__)
    (tmp_path / "script.py").write_text(SCRIPT.format(paths=[here, os.path.dirname(here)]))

    def outcome(name: str, ranks: int, settings: dict) -> tuple[list[float], np.ndarray]:
        """(losses, predicted logits)"""
        settings = settings | {"name": name, "output": str(tmp_path)}
        command = [sys.executable, "script.py", json.dumps(settings), name]
        launch(ranks, command, cwd=tmp_path, timeout=120).check()
        with h5py.File(tmp_path / f"{name}.h5") as file:
            return json.loads((tmp_path / f"{name}.json").read_text()), file["logits"][...]

    # More layers than parameters: a layer without weights is one all the same.
    losses, logits = outcome("single", 1, {})
    assert len(losses) == 6 and losses[-1] < losses[0]
    for name, (ranks, settings) in DIVISIONS.items():
        divided = outcome(name, ranks, settings)
        np.testing.assert_allclose(divided[0], losses, rtol=1e-9, err_msg=name)
        np.testing.assert_allclose(divided[1], logits, rtol=1e-7, atol=1e-9, err_msg=name)
