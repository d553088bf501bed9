"""Bits by row: the closed form against all assignments, and the error of sums against uniform bits
of the same size."""

import itertools

import numpy as np
import pytest

from hpcgcn.backend import native
from hpcgcn.backend.reference import ReferenceBackend
from hpcgcn.exchange.bit_widths import choose_widths, row_bytes, row_errors
from hpcgcn.exchange.codecs import Draw, Rows, make_codec

DRAW = Draw(seed=1, epoch=3, layer=2)


def cost_and_error(chosen, importance, width, nearest):
    sizes, errors = np.array(row_bytes(width)), np.array(row_errors(nearest))
    return int(sizes[chosen].sum()), float((importance * errors[chosen]).sum())


@pytest.mark.parametrize("nearest", [False, True])
@pytest.mark.parametrize("width", [1, 2, 3, 5, 41, 128])
def test_no_assignment_of_the_same_bytes_has_a_smaller_error(width, nearest):
    rng, n = np.random.default_rng(width), 5
    everything = [np.array(levels) for levels in itertools.product(range(4), repeat=n)]
    sizes = row_bytes(width)
    for trial in range(12):
        importance = np.exp(3 * rng.standard_normal(n)) * (rng.random(n) < 0.9)
        if trial % 3 == 0:
            importance[1:] = importance[0]       # ties
        budget = int(rng.integers(n * sizes[0], n * sizes[-1] + 1))
        chosen = choose_widths(importance, width, budget, nearest)
        spent, error = cost_and_error(chosen, importance, width, nearest)
        assert spent <= budget
        others = [cost_and_error(other, importance, width, nearest) for other in everything]
        least = min(lost for bytes_, lost in others if bytes_ <= spent)
        assert error <= least * (1 + 1e-12)
        # What is left over pays for no further step of a row that would gain by it.
        assert budget - spent < max(np.diff(sizes)) or (chosen[importance > 0] == 3).all()


def test_rows_that_the_receiver_feels_more_have_more_bits():
    importance = np.array([1e-6, 1.0, 1e6, 1.0, 0.0])
    chosen = choose_widths(importance, 128, 16 * 5 * 3, False)
    assert chosen[2] >= chosen[1] >= chosen[0] >= chosen[4] == 0 and chosen[2] == 3
    everything = choose_widths(importance, 128, 128 * 5, False)
    assert everything.tolist() == [3, 3, 3, 3, 0], "a constant row needs no bits"


def sums_lost(codec, x, rows, rate, coefficients, epochs=20) -> tuple[int, float]:
    """(bytes of a message, mean squared error of the sums that its rows end up in)."""
    backend, lost = ReferenceBackend(), 0.0
    for epoch in range(epochs):
        draw = Draw(0, epoch, 1)
        data = np.zeros(codec.nbytes(backend, rows, x.shape[1], rate, draw), np.uint8)
        codec.encode(backend, x, rows, rate, draw, data)
        out = np.empty_like(x)
        codec.decode(backend, data, rows, rate, draw, out)
        lost += float(((coefficients @ (out - x).astype(np.float64)) ** 2).sum()) / epochs
    return len(data), lost


@pytest.mark.parametrize("nearest", [False, True])
@pytest.mark.parametrize("rate", [2, 4])
def test_sums_lose_less_than_with_uniform_bits_of_the_same_size(rate, nearest):
    rng, n = np.random.default_rng(rate), 300
    x = rng.standard_normal((n, 64)) * np.exp(rng.standard_normal((n, 1)))
    coefficients = (rng.random((200, n)) < 0.1 * rng.random(n)) * rng.random((200, 1))
    ids = np.arange(n, dtype=np.int64)
    rows = Rows(None, ids, ids, weights=np.sqrt((coefficients ** 2).sum(0)))
    x = x.astype(np.float32)
    size, uniform = sums_lost(make_codec("bits", nearest=nearest), x, rows, rate, coefficients)
    same, adaptive = sums_lost(make_codec("adaptive", nearest=nearest), x, rows, rate, coefficients)
    unweighted = sums_lost(make_codec("adaptive", nearest=nearest), x, Rows(None, ids, ids), rate,
                           coefficients)[1]
    assert same == size + 8
    assert adaptive < 0.5 * uniform and adaptive < unweighted


@pytest.mark.parametrize("rate", [1, 2, 4, 8])
@pytest.mark.parametrize("width", [1, 5, 64])
def test_rows_that_are_alike_are_coded_as_with_uniform_bits(width, rate):
    backend, ids = ReferenceBackend(), np.arange(50, dtype=np.int64)
    x = np.random.default_rng(0).random((50, width)).astype(np.float32)
    x[:, 0] = np.where(ids % 2, 0, 1)
    x[:, -1] = np.where(ids % 2, 1, 0)           # all of range 1
    rows, messages = Rows(None, ids, ids), []
    for codec in (make_codec("bits"), make_codec("adaptive")):
        messages.append(np.full(codec.nbytes(backend, rows, width, rate, DRAW), 9, np.uint8))
        codec.encode(backend, x, rows, rate, DRAW, messages[-1])
    np.testing.assert_array_equal(messages[0], messages[1][8:])
    out = np.empty_like(x)
    codec.decode(backend, messages[1], rows, rate, DRAW, out)
    assert np.abs(out - x).max() <= 1 / (2 ** rate - 1) + 1 / 64


@pytest.mark.parametrize("rate", [1, 2.5, 8])
@pytest.mark.parametrize("width", [1, 3, 41, 128])
def test_native_makes_the_same_bytes(width, rate):
    usable, reason = native.available()
    if not usable:
        pytest.skip(reason)
    rng = np.random.default_rng(width)
    x = (rng.standard_normal((33, width)) * np.exp(rng.standard_normal((33, 1)))).astype(np.float32)
    ids, messages = np.arange(33, dtype=np.int64) + 2 ** 33, []
    codec, rows = make_codec("adaptive"), Rows(None, ids, ids, weights=rng.random(33))
    for backend in (ReferenceBackend(), native.NativeBackend(threads=2)):
        messages.append(np.full(codec.nbytes(backend, rows, width, rate, DRAW), 9, np.uint8))
        codec.encode(backend, backend.from_host(x), rows, rate, DRAW, messages[-1])
    np.testing.assert_array_equal(*messages)


def test_a_row_that_is_not_finite_arrives_as_nan_and_the_others_as_they_are():
    backend, x = ReferenceBackend(), np.random.default_rng(0).standard_normal((6, 16))
    x = x.astype(np.float32)
    x[1, 3], x[4, 0] = np.nan, np.inf
    ids = np.arange(6, dtype=np.int64)
    rows, codec = Rows(None, ids, ids), make_codec("adaptive")
    data = np.zeros(codec.nbytes(backend, rows, 16, 8, DRAW), np.uint8)
    codec.encode(backend, x, rows, 8, DRAW, data)
    out = np.zeros_like(x)
    codec.decode(backend, data, rows, 8, DRAW, out)
    assert np.isnan(out[[1, 4]]).all()
    good = [0, 2, 3, 5]
    assert (np.abs(out[good] - x[good]) < (x[good].max() - x[good].min()) / 200).all()
