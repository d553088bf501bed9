"""Losses and the optimiser, on every backend against NumPy in float64."""

import numpy as np
import pytest
from arrays import numbers
from backends import close

SIZES = [1.0, 30.0, 1000.0]  # of the logits: all classes matter, few do, e^x overflows


@pytest.mark.thread_orders
@pytest.mark.parametrize("size", SIZES)
def test_softmax_cross_entropy_and_its_gradient(backend, arena, width, size):
    check_softmax(backend, arena, width, size, in_place=False)


@pytest.mark.parametrize("size", SIZES)
def test_softmax_cross_entropy_in_place(backend, arena, size):
    check_softmax(backend, arena, 41, size, in_place=True)


@pytest.mark.parametrize("size", SIZES)
def test_softmax_cross_entropy_with_weights_of_classes(backend, arena, width, size):
    weights = np.float32(np.random.default_rng(3).uniform(0, 4, width))
    check_softmax(backend, arena, width, size, in_place=False, weights=weights)


def check_softmax(backend, arena, n_classes, size, in_place, weights=None):
    n = 75
    logits = np.float32(numbers(n, n_classes) * size).astype(np.float64)
    labels = np.random.default_rng(0).integers(-1, n_classes, n).astype(np.int32)
    source = arena.put(logits)
    out = source if in_place else arena.garbage((n, n_classes))
    there = () if weights is None else (arena.put(weights),)
    loss = float(backend.softmax_cross_entropy(source, arena.put(labels), 0.25, out, *there))
    of_row = np.ones(n) if weights is None else weights.astype(np.float64)[labels]
    shifted = logits - logits.max(axis=1, keepdims=True)
    softmax = np.exp(shifted) / np.exp(shifted).sum(axis=1, keepdims=True)
    used, onehot = labels >= 0, labels[:, None] == np.arange(n_classes)
    losses = (of_row * (np.log(np.exp(shifted).sum(axis=1)) - (shifted * onehot).sum(axis=1)))[used]
    epsilon = np.finfo(backend.dtype).eps
    assert abs(loss - losses.sum()) <= 8 * epsilon * (n_classes + np.abs(losses).sum()
                                                      + of_row.max() * np.abs(shifted).max())
    # e^x in fp32 errs by |x| roundings, and x reaches 100 before e^x no longer matters.
    close(arena.get(out), np.where(used[:, None], (softmax - onehot) * 0.25 * of_row[:, None], 0),
          of_row.max(), n_classes + min(100, 8 * size))


@pytest.mark.thread_orders
@pytest.mark.parametrize("size", SIZES)
def test_sigmoid_cross_entropy_and_its_gradient(backend, arena, width, size):
    n, n_classes = 75, width
    logits = np.float32(numbers(n, n_classes) * size).astype(np.float64)
    targets = (numbers(n, n_classes, seed=1) > 0).astype(np.uint8)
    row_used = (np.arange(n) % 3 > 0).astype(np.uint8)
    out = arena.garbage((n, n_classes))
    loss = backend.sigmoid_cross_entropy(arena.put(logits), arena.put(targets), arena.put(row_used),
                                         0.25, out)
    used = row_used[:, None] != 0
    losses = np.where(used, np.logaddexp(0, logits) - logits * targets, 0)
    epsilon = np.finfo(backend.dtype).eps
    bound = 16 * epsilon * (np.abs(losses) + np.abs(logits) + 1).sum()
    assert abs(float(loss) - losses.sum()) <= bound
    sigmoid = np.exp(-np.logaddexp(0, -logits))
    close(arena.get(out), np.where(used, (sigmoid - targets) * 0.25, 0), 1.0, min(100, 8 * size))


def test_losses_of_no_rows_are_zero(backend, arena):
    none = arena.garbage((0, 5))
    assert backend.softmax_cross_entropy(none, arena.put(np.zeros(0, np.int32)), 1.0, none) == 0.0
    bytes_ = arena.put(np.zeros((0, 5), np.uint8))
    assert backend.sigmoid_cross_entropy(none, bytes_, arena.put(np.zeros(0, np.uint8)), 1.0,
                                         none) == 0.0


@pytest.mark.parametrize("n, weight_decay",
                         [(0, 0.01), (1, 0.01), (17, 0.01), (10_001, 0.0), (10_001, 0.01)])
def test_adam_takes_three_steps(backend, arena, n, weight_decay):
    param, m, v = numbers(n), np.zeros(n), np.zeros(n)
    arrays = [arena.put(values) for values in (param, m, v)]
    lr, beta1, beta2, epsilon = 0.01, 0.9, 0.999, 1e-8
    for step in (1, 2, 3):
        gradient = numbers(n, seed=step)
        corrections = 1 - beta1 ** step, 1 - beta2 ** step
        backend.adam(arrays[0], arena.put(gradient), *arrays[1:], lr, beta1, beta2, epsilon,
                     weight_decay, *corrections)
        g = gradient + weight_decay * param
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        param = param - lr * (m / corrections[0]) / (np.sqrt(v / corrections[1]) + epsilon)
    # 1 - beta2 = 0.001 would keep only some 14 of fp32's 24 bits if it were taken from the rounded
    # beta2.
    close(arena.get(arrays[0]), param, np.abs(param) + 1, 8)
    close(arena.get(arrays[1]), m, np.abs(m) + 1, 8)
    close(arena.get(arrays[2]), v, np.abs(v) + 0.01, 8)
