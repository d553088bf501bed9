"""Weights of classes in the loss: PyTorch's numbers, the slopes of the loss, scikit-learn's
balance."""

import numpy as np
import pytest
from small_graphs import make_trainer, small_graph

from hpcgcn.cli import main
from hpcgcn.errors import ConfigError
from hpcgcn.graph.data import TRAIN
from hpcgcn.graph.store import write_graph
from hpcgcn.parallel.class_weights import weights_of_classes

WEIGHTS = [0.3, 2.5, 0.0, 7.0]
SETTINGS = {"model": "gcn", "layers": 2, "hidden": 5, "dropout": 0.3, "dtype": "float64"}


def loss_at(trainer, epoch: int) -> float:
    return trainer.engine.train_pass(epoch) / trainer.engine.labels.total_weight


@pytest.mark.parametrize("given", ["balanced", ",".join(map(str, WEIGHTS))])
@pytest.mark.parametrize("backend, dtype, tolerance",
                         [("reference", "float64", 1e-11), ("native", "float32", 1e-4)])
def test_loss_and_gradients_are_those_of_pytorch(given, backend, dtype, tolerance):
    torch = pytest.importorskip("torch")
    from torch_models import Oracle
    if backend == "native":
        from hpcgcn.backend.native import available
        usable, reason = available()
        if not usable:
            pytest.skip(reason)
    graph = small_graph()
    settings = SETTINGS | {"backend": backend, "dtype": dtype}
    trainer = make_trainer(graph, **settings, class_weights=given)
    oracle = Oracle(graph, trainer.config, trainer.parameters.host_values())
    used = graph.split[0] == TRAIN
    counts = np.bincount(graph.labels[used], minlength=4)
    weights = torch.from_numpy(weights_of_classes(given, counts))
    criterion = torch.nn.CrossEntropyLoss(weight=weights)
    expected = criterion(oracle.logits(3)[used], torch.from_numpy(graph.labels[used]).long())
    expected.backward()
    assert loss_at(trainer, 3) == pytest.approx(expected.item(), rel=tolerance)
    plain = make_trainer(graph, **settings)
    assert loss_at(plain, 3) != pytest.approx(expected.item(), rel=1e-3)
    for name, parameter in trainer.parameters.by_name.items():
        wanted = oracle.p[name].grad.numpy()
        np.testing.assert_allclose(parameter.grad, wanted, rtol=0,
                                   atol=tolerance * max(np.abs(wanted).max(), 1e-3), err_msg=name)


def test_gradients_are_the_slopes_of_the_weighted_loss():
    trainer, rng, step = make_trainer(small_graph(), **SETTINGS,
                                      class_weights="1,4,0.5,2"), np.random.default_rng(0), 1e-6
    value = trainer.parameters.value
    value += 0.1 * rng.standard_normal(len(value))
    loss_at(trainer, 2)
    gradient, kept = trainer.parameters.grad.copy(), value.copy()
    for _ in range(6):
        direction = rng.standard_normal(len(value))
        direction /= np.linalg.norm(direction)
        losses = []
        for sign in (1, -1):
            value[:] = kept + sign * step * direction
            losses.append(loss_at(trainer, 2))
        value[:] = kept
        assert (losses[0] - losses[1]) / (2 * step) == pytest.approx(gradient @ direction, rel=1e-5,
                                                                     abs=1e-8)


def test_balanced_is_what_scikit_learn_computes():
    compute = pytest.importorskip("sklearn.utils.class_weight").compute_class_weight
    labels = np.repeat([0, 1, 3], [50, 7, 1])
    weights = weights_of_classes("balanced", np.bincount(labels, minlength=5))
    np.testing.assert_allclose(weights[[0, 1, 3]], compute("balanced", classes=np.array([0, 1, 3]),
                                                           y=labels))


def test_ones_change_nothing():
    plain, ones = (make_trainer(small_graph(), **SETTINGS, class_weights=given)
                   for given in ("none", "1,1,1,1"))
    assert [plain.run_epoch()[0] for _ in range(4)] == [ones.run_epoch()[0] for _ in range(4)]


@pytest.mark.parametrize("given, words", [("2,1", "4 classes"), ("0,0,0,0", "0 for every class")])
def test_weights_that_do_not_fit_the_graph_are_refused(given, words):
    with pytest.raises(ConfigError, match=words):
        make_trainer(small_graph(), **SETTINGS, class_weights=given)


@pytest.mark.parametrize("given", ["much", "1,-2", "nan", "1,,2", "inf", "1e9"])
def test_what_is_no_list_of_weights_is_refused(tmp_path, capsys, given):
    write_graph(tmp_path / "g.h5", small_graph())
    assert main(["train", str(tmp_path / "g.h5"), f"--class-weights={given}", "--epochs", "1",
                 "--output", str(tmp_path / "runs")]) == 2
    message = capsys.readouterr().err
    assert "class_weights" in message and message.count("\n") == 1, message


def test_several_classes_per_node_have_no_weights():
    with pytest.raises(ConfigError, match="one class per node"):
        make_trainer(small_graph(multilabel=True), **SETTINGS, class_weights="balanced")
