"""Scores are scikit-learn's, which metric goes with which labels, and early stopping."""

import json

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics
from small_graphs import make_trainer, small_graph

from hpcgcn import Config, open_model, train_model, write_graph
from hpcgcn.errors import ConfigError, GraphError
from hpcgcn.graph.data import SPLIT_NAMES, VAL
from hpcgcn.train.scores import scores

NAMES = {"accuracy": lambda true, said, _: sklearn_metrics.accuracy_score(true, said),
         "micro-f1": lambda true, said, _: sklearn_metrics.f1_score(true, said, average="micro"),
         "macro-f1": lambda true, said, _: sklearn_metrics.f1_score(true, said, average="macro",
                                                                    zero_division=0),
         "roc-auc": lambda true, _, score: sklearn_metrics.roc_auc_score(true, score),
         "average-precision": lambda true, _, score: sklearn_metrics.average_precision_score(
             true, score)}


def world():
    from mpi4py import MPI
    return MPI.COMM_SELF


def drawn(n_classes, multilabel, ties, seed=0, n=1000):
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((n, n_classes)).astype(np.float32)
    if ties:
        logits = np.round(logits)
    labels = (rng.random((n, n_classes)) < 0.3).astype(np.uint8) if multilabel else \
        np.where(rng.random(n) < 0.1, -1, rng.integers(0, n_classes, n)).astype(np.int32)
    return logits, labels, rng.integers(0, 4, n).astype(np.uint8)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("name, n_classes, multilabel", [
    *((name, 2, False) for name in NAMES), ("accuracy", 5, False), ("micro-f1", 5, False),
    ("macro-f1", 5, False), *((name, 4, True) for name in NAMES if name != "accuracy")])
def test_scores_are_those_of_scikit_learn(name, n_classes, multilabel, ties):
    logits, labels, split = drawn(n_classes, multilabel, ties)
    found = scores(world(), logits, labels, split, name)
    for code, part in SPLIT_NAMES.items():
        used = (split == code) & (labels >= 0 if labels.ndim == 1 else True)
        said = logits[used] > 0 if multilabel else logits[used].argmax(axis=1)
        wide = logits[used].astype(np.float64)
        score = wide if multilabel else wide[:, 1] - wide[:, 0]
        assert found[part] == pytest.approx(NAMES[name](labels[used], said, score), abs=1e-12)


@pytest.mark.parametrize("name, n_classes, multilabel, word", [
    ("roc-auc", 3, False, "2 classes"), ("accuracy", 3, True, "one class per node")])
def test_a_metric_for_other_labels_is_refused(name, n_classes, multilabel, word):
    with pytest.raises(ConfigError, match=word):
        scores(world(), *drawn(n_classes, multilabel, False), name)


def test_a_class_that_nobody_or_everybody_has_is_not_ranked():
    logits, labels, split = drawn(3, True, False)
    two = scores(world(), logits[:, :2], labels[:, :2], split, "roc-auc")
    labels[:, 2] = 1
    assert scores(world(), logits, labels, split, "roc-auc") == two
    labels[:] = 0
    assert np.isnan(scores(world(), logits, labels, split, "average-precision")["val"])


@pytest.mark.parametrize("settings, word", [
    ({"patience": 0}, "patience = 0"), ({"patience": 5, "eval_every": 0}, "eval_every"),
    ({"metric": "auc"}, "choose one of"), ({"momentum": 1.0}, "less than 1"),
    ({"optimiser": "adamx"}, "did you mean")])
def test_settings_without_a_meaning_are_refused(settings, word):
    with pytest.raises(ConfigError, match=word):
        Config(**settings)


def test_patience_without_validation_nodes_is_refused():
    graph = small_graph()
    graph.split[graph.split == VAL] = 0
    with pytest.raises(GraphError, match="validation nodes"):
        make_trainer(graph, patience=3)


def settings_of(folder, name, **changes):
    return Config(**{"output": str(folder), "name": name, "epochs": 60, "eval_every": 1,
                     "hidden": 8, "layers": 2, "lr": 0.1, "patience": 4, "quiet": True,
                     "threads": 1, "metric": "macro-f1", **changes})


def test_a_run_stops_when_it_is_no_better_and_keeps_the_best(tmp_path):
    graph = small_graph()
    write_graph(str(tmp_path / "g.h5"), graph)
    source = str(tmp_path / "g.h5")
    straight = train_model(source, settings_of(tmp_path, "a")).summary
    assert straight["out_of_patience"] and straight["metric"] == "macro-f1"
    assert straight["epochs"] == straight["best"]["epoch"] + 4 < 60
    with open_best(tmp_path / "a", source) as best:
        assert best.scores()["val"] == straight["best"]["val"]
    # Stopped in the middle and gone on with: the same end.
    train_model(source, settings_of(tmp_path, "b", epochs=straight["best"]["epoch"]))
    again = train_model(source, settings_of(tmp_path, "b", resume="must")).summary
    for key in ("epochs", "best", "final", "out_of_patience"):
        assert again[key] == straight[key]
    # Started again it is finished; with more patience it goes on.
    assert train_model(source, settings_of(tmp_path, "a", resume="must")).summary == straight
    longer = train_model(source, settings_of(tmp_path, "a", resume="must", patience=9)).summary
    assert longer["epochs"] > straight["epochs"]
    assert json.loads((tmp_path / "a" / "summary.json").read_text()) == longer


class open_best:
    def __init__(self, run, source):
        self.model = open_model(str(run), source)

    def __enter__(self):
        return self.model

    def __exit__(self, *_):
        self.model.close()
