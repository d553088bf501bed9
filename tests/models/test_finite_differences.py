"""Every backward against finite differences of the loss, in float64, dropout on: draws depend on a
counter, not on calls."""

import numpy as np
import pytest
from cases import CASES
from small_graphs import make_trainer, small_graph

STEP, TOLERANCE = 1e-6, 1e-6
ENTRIES = 5              # of each parameter, besides one random direction over all of them


def loss_at(trainer, epoch: int) -> float:
    return trainer.engine.train_pass(epoch) / trainer.engine.labels.n_train


def slope(trainer, direction: np.ndarray, epoch: int) -> float:
    """The derivative of the loss along a direction."""
    value = trainer.parameters.value
    kept = value.copy()
    losses = []
    for sign in (1.0, -1.0):
        value[:] = kept + sign * STEP * direction
        losses.append(loss_at(trainer, epoch))
    value[:] = kept
    return (losses[0] - losses[1]) / (2 * STEP)


def directions(trainer, rng):
    """A few entries of every parameter, then all of them at once."""
    at = 0
    for spec in trainer.parameters.specs:
        for entry in rng.choice(spec.size, min(ENTRIES, spec.size), replace=False):
            one = np.zeros(trainer.parameters.size)
            one[at + entry] = 1.0
            yield f"{spec.name}[{entry}]", one
        at += spec.size
    everywhere = rng.standard_normal(trainer.parameters.size)
    yield "a random direction", everywhere / np.linalg.norm(everywhere)


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_the_slopes_of_the_loss(name):
    graph_changes, settings = CASES[name]
    trainer, rng, epoch = make_trainer(small_graph(**graph_changes),
                                       **settings), np.random.default_rng(1), 2
    # Away from zero biases: many units then have kinks and dead inputs at the same place.
    trainer.parameters.value += 0.1 * rng.standard_normal(trainer.parameters.size)
    loss_at(trainer, epoch)
    gradient = trainer.parameters.grad.copy()
    assert np.linalg.norm(gradient) > 1e-3
    for where, direction in directions(trainer, rng):
        assert abs(slope(trainer, direction, epoch) - gradient @ direction) < TOLERANCE, where
