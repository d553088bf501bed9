"""Arrays, matrix products, sums and weighted sums, on every backend against NumPy in float64."""

import numpy as np
import pytest
from arrays import numbers
from backends import close

# -- arrays ----------------------------------------------------------------------------------------

@pytest.mark.one_level
@pytest.mark.parametrize("shape", [(0,), (5,), (3, 7), (0, 4), (4, 0)])
def test_empty_and_zeros_have_the_shape_and_type(backend, shape):
    assert backend.empty(shape).shape == shape and backend.empty(shape).dtype == backend.dtype
    zeros = backend.zeros(shape, np.int32)
    assert zeros.dtype == np.int32 and not backend.to_host(zeros).any()


@pytest.mark.one_level
def test_copy_goes_between_host_and_backend(backend, arena):
    values = numbers(5, 3).astype(backend.dtype)
    target = arena.garbage((5, 3))
    backend.copy(values, target)
    back = np.empty((5, 3), backend.dtype)
    backend.copy(target, back)
    assert (back == values).all()


@pytest.mark.one_level
@pytest.mark.parametrize("source, target",
                         [((0, 4), (2, 6)), ((3, 7), None), (None, (1, 5)), ((2, 2), (1, 1))])
def test_copy_takes_blocks_of_columns(backend, arena, source, target):
    values, before = numbers(5, 7), numbers(5, 9, seed=1)
    width = (source or target)[1] - (source or target)[0]
    read = arena.put(values)[:, slice(*source)] if source else arena.put(values[:, :width])
    whole = arena.put(before if target else before[:, :width])
    backend.copy(read, whole[:, slice(*target)] if target else whole)
    expected = before.copy() if target else before[:, :width].copy()
    expected[:, slice(*target) if target else slice(None)] = values[:, slice(*source) if source
                                                                    else slice(0, width)]
    assert (arena.get(whole) == expected).all()


@pytest.mark.one_level
def test_blocks_of_columns_go_to_the_host_and_back(backend, arena):
    values = numbers(5, 7).astype(backend.dtype)
    whole, back = arena.put(values), np.empty((5, 3), backend.dtype)
    backend.copy(whole[:, 2:5], back)
    backend.copy(2 * back, whole[:, 2:5])
    values[:, 2:5] *= 2
    assert (back * 2 == values[:, 2:5]).all() and (arena.get(whole) == values).all()


@pytest.mark.one_level
def test_a_message_is_aligned_and_as_long_as_asked(backend):
    message = backend.message(101)
    assert message.array.nbytes == 101 and np.asarray(message.mpi).ctypes.data % 64 == 0
    backend.before_send(message, 101)
    backend.before_receive(message, 101)
    backend.after_receive(message)


# -- products and sums -----------------------------------------------------------------------------

transposes = pytest.mark.parametrize("transpose_a, transpose_b",
                                     [(False, False), (False, True), (True, False), (True, True)])


@pytest.mark.one_level
@transposes
@pytest.mark.parametrize("accumulate, alpha",
                         [(False, 1.0), (True, 1.0), (False, -0.75), (True, 0.5)])
def test_gemm_scales_and_adds_the_product(backend, arena, transpose_a, transpose_b, accumulate,
                                          alpha):
    check_gemm(backend, arena, (7, 41, 3), transpose_a, transpose_b, accumulate, alpha)


@pytest.mark.one_level
@transposes
@pytest.mark.parametrize("shape", [(1, 1, 1), (130, 16, 602), (5, 0, 4), (0, 3, 4), (3, 4, 0)],
                         ids=str)
def test_gemm_of_any_shape(backend, arena, shape, transpose_a, transpose_b):
    check_gemm(backend, arena, shape, transpose_a, transpose_b, True, 0.5)


def check_gemm(backend, arena, shape, transpose_a, transpose_b, accumulate, alpha):
    m, k, n = shape
    a, b, before = numbers(m, k), numbers(k, n, seed=1), numbers(m, n, seed=2)
    out = arena.put(before) if accumulate else arena.garbage((m, n))
    backend.gemm(arena.put(a.T if transpose_a else a), arena.put(b.T if transpose_b else b), out,
                 transpose_a, transpose_b, accumulate, alpha)
    close(arena.get(out), alpha * a @ b + (before if accumulate else 0),
          np.abs(alpha) * np.abs(a) @ np.abs(b) + np.abs(before), k)


@pytest.mark.one_level
def test_gemm_accumulates_into_more_rows_than_one_block(backend, arena):
    a, b, before = numbers(3000, 5), numbers(5, 602, seed=1), numbers(3000, 602, seed=2)
    out = arena.put(before)
    backend.gemm(arena.put(a), arena.put(b), out, accumulate=True)
    close(arena.get(out), before + a @ b, np.abs(before) + np.abs(a) @ np.abs(b), 5)


