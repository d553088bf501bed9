"""A loss that stays at chance is noticed; one that falls, or that only begins there, is not."""

from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

from hpcgcn.train.plateau import PATIENCE, ChanceWatch, chance_loss


def labels(host, split=None):
    return SimpleNamespace(host=np.array(host), split=np.ones(len(host), np.uint8) if split is None else np.array(split))


def test_chance_is_the_entropy_of_the_training_labels():
    assert chance_loss(MPI.COMM_SELF, labels([0, 1, 2, 3]), 4) == pytest.approx(np.log(4))
    assert chance_loss(MPI.COMM_SELF, labels([0, 0, 0, 1, -1, 2], [1, 1, 1, 1, 1, 2]), 3) == pytest.approx(
        -(0.75 * np.log(0.75) + 0.25 * np.log(0.25)))
    assert chance_loss(MPI.COMM_SELF, labels([1, 1, 1]), 3) == 0
    assert chance_loss(MPI.COMM_SELF, labels([[0, 1, 1], [1, 1, 0]]), 3) == pytest.approx(2 * np.log(2))


def warnings(losses, chance=np.log(5)):
    watch = ChanceWatch(chance)
    return [k for k, loss in enumerate(losses) if watch.observe(loss)], watch.stuck


def test_a_loss_at_chance_is_said_once():
    rng = np.random.default_rng(0)
    assert warnings(np.log(5) + 0.01 * rng.standard_normal(3 * PATIENCE)) == ([PATIENCE - 1], True)


def test_a_loss_that_falls_is_not():
    assert warnings(np.log(5) * np.linspace(1, 0.9, PATIENCE)) == ([], False)
    assert warnings([np.log(5)] * (PATIENCE - 1)) == ([], False)
    assert warnings([np.log(5)] * (PATIENCE - 5) + [1.0] * PATIENCE) == ([], False)


def test_a_run_that_got_away_is_not_stuck_in_the_end():
    assert warnings([np.log(5)] * PATIENCE + [1.2] * 3) == ([PATIENCE - 1], False)


def test_one_class_has_no_chance_to_beat():
    assert warnings([0.0] * 2 * PATIENCE, chance=0.0) == ([], False)
