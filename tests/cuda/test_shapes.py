"""Paths that the common suite's small arrays do not reach: hubs, many parts, very wide rows; and
the same bits twice."""

import numpy as np
import pytest

from hpcgcn.backend import cuda_rows, cuda_sparse
from hpcgcn.backend.reference import ReferenceBackend

ORACLE = ReferenceBackend(np.float32)


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture
def small_cuts(monkeypatch):
    """Rows count as long from 3 entries on and as hubs from 9."""
    monkeypatch.setattr(cuda_sparse, "SHORT_ROW", 2)
    monkeypatch.setattr(cuda_sparse, "SEGMENT", 8)


def graph(n_rows, n_columns, seed=0):
    """Degrees from 0 to 70: all three kinds of rows."""
    rng = np.random.default_rng(seed)
    degrees = rng.choice([0, 1, 2, 3, 5, 8, 9, 16, 17, 70], n_rows)
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    return indptr, rng.integers(0, n_columns, indptr[-1]).astype(np.int32)


@pytest.mark.parametrize("width", [1, 4, 12, 33, 64, 128, 200])
@pytest.mark.parametrize("accumulate", [False, True])
def test_rows_of_all_kinds(backend, small_cuts, order, width, accumulate):
    indptr, indices = graph(60, 30)
    scales = {"weights": numbers(len(indices)), "row_scale": numbers(60, seed=1),
              "column_scale": numbers(30, seed=2)}
    x, before = numbers(30, width, seed=3), numbers(60, width, seed=4)
    expected, out = before.copy(), backend.from_host(before)
    ORACLE.spmm(ORACLE.csr(indptr, indices, 30, **scales), x, expected, rows=(7, 51),
                accumulate=accumulate)
    matrix = backend.csr(indptr, indices, 30, **scales)
    backend.spmm(matrix, backend.from_host(x), out, rows=(7, 51), accumulate=accumulate)
    np.testing.assert_allclose(backend.to_host(out), expected, rtol=2e-4, atol=2e-4)


def test_a_hub_is_the_same_in_every_block_and_run(backend, small_cuts):
    indptr, indices = graph(60, 30)
    matrix, x = backend.csr(indptr, indices, 30), backend.from_host(numbers(30, 20))
    whole, again, blocks = (backend.zeros((60, 20)) for _ in range(3))
    backend.spmm(matrix, x, whole)
    backend.spmm(matrix, x, again)
    for start in range(0, 60, 7):
        backend.spmm(matrix, x, blocks, rows=(start, min(start + 7, 60)))
    assert (backend.to_host(whole) == backend.to_host(again)).all()
    assert (backend.to_host(whole) == backend.to_host(blocks)).all()


def test_a_transpose_with_hubs(backend, small_cuts, order):
    indptr, indices = graph(200, 9)  # few columns: every column is a hub of the transpose
    scales = {"weights": numbers(len(indices)), "row_scale": numbers(200, seed=1)}
    x, before = numbers(200, 16, seed=3), numbers(9, 16, seed=4)
    expected, out = before.copy(), backend.from_host(before)
    ORACLE.spmm_transposed_add(ORACLE.csr(indptr, indices, 9, **scales), x, expected,
                               rows=(11, 190))
    backend.spmm_transposed_add(backend.csr(indptr, indices, 9, **scales), backend.from_host(x),
                                out, rows=(11, 190))
    np.testing.assert_allclose(backend.to_host(out), expected, rtol=1e-3, atol=1e-3)


def test_matrices_over_the_same_arrays_share_them_on_the_device(backend):
    indptr, indices = graph(60, 30)
    first, second = backend.csr(indptr, indices, 30), backend.csr(indptr, indices, 30,
                                                                  row_scale=numbers(60))
    assert first.structure is second.structure
    assert backend.csr(indptr.copy(), indices, 30).structure is not first.structure


def test_more_rows_than_parts(backend, order, monkeypatch):
    monkeypatch.setattr(cuda_rows, "MAX_PARTS", 3)
    x = numbers(1000, 20)
    out = backend.zeros((20,))
    backend.column_sum_add(backend.from_host(x), out)
    np.testing.assert_allclose(backend.to_host(out), x.sum(axis=0), rtol=1e-3, atol=1e-3)
    labels = np.random.default_rng(0).integers(-1, 20, 1000).astype(np.int32)
    expected = np.empty_like(x)
    loss = ORACLE.softmax_cross_entropy(x, labels, 0.5, expected)
    dlogits = backend.empty((1000, 20))
    found = backend.softmax_cross_entropy(backend.from_host(x), backend.from_host(labels), 0.5,
                                          dlogits)
    assert float(found) == pytest.approx(loss)
    np.testing.assert_allclose(backend.to_host(dlogits), expected, rtol=1e-4, atol=1e-6)