@pytest.mark.parametrize("shape, target", [((1, 1), "new"), ((0, 3), "new"), ((300, 129), "new"),
                                           ((5, 41), "new"), ((5, 41), "x"), ((5, 41), "y")])
def test_axpby_is_the_weighted_sum_in_a_new_array_or_in_place(backend, arena, shape, target):
    x, y = numbers(*shape), numbers(*shape, seed=1)
    arrays = {"new": arena.garbage(shape), "x": arena.put(x), "y": arena.put(y)}
    backend.axpby(0.3, arrays["x"], -1.7, arrays["y"], arrays[target])
    close(arena.get(arrays[target]), 0.3 * x - 1.7 * y, 0.3 * np.abs(x) + 1.7 * np.abs(y), 4)


@pytest.mark.parametrize("shape", [(0, 3), (5, 41), (7,)])
def test_clearing_leaves_zeros_whatever_was_there(backend, arena, shape):
    before = numbers(*shape)
    before.reshape(-1)[:3] = (np.nan, np.inf, -np.inf)[:before.size]
    out = arena.put(before)
    backend.clear(out)
    assert (arena.get(out) == 0).all()


def test_axpby_without_y_does_not_read_it(backend, arena):
    x, out = numbers(4, 5), arena.garbage((4, 5))
    backend.axpby(2.0, arena.put(x), 0.0, None, out)
    assert (arena.get(out) == 2 * x).all()
    backend.axpby(2.0, arena.put(x), 0.0, arena.garbage((4, 5)), out)
    assert (arena.get(out) == 2 * x).all()


@pytest.mark.thread_orders
@pytest.mark.parametrize("n", [65, 1000])
def test_column_sums_are_added(backend, arena, n, width):
    check_column_sum(backend, arena, n, width)


@pytest.mark.parametrize("shape", [(0, 41), (1, 41), (65, 0)], ids=str)
def test_column_sums_of_next_to_nothing(backend, arena, shape):
    check_column_sum(backend, arena, *shape)


def check_column_sum(backend, arena, n, width):
    x, before = numbers(n, width), numbers(width, seed=1)
    out = arena.put(before)
    backend.column_sum_add(arena.put(x), out)
    close(arena.get(out), before + x.sum(axis=0), np.abs(before) + np.abs(x).sum(axis=0), n)


@pytest.mark.thread_orders
@pytest.mark.parametrize("n", [0, 1, 63, 100_003])
def test_square_sum_is_exact_to_double_precision(backend, arena, n):
    x = numbers(n)
    assert backend.square_sum(arena.put(x)) == pytest.approx(float((x ** 2).sum()), rel=1e-12)


# -- whole columns ---------------------------------------------------------------------------------

@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (5, 41), (3000, 17)])
@pytest.mark.parametrize("other", ["another", "itself", None])
def test_column_dots_are_added_up_in_float64(backend, arena, shape, other):
    x = numbers(*shape).astype(np.float32).astype(np.float64) + 1000.0
    y = {"another": numbers(*shape, seed=1), "itself": x, None: np.ones(shape)}[other]
    x, y = (rows.astype(np.float32).astype(np.float64) for rows in (x, y))
    before = numbers(shape[1], seed=2)
    out = backend.from_host(before.copy())
    rows = arena.put(x)
    backend.column_dots_add(rows, {"another": arena.put(y), "itself": rows, None: None}[other],
                            out)
    found = backend.to_host(out)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, before + (x * y).sum(axis=0),
                               atol=1e-13 * (np.abs(x * y).sum(axis=0).max(initial=1.0)), rtol=0)


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (5, 41), (300, 17)])
@pytest.mark.parametrize("target", ["new", "x", "y", "without y"])
def test_columns_are_scaled_and_shifted(backend, arena, shape, target):
    x, y = numbers(*shape), numbers(*shape, seed=1)
    scale, weight, shift = (numbers(shape[1], seed=k) for k in (2, 3, 4))
    arrays = {"new": arena.garbage(shape), "x": arena.put(x), "y": arena.put(y)}
    second = (None, None) if target == "without y" else (arrays["y"], arena.put(weight))
    out = arrays["x" if target == "without y" else target]
    backend.column_affine(arrays["x"], arena.put(scale), *second, arena.put(shift), out)
    y = np.zeros(shape) if target == "without y" else y
    close(arena.get(out), x * scale + y * weight + shift,
          np.abs(x * scale) + np.abs(y * weight) + np.abs(shift), 4)
