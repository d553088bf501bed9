"""A staleness buffer alone: which rows an epoch uses, and what a checkpoint keeps."""

import numpy as np
import pytest

from hpcgcn.backend.reference import ReferenceBackend
from hpcgcn.exchange.codecs import Rows, make_codec
from hpcgcn.exchange.schedules import Schedule
from hpcgcn.exchange.staleness import MovingAverage, StalenessBuffer
from hpcgcn.exchange.types import Policy, Route

BACKEND = ReferenceBackend(np.float64)
SHAPE = (5, 3)


def routes() -> list[Route]:
    """Two peers: rows 0:2 and rows 2:5."""
    ids = np.arange(5, dtype=np.int64)
    none = Rows(None, ids[:0], ids[:0])
    return [Route(peer, none, slice(0, 0), Rows(None, ids[at], ids[at]), at)
            for peer, at in ((3, slice(0, 2)), (7, slice(2, 5)))]


def make(**settings) -> StalenessBuffer:
    policy = Policy(make_codec("fp32"), Schedule(1), **settings)
    return StalenessBuffer(BACKEND, policy, routes(), SHAPE)


def receive(buffer, epoch: int):
    """Rows of an epoch arrive: all elements are its number plus 1."""
    for array in buffer.arrays:
        array[:] = epoch + 1
    buffer.complete()


def used(buffer, epochs) -> list[float]:
    """What each epoch uses; its messages arrive within it, or before the next one."""
    found, late = [], None
    for epoch in epochs:
        if late is not None:
            receive(buffer, late)
        late = epoch
        if buffer.begin(epoch):
            receive(buffer, epoch)
            late = None
        value = buffer.value()
        assert (value == value[0, 0]).all()
        found.append(float(value[0, 0]))
    return found


@pytest.mark.parametrize("settings, expected", [
    ({}, [1, 2, 3, 4, 5, 6]),
    ({"staleness": 1}, [0, 1, 2, 3, 4, 5]),
    ({"staleness": 1, "first_epoch": "sync"}, [1, 1, 2, 3, 4, 5]),
    ({"staleness": 1, "refresh_every": 3}, [0, 1, 3, 3, 4, 6]),
    ({"staleness": 1, "refresh_every": 1}, [1, 2, 3, 4, 5, 6]),
])
def test_which_epochs_rows_are_used(settings, expected):
    assert used(make(**settings), range(6)) == expected


def test_the_next_epoch_is_synchronous_on_request_and_only_that():
    buffer = make(staleness=1)
    buffer.refresh_next()
    assert used(buffer, range(7, 10)) == [8, 8, 9]


@pytest.mark.parametrize("bias_corrected", [False, True])
def test_moving_average(bias_corrected):
    decay, rows = 0.8, np.random.default_rng(0).standard_normal((6, *SHAPE))
    average = MovingAverage(BACKEND, SHAPE, decay, bias_corrected)
    assert (average.value() == 0).all()
    for n in range(1, 7):
        average.add(rows[n - 1])
        weights = (1 - decay) * decay ** np.arange(n)[::-1]
        expected = np.tensordot(weights, rows[:n], 1) / (weights.sum() if bias_corrected else 1.0)
        np.testing.assert_allclose(average.value(), expected, rtol=1e-12)


@pytest.mark.parametrize("corrected", [False, True])
def test_stale_epochs_use_the_average_and_synchronous_ones_the_rows(corrected):
    buffer = make(staleness=1, smoothing=0.5, smoothing_correction=corrected, refresh_every=4)
    # after epochs 0, 1, 2: 0.5, 1.25, 2.125 of weights 0.5, 0.75, 0.875; epoch 3 is synchronous
    expected = [0, 0.5, 1.25, 4, 0.5 * 2.125 + 2]
    if corrected:
        expected = [0, 1, 1.25 / 0.75, 4, expected[4] / (1 - 0.5 ** 4)]
    np.testing.assert_allclose(used(buffer, range(5)), expected)


@pytest.mark.parametrize("smoothing", [{}, {"smoothing": 0.6},
                                       {"smoothing": 0.6, "smoothing_correction": True}])
def test_a_restored_buffer_goes_on_with_the_same_bits(smoothing):
    settings = {"staleness": 1, **smoothing}
    straight, first, second = make(**settings), make(**settings), make(**settings)
    expected = used(straight, range(8))
    assert used(first, range(5)) == expected[:5]
    receive(first, 4)                                    # a checkpoint takes in what is in flight
    for name, array in first.state_arrays([3, 7]).items():
        second.state_arrays([3, 7])[name][:] = array
    second.restore_numbers(first.state_numbers())
    assert used(second, range(5, 8)) == expected[5:]


def test_arrays_of_the_callers_are_the_state_by_peer():
    mine = [np.zeros((2, 3)), np.zeros((3, 3))]
    policy = Policy(make_codec("fp32"), Schedule(1), staleness=1)
    buffer = StalenessBuffer(BACKEND, policy, routes(), (0, 3), mine)
    assert buffer.received is None and buffer.begin(0) is False and buffer.value() is None
    assert {name: id(array) for name, array in buffer.state_arrays([3, 7]).items()} == {
        "received_3": id(mine[0]), "received_7": id(mine[1])}


def test_rows_of_each_peer_are_slices_of_one_array():
    buffer = make()
    buffer.arrays[0][:], buffer.arrays[1][:] = 1, 2
    np.testing.assert_array_equal(buffer.received[:, 0], [1, 1, 2, 2, 2])
    assert set(buffer.state_arrays([3, 7])) == {"received"}
    assert set(make(smoothing=0.5).state_arrays([3, 7])) == {"received", "average"}