# a block of fewer rows; sums that do not fit in shared memory
@pytest.mark.parametrize("width", [1500, 5000])
def test_the_backward_pass_of_wide_rows(backend, order, width):
    dout, out, xhat = (numbers(9, width, seed=k) for k in range(3))
    gamma, rstd = numbers(width), np.abs(numbers(9))
    expected = [np.zeros(width, np.float32) for _ in range(3)]
    dy, device_dy = np.empty_like(dout), backend.empty((9, width))
    ORACLE.epilogue_backward(dout, out, dy, 1.0, gamma, xhat, rstd, *expected)
    sums = [backend.zeros((width,)) for _ in range(3)]
    backend.epilogue_backward(*map(backend.from_host, (dout, out)), device_dy, 1.0,
                              *map(backend.from_host, (gamma, xhat, rstd)), *sums)
    np.testing.assert_allclose(backend.to_host(device_dy), dy, rtol=1e-3, atol=1e-4)
    for got, want in zip(sums, expected):
        np.testing.assert_allclose(backend.to_host(got), want, rtol=1e-3, atol=1e-3)


def test_tiles_are_narrow_where_x_then_stays_in_the_cache():
    cache, lanes_of = 0.7 * (40 << 20), cuda_sparse.lanes_of_tile
    for n_rows, lanes in ((50_000, 32), (60_000, 8), (220_000, 8), (240_000, 32)):
        assert lanes_of(128, 4, 4 * n_rows, cache) == lanes, n_rows
    assert lanes_of(128, 4, 2 * 60_000, cache) == 32         # 16-bit storage: twice the rows
    assert lanes_of(128, 1, 4 * 60_000, cache) == 32         # scalar tiles are narrow already
    assert lanes_of(16, 4, 4 * 10_000_000, cache) == 4


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("storage", [np.float32, np.float16])
@pytest.mark.parametrize("width", [9, 41, 47, 133])
def test_rows_that_are_no_vectors_are_gathered_as_vectors(backend, width, storage, accumulate):
    """From a copy with a longer pitch, if they are gathered often; nothing past the width is
    written."""
    degrees = np.array([0, 3, 16, 17, 40, 1200] * 3)
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    indices = np.random.default_rng(0).integers(0, 50, indptr[-1]).astype(np.int32)
    x, expected = numbers(50, width).astype(storage), numbers(18, width, seed=1)
    whole = backend.from_host(np.concatenate([expected, np.full((1, width), 7, np.float32)]))
    ORACLE.spmm(ORACLE.csr(indptr, indices, 50), x, expected, accumulate=accumulate)
    launched, launch = [], backend.launch
    backend.launch = lambda name, *rest, **more: (launched.append(name.partition("<")[0]),
                                                  launch(name, *rest, **more))
    backend.spmm(backend.csr(indptr, indices, 50), backend.from_host(x), whole[:18],
                 accumulate=accumulate)
    got = backend.to_host(whole)
    np.testing.assert_allclose(got[:18], expected, rtol=1e-3, atol=1e-3)
    assert (got[18] == 7).all()
    assert launched == ["copy_columns", "spmm_short", "spmm_long", "spmm_combine"]


def test_rows_that_are_gathered_once_are_not_copied(backend):
    indptr, indices = np.arange(51, dtype=np.int64), np.arange(50, dtype=np.int32)
    launched, launch = [], backend.launch
    backend.launch = lambda name, *rest, **more: (launched.append(name),
                                                  launch(name, *rest, **more))
    out = backend.zeros((50, 41))
    backend.spmm(backend.csr(indptr, indices, 50), backend.from_host(numbers(50, 41)), out)
    assert launched == ["spmm_short<float, 1, 32>"]
    np.testing.assert_array_equal(backend.to_host(out), numbers(50, 41))


@pytest.mark.parametrize("width", [128, 72])
def test_narrow_tiles_give_the_same_product(backend, order, width):
    """Rows of every kind, with a cache that holds 32 columns of x and not more."""
    degrees = np.array([0, 3, 16, 17, 40, 700] * 3)
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    indices = np.random.default_rng(0).integers(0, 50, indptr[-1]).astype(np.int32)
    x, expected = numbers(50, width), np.zeros((18, width), np.float32)
    ORACLE.spmm(ORACLE.csr(indptr, indices, 50), x, expected)
    launched, launch = [], backend.launch
    backend.launch = lambda name, *rest, **more: (launched.append(name),
                                                  launch(name, *rest, **more))
    for cache, lanes in ((1e9, 32), (4 * 50 * 40, 8)):
        backend.cache_bytes = cache
        out = backend.zeros((18, width))
        backend.spmm(backend.csr(indptr, indices, 50), backend.from_host(x), out)
        np.testing.assert_allclose(backend.to_host(out), expected, rtol=1e-4, atol=1e-4)
        assert f"spmm_long<float, 4, {lanes}>" in launched
        launched.clear()
