"""Schedules: the rates they give, the texts they are read from, what a checkpoint keeps of them."""

import math

import pytest

from hpcgcn.errors import ConfigError
from hpcgcn.exchange.schedules import parse_schedule


def rates(text, n_epochs):
    schedule = parse_schedule(text, n_epochs)
    return [schedule.rate(epoch) for epoch in range(n_epochs)]


def test_constant():
    assert rates("8", 3) == [8.0] * 3


def test_varcos_linear_schedule():
    """c(k) = max(128 - 5 k (128 - 1) / (K - 2), 1), as VARCO's authors write it."""
    n_epochs = 100
    found = rates("linear:128:1:5", n_epochs)
    assert found == pytest.approx([max(128 - 5 * k * 127 / (n_epochs - 2), 1)
                                   for k in range(n_epochs)])
    assert found[0] == 128 and found[20] == 1 and found[19] > 1


def test_linear_rises_too():
    found = rates("linear:1:32", 33)
    assert found[0] == 1 and found[-1] == 32 and found == sorted(found)


@pytest.mark.parametrize("n_epochs", [1, 2, 3])
def test_linear_over_few_epochs(n_epochs):
    assert rates("linear:8:1:2", n_epochs)[0] == 8 and min(rates("linear:8:1:2", n_epochs)) >= 1


def test_cosine():
    found = rates("cosine:64:1", 101)
    assert found[0] == 64 and found[100] == pytest.approx(1) and found[50] == pytest.approx(32.5)
    assert found[25] == pytest.approx(1 + 63 * (1 + math.cos(math.pi / 4)) / 2)


def test_steps_need_not_be_in_order():
    assert rates("step:4@3,1@0,32@5", 7) == [1, 1, 1, 4, 4, 32, 32]


def test_plateau_moves_when_the_loss_stands_still():
    schedule, seen = parse_schedule("plateau:1:8:2", 20), []
    for loss in (1.0, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.5, 0.4):
        seen.append(schedule.rate(0))
        schedule.observe(loss)
    assert seen == [1, 1, 1, 1, 2, 2, 4, 4, 8, 8, 8]


def test_plateau_falls_too():
    schedule = parse_schedule("plateau:128:1:1", 20)
    for _ in range(20):
        schedule.observe(1.0)
    assert schedule.rate(20) == 1


def test_plateau_goes_on_from_its_state():
    first, second = (parse_schedule("plateau:1:32:3", 50) for _ in range(2))
    losses = [1.0, 0.9, 0.95, 0.95, 0.95, 0.95, 0.95, 0.95, 0.2, 0.2, 0.2, 0.2]
    for loss in losses[:5]:
        first.observe(loss)
    second.restore(first.state())
    for loss in losses[5:]:
        first.observe(loss)
        second.observe(loss)
        assert first.rate(0) == second.rate(0)
    assert first.rate(0) > 1 and parse_schedule("8", 3).state() == []


@pytest.mark.parametrize("text",
                         ["8", "linear:128:1:5", "linear:1:32", "cosine:64:1", "cosine:1:64",
                          "step:4@0,9@2,1@5", "plateau:2:16:1", "plateau:16:2:1"])
def test_extremes_hold(text):
    schedule = parse_schedule(text, 10)
    low, high = schedule.extremes()
    for epoch in range(10):
        assert low - 1e-12 <= schedule.rate(epoch) <= high + 1e-12
        schedule.observe(1.0)


def test_a_step_in_the_middle_is_among_the_extremes():
    assert parse_schedule("step:4@0,0.5@5,64@7,4@9", 20).extremes() == (0.5, 64)
    assert parse_schedule("plateau:4:0.25", 20).extremes() == (0.25, 4)


NONSENSE = ("", "fast", "-1", "0", "nan", "inf", "linear", "linear:1", "linear:1:2:3:4",
            "linear:a:b", "cosine:1", "cosine:1:2:3", "step:", "step:4", "step:4@1", "step:4@x",
            "step:4@0,,", "plateau:1", "square:1:2", "linear:0:5", "step:-1@0", "linear:1:inf")


@pytest.mark.parametrize("text", NONSENSE)
def test_nonsense_is_refused_with_the_forms(text):
    with pytest.raises(ConfigError, match="not a schedule; write one of"):
        parse_schedule(text, 10)
