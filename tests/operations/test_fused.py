"""Random draws and the fused row-wise steps, on every backend against NumPy in float64."""

import numpy as np
import pytest
from arrays import big_ids, numbers
from backends import close

from hpcgcn import philox

KEY = philox.key(7, 3, 1, philox.DROPOUT)
THRESHOLD = philox.dropout_threshold(0.3)
SCALE = float(np.float32(65536 / (65536 - THRESHOLD)))


# -- random bits and dropout -----------------------------------------------------------------------

def philox_scalar(counter, key):
    """Philox4x32-10 in plain integers, written from the algorithm's definition."""
    c, k = list(counter), list(key)
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(second >> 32) ^ c[1] ^ k[0], second & 0xFFFFFFFF, (first >> 32) ^ c[3] ^ k[1],
             first & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def test_the_scalar_philox_gives_the_published_words():
    assert philox_scalar((0, 0, 0, 0), (0, 0)) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    ones = 0xFFFFFFFF
    assert philox_scalar((ones,) * 4, (ones,) * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6,
                                                       0x6D5451FD]


@pytest.mark.parametrize("width", (1, 8, 9, 41, 64, 602))      # one draw gives eight columns
def test_random_bits_are_philox_by_id_and_column(backend, arena, width):
    ids = np.array([0, 1, 2 ** 32 - 1, 2 ** 32, 2 ** 40 + 17], np.int64)
    out = arena.garbage((5, width), np.uint16)
    backend.random_bits(KEY, arena.put(ids), out)
    bits = arena.get(out)
    for row, node in enumerate(ids.tolist()):
        for column in {0, width // 2, width - 1}:
            words = philox_scalar((column // 8, node & 0xFFFFFFFF, node >> 32, 0), KEY)
            assert bits[row, column] == words[column % 8 // 2] >> (16 * (column % 2)) & 0xFFFF
    assert (bits == philox.bits16(KEY, ids, width)).all()


@pytest.mark.parametrize("width, in_place", [(1, False), (41, False), (41, True), (512, False),
                                             (513, True), (1100, False)])
def test_dropout_keeps_what_philox_says_and_scales_it(backend, arena, width, in_place):
    x, ids = numbers(9, width), big_ids(9)
    source = arena.put(x)
    out = source if in_place else arena.garbage(x.shape)
    backend.dropout(source, out, KEY, THRESHOLD, arena.put(ids))
    keep = philox.bits16(KEY, ids, width) >= THRESHOLD
    assert ((arena.get(out) != 0) == keep).all()
    close(arena.get(out), np.where(keep, x * SCALE, 0))


def test_dropout_with_a_threshold_of_zero_is_a_copy(backend, arena):
    x, out = numbers(5, 7), arena.garbage((5, 7))
    backend.dropout(arena.put(x), out, None, 0, None)
    assert (arena.get(out) == x).all()


# -- epilogue --------------------------------------------------------------------------------------

def normalised(y):
    """LayerNorm without its parameters: xhat and rstd."""
    rstd = 1 / np.sqrt(y.var(axis=1) + 1e-5)
    return (y - y.mean(axis=1, keepdims=True)) * rstd[:, None], rstd


@pytest.mark.parametrize("drop", [False, True], ids=["keep", "drop"])
def test_epilogue_is_bias_relu_and_dropout(backend, arena, width, drop):
    check_epilogue_without_norm(backend, arena, width, drop, biased=True)


@pytest.mark.parametrize("drop", [False, True], ids=["keep", "drop"])
def test_epilogue_without_a_bias(backend, arena, drop):
    check_epilogue_without_norm(backend, arena, 41, drop, biased=False)


def check_epilogue_without_norm(backend, arena, width, drop, biased):
    y, bias, ids = numbers(23, width), numbers(width, seed=1), big_ids(23)
    source, out = arena.put(y), arena.garbage((23, width))
    backend.epilogue_forward(source, out, bias=arena.put(bias) if biased else None,
                             key=KEY if drop else None, threshold=THRESHOLD if drop else 0,
                             ids=arena.put(ids) if drop else None)
    total = y + bias if biased else y
    close(arena.get(source), total, np.abs(y) + np.abs(bias))
    keep = philox.bits16(KEY, ids, width) >= THRESHOLD if drop else True
    close(arena.get(out), np.where(keep, np.maximum(total, 0) * (SCALE if drop else 1), 0),
          np.abs(y) + np.abs(bias))


@pytest.mark.parametrize("columns",
                         [(0, 41), (3, 7), (8, 16), (13, 41), (33, 34), (5, 602), (600, 1200)])
def test_an_epilogue_on_some_columns_is_that_part_of_the_whole(backend, arena, columns):
    first, stop = columns
    y, bias, ids = numbers(11, stop), numbers(stop, seed=1), big_ids(11)
    source = arena.put(y[:, first:])
    backend.epilogue_forward(source, source, bias=arena.put(bias[first:]), key=KEY,
                             threshold=THRESHOLD, ids=arena.put(ids), first_column=first)
    keep = philox.bits16(KEY, ids, stop) >= THRESHOLD
    whole = np.where(keep, np.maximum(y + bias, 0) * SCALE, 0)
    close(arena.get(source), whole[:, first:], (np.abs(y) + np.abs(bias))[:, first:])


@pytest.mark.thread_orders
@pytest.mark.parametrize("drop", [False, True], ids=["keep", "drop"])
def test_epilogue_with_norm_keeps_what_backward_needs(backend, arena, width, drop):
    check_epilogue_with_norm(backend, arena, width, drop, "apart")


@pytest.mark.parametrize("drop", [False, True], ids=["keep", "drop"])
def test_epilogue_with_norm_in_place(backend, arena, drop):
    check_epilogue_with_norm(backend, arena, 41, drop, "xhat is y")


def check_epilogue_with_norm(backend, arena, width, drop, place):
    y, bias, gamma, beta = numbers(23, width), *(numbers(width, seed=s) for s in (1, 2, 3))
    ids, source, out, rstd = (big_ids(23), arena.put(y), arena.garbage((23, width)),
                              arena.garbage(23))
    xhat = source if place == "xhat is y" else arena.garbage((23, width))
    backend.epilogue_forward(source, out, arena.put(bias), arena.put(gamma), arena.put(beta), xhat,
                             rstd, KEY if drop else None, THRESHOLD if drop else 0,
                             arena.put(ids) if drop else None)
    # What the norm divides by may be small beside what it subtracts: errors grow by that factor.
    expected_xhat, expected_rstd = normalised(y + bias)
    grown = (np.abs(y + bias).max(axis=1) + 1) * np.maximum(expected_rstd, 1)
    close(arena.get(rstd), expected_rstd, expected_rstd * grown * 4, width)
    close(arena.get(xhat), expected_xhat, grown[:, None] * 4, width)
    keep = philox.bits16(KEY, ids, width) >= THRESHOLD if drop else True
    expected = np.where(keep, np.maximum(expected_xhat * gamma + beta, 0) * (SCALE if drop else 1),
                        0)
    close(arena.get(out), expected, (grown[:, None] * np.abs(gamma) + np.abs(beta)) * 8, width)


def test_epilogue_in_place_and_of_no_rows(backend, arena):
    y = numbers(4, 5)
    source = arena.put(y)
    backend.epilogue_forward(source, source)
    assert (arena.get(source) == np.maximum(y, 0)).all()
    none = arena.garbage((0, 5))
    backend.epilogue_forward(none, none, bias=arena.put(numbers(5)))
    dbias = arena.put(numbers(5))
    backend.epilogue_backward(none, none, none, dbias=dbias)
    assert (arena.get(dbias) == numbers(5)).all()


def test_epilogue_lets_a_nan_through(backend, arena):
    y, out = numbers(3, 41), arena.garbage((3, 41))
    y[1, 2] = np.nan
    backend.epilogue_forward(arena.put(y), out)
    assert np.isnan(arena.get(out)[1, 2]) and np.isnan(arena.get(out)).sum() == 1


def test_epilogue_with_norm_lets_a_row_of_nan_through(backend, arena):
    y, out, ones = numbers(3, 41), arena.garbage((3, 41)), arena.put(np.ones(41))
    y[1, 2] = np.nan
    backend.epilogue_forward(arena.put(y), out, None, ones, ones, arena.garbage((3, 41)),
                             arena.garbage(3))
    assert np.isnan(arena.get(out)[1]).all() and np.isfinite(arena.get(out)[[0, 2]]).all()


normed_or_not = pytest.mark.parametrize("normed", [False, True], ids=["plain", "norm"])


@pytest.mark.thread_orders
@normed_or_not
def test_epilogue_backward_is_the_derivative(backend, arena, width, normed):
    check_epilogue_backward(backend, arena, width, 200, normed, in_place=False)


@normed_or_not
@pytest.mark.parametrize("n", [1, 200])
def test_epilogue_backward_in_place_and_of_one_row(backend, arena, n, normed):
    check_epilogue_backward(backend, arena, 41, n, normed, in_place=True)


def check_epilogue_backward(backend, arena, width, n, normed, in_place):
    dout, y, gamma = numbers(n, width), numbers(n, width, seed=1), numbers(width, seed=2)
    xhat, rstd = (array.astype(np.float32).astype(np.float64) for array in normalised(y))
    out = np.maximum(numbers(n, width, seed=3), 0)
    before = {name: numbers(width, seed=seed)
              for seed, name in enumerate(("dgamma", "dbeta", "dbias"), 4)}
    sums = {name: arena.put(values) for name, values in before.items()}
    gradient = arena.put(dout)
    dy = gradient if in_place else arena.garbage((n, width))
    if normed:
        backend.epilogue_backward(gradient, arena.put(out), dy, SCALE, arena.put(gamma),
                                  arena.put(xhat), arena.put(rstd), **sums)
    else:
        backend.epilogue_backward(gradient, arena.put(out), dy, SCALE, dbias=sums["dbias"])
    dv = np.where(out != 0, dout * SCALE, 0)
    expected = dv
    bound = np.abs(dv) + 1e-30
    if normed:
        dxhat = dv * gamma
        expected = rstd[:, None] * (dxhat - dxhat.mean(axis=1, keepdims=True)
                                    - xhat * (dxhat * xhat).mean(axis=1, keepdims=True))
        bound = rstd[:, None] * (np.abs(dxhat) + np.abs(dxhat).mean(axis=1, keepdims=True) + np.abs(
            xhat) * np.abs(dxhat * xhat).mean(axis=1, keepdims=True)) * 2 + 1e-30
        close(arena.get(sums["dgamma"]), before["dgamma"] + (dv * xhat).sum(axis=0),
              np.abs(before["dgamma"]) + np.abs(dv * xhat).sum(axis=0), n)
        close(arena.get(sums["dbeta"]), before["dbeta"] + dv.sum(axis=0),
              np.abs(before["dbeta"]) + np.abs(dv).sum(axis=0), n)
    close(arena.get(dy), expected, bound, width)
    close(arena.get(sums["dbias"]), before["dbias"] + expected.sum(axis=0),
          np.abs(before["dbias"]) + bound.sum(axis=0), n + width)
