"""A loss that stays at chance is noticed; one that falls, or that only begins there, is not."""

from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

from hpcgcn.config import Config
from hpcgcn.parallel.strategy import Strategy
from hpcgcn.train.plateau import PATIENCE, ChanceWatch, chance_loss, features_are_uneven, remedy


def labels(host, split=None, class_weights=None):
    return SimpleNamespace(host=np.array(host), class_weights=class_weights,
                           split=np.ones(len(host), np.uint8) if split is None else np.array(split))


def test_chance_is_the_entropy_of_the_training_labels():
    assert chance_loss(MPI.COMM_SELF, labels([0, 1, 2, 3]), 4) == pytest.approx(np.log(4))
    assert chance_loss(MPI.COMM_SELF, labels([0, 0, 0, 1, -1, 2], [1, 1, 1, 1, 1, 2]),
                       3) == pytest.approx(-(0.75 * np.log(0.75) + 0.25 * np.log(0.25)))
    assert chance_loss(MPI.COMM_SELF, labels([1, 1, 1]), 3) == 0
    assert chance_loss(MPI.COMM_SELF, labels([[0, 1, 1], [1, 1, 0]]),
                       3) == pytest.approx(2 * np.log(2))


def test_classes_count_in_chance_by_their_weights():
    weighted = labels([0, 0, 0, 1], class_weights=np.array([1.0, 3.0]))
    assert chance_loss(MPI.COMM_SELF, weighted, 2) == pytest.approx(np.log(2))


LOG_5 = np.log(5)


def warnings(losses, chance=LOG_5):
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


def test_a_loss_that_falls_towards_chance_from_above_is_no_alarm():
    losses = np.log(2) * (1 + 1.5
                          * np.exp(-np.arange(80) / 25)) - 0.005 * np.maximum(np.arange(80) - 40, 0)
    assert losses[PATIENCE - 1] > np.log(2) and losses.min() < 0.98 * np.log(2)
    assert warnings(losses, np.log(2)) == ([], False)


def test_a_loss_that_stays_above_chance_is_told_with_its_present_value():
    watch = ChanceWatch(np.log(2))
    found = [watch.observe(loss) for loss in np.linspace(0.9, 0.893, PATIENCE)]
    assert ("it is 0.893, and guessing by the labels' frequencies has 0.693" in found[-1]
            and not any(found[:-1]))


def features(values):
    return SimpleNamespace(features=np.array(values, np.float32), n_features=np.shape(values)[1])


def test_features_of_very_different_scale_are_told():
    rng = np.random.default_rng(0)
    even = rng.standard_normal((100, 5))
    assert not features_are_uneven(MPI.COMM_SELF, features(even))
    assert not features_are_uneven(MPI.COMM_SELF, features(np.zeros((100, 5))))
    assert features_are_uneven(MPI.COMM_SELF, features(even * [1, 1, 1, 1, 1000]))
    assert "--normalise-features standard" in remedy(Strategy(None, Config()), True)
    assert "--normalise-features" not in remedy(Strategy(None, Config()), False)
