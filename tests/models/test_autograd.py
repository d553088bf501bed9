"""Logits, loss, every gradient and ten steps of Adam against the same models in PyTorch."""

import math

import numpy as np
import pytest
from cases import CASES
from small_graphs import make_trainer, small_graph

torch = pytest.importorskip("torch")
from torch_models import Oracle  # noqa: E402 - needs torch


def setup(graph_changes, settings):
    graph = small_graph(**graph_changes)
    trainer = make_trainer(graph, **settings)
    return trainer, Oracle(graph, trainer.config, trainer.parameters.host_values())


def compare(trainer, oracle, epoch: int, tolerance: float):
    """One pass of both; logits of training nodes, loss and each gradient must agree relative to its
    largest entry."""
    trainer.engine.train_pass(epoch + 1)                 # what it leaves behind must not matter
    loss = trainer.engine.train_pass(epoch) / trainer.engine.labels.n_train
    logits = oracle.logits(epoch)
    expected = oracle.loss(logits)
    expected.backward()
    local = trainer.engine.local
    found = trainer.backend.to_host(trainer.engine.model.logits.value)
    scale, wanted = logits.abs().max().item(), logits.detach().numpy()[local.order]
    trains = local.needed.distance == 0
    np.testing.assert_allclose(found[trains], wanted[trains], atol=tolerance * scale, rtol=0)
    assert loss == pytest.approx(expected.item(), rel=tolerance)
    for name, parameter in trainer.parameters.by_name.items():
        gradient = oracle.p[name].grad                   # running statistics have none
        wanted = np.zeros(parameter.spec.shape) if gradient is None else gradient.numpy()
        allowed = tolerance * max(np.abs(wanted).max(), 1e-3)
        np.testing.assert_allclose(parameter.grad, wanted, atol=allowed, rtol=0, err_msg=name)


@pytest.mark.parametrize("name", CASES)
def test_one_pass_is_what_autograd_says(name):
    trainer, oracle = setup(*CASES[name])
    assert set(oracle.p) == set(trainer.parameters.by_name)
    compare(trainer, oracle, epoch=5, tolerance=1e-11)


@pytest.mark.parametrize("name", CASES)
def test_native_kernels_agree_with_autograd(name):
    from hpcgcn.backend.native import available
    usable, reason = available()
    if not usable:
        pytest.skip(reason)
    graph_changes, settings = CASES[name]
    compare(*setup(graph_changes, settings | {"backend": "native", "dtype": "float32"}), epoch=1,
            tolerance=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_evaluation_has_no_dropout(name):
    trainer, oracle = setup(*CASES[name])
    trainer.engine.train_pass(0)
    oracle.config = oracle.config.replace(dropout=0.0, attention_dropout=0.0)
    oracle.trains = False
    wanted = oracle.logits(0).detach().numpy()[trainer.engine.local.order]
    np.testing.assert_allclose(trainer.engine.evaluate(), wanted, atol=1e-11 * np.abs(wanted).max(),
                               rtol=0)


def expected_rate(config, epoch: int) -> float:
    """Warm-up, then constant or half a cosine over what is left."""
    if epoch < config.warmup:
        return config.lr * (epoch + 1) / config.warmup
    if config.lr_schedule == "constant":
        return config.lr
    return config.lr / 2 * (
        1 + math.cos(math.pi * (epoch - config.warmup) / (config.epochs - config.warmup)))


def weight_decay_of(config, name: str) -> float:
    if name.startswith("norm"):
        return 0.0
    if name.startswith("conv") and config.weight_decay_conv >= 0:
        return config.weight_decay_conv
    return config.weight_decay


OPTIMISERS = {
    "plain": {}, "decay": {"weight_decay": 0.02},
    "two-decays": {"weight_decay": 0.02, "weight_decay_conv": 0.3},
    "no-conv-decay": {"weight_decay": 0.02, "weight_decay_conv": 0.0}, "clip": {"clip": 0.05},
    "cosine": {"lr_schedule": "cosine"}, "warm-up": {"warmup": 4, "lr_schedule": "cosine"},
}


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("name",
                         ["gcn-precomputed-norm", "sage-transform-first-norm", "gcnii", "resgcn",
                          "sage-batch-norm", "resgcn-batch-norm"])
def test_ten_steps_of_adam(name, optimiser):
    graph_changes, settings = CASES[name]
    trainer, oracle = setup(graph_changes,
                            settings | {"lr": 0.05, "epochs": 10} | OPTIMISERS[optimiser])
    config = trainer.config
    adam = torch.optim.Adam([{"params": [p], "weight_decay": weight_decay_of(config, n)}
                             for n, p in oracle.p.items()])
    for epoch in range(10):
        found, _, _ = trainer.run_epoch()
        adam.zero_grad()
        expected = oracle.loss(oracle.logits(epoch))
        expected.backward()
        for bias in oracle.biases_without_effect():      # of roundings, which Adam enlarges
            assert bias.grad.abs().max() < 1e-15
            bias.grad.zero_()
        if config.clip:
            gradients = [p.grad for p in oracle.p.values() if p.grad is not None]
            norm = math.sqrt(sum(float((gradient ** 2).sum()) for gradient in gradients))
            assert norm > config.clip, "the limit must matter here"
            for gradient in gradients:
                gradient *= config.clip / norm
        for group in adam.param_groups:
            group["lr"] = expected_rate(config, epoch)
        adam.step()
        assert found == pytest.approx(expected.item(), rel=1e-7), f"epoch {epoch}"
    for parameter_name, parameter in trainer.parameters.by_name.items():
        np.testing.assert_allclose(parameter.value, oracle.p[parameter_name].detach().numpy(),
                                   atol=1e-7, rtol=1e-6)
