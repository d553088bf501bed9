"""Products with sparse matrices, and dropout of their entries, on every backend against NumPy in
float64."""

import numpy as np
import pytest
from arrays import STORED, dense, graph, numbers, scales_of, stored
from backends import close

from hpcgcn import philox

ALL_SCALES = ("weights", "row_scale", "column_scale")
no_or_all_scales = pytest.mark.parametrize("names", [(), ALL_SCALES],
                                           ids=["no scale", "all scales"])
one_scale = pytest.mark.parametrize("name", ALL_SCALES)


@pytest.mark.thread_orders
@no_or_all_scales
def test_spmm_is_the_product_with_the_matrix(backend, arena, width, names):
    check_spmm(backend, arena, width, names)


@one_scale
def test_spmm_with_one_scale_alone(backend, arena, name):
    check_spmm(backend, arena, 41, (name,))


def check_spmm(backend, arena, width, names):
    csr = graph()
    scales = scales_of(csr, names)
    x, out = numbers(29, width), arena.garbage((37, width))
    matrix = arena.csr(csr, **scales)
    assert matrix.shape == (37, 29) and matrix.nnz == len(csr[1])
    backend.spmm(matrix, arena.put(x), out)
    a, magnitude = dense(csr, **scales)
    close(arena.get(out), a @ x, magnitude @ np.abs(x), 200)


@pytest.mark.thread_orders
@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])
def test_spmm_accumulates_stored_and_masked_rows_in_a_range(backend, arena, width, kind, masked):
    csr = graph()
    scales = scales_of(csr, ("weights", "row_scale"))
    held, x = stored(numbers(29, width), kind)
    before, start, stop = numbers(37, width, seed=5), 3, 30
    out, mask = arena.put(before), None
    if masked:
        mask = np.where(numbers(29, width, seed=6) > 0, numbers(29, width), 0)
        x = np.where(mask != 0, x * 1.25, 0)
        mask = arena.put(mask)
    backend.spmm(arena.csr(csr, **scales), arena.put(held, STORED[kind]), out, rows=(start, stop),
                 accumulate=True, mask=mask, mask_scale=1.25)
    a, magnitude = dense(csr, **scales)
    after = arena.get(out)
    close(after[start:stop], before[start:stop] + (a @ x)[start:stop],
          np.abs(before[start:stop]) + (magnitude @ np.abs(x))[start:stop], 200)
    assert (after[:start] == before[:start]).all() and (after[stop:] == before[stop:]).all()


@pytest.mark.parametrize("n_first", [0, 11, 29])
def test_spmm_of_the_first_columns_alone(backend, arena, width, n_first):
    """Sorted rows that end where the other columns begin: the product with the first columns."""
    indptr, indices = graph()[:2]
    rows = [np.sort(indices[indptr[i]:indptr[i + 1]]) for i in range(37)]
    ends = np.array([indptr[i] + np.searchsorted(row, n_first) for i, row in enumerate(rows)])
    csr = (indptr, np.concatenate(rows).astype(np.int32), 29)
    scales = scales_of(csr, ALL_SCALES)
    x, out = numbers(29, width), arena.garbage((37, width))
    matrix = arena.csr(csr, **scales, ends=ends.astype(np.int64))
    assert matrix.nnz == (ends - indptr[:-1]).sum()
    backend.spmm(matrix, arena.put(x), out)
    a, magnitude = (whole[:, :n_first] for whole in dense(csr, **scales))
    close(arena.get(out), a @ x[:n_first], magnitude @ np.abs(x[:n_first]), 200)


def test_ends_outside_of_their_rows_are_refused(backend, arena):
    csr = graph()
    for ends in (csr[0][1:] + 1, csr[0][:-1] - 1):
        with pytest.raises(ValueError, match="within their rows"):
            arena.csr(csr, ends=ends)


def test_spmm_ignores_what_is_masked_even_a_nan(backend, arena):
    csr = graph()
    x, mask = numbers(29, 7), np.ones((29, 7))
    x[::2], mask[::2] = np.nan, 0
    out = arena.garbage((37, 7))
    backend.spmm(arena.csr(csr), arena.put(x), out, mask=arena.put(mask))
    assert np.isfinite(arena.get(out)).all()


@pytest.mark.parametrize("n_rows, n_columns, width",
                         [(1, 29, 7), (0, 29, 7), (37, 0, 7), (37, 29, 0), (0, 0, 0)])
def test_spmm_of_degenerate_shapes(backend, arena, n_rows, n_columns, width):
    csr = graph(n_rows, n_columns)
    x, out = numbers(n_columns, width), arena.garbage((n_rows, width))
    backend.spmm(arena.csr(csr), arena.put(x), out)
    a, magnitude = dense(csr)
    close(arena.get(out), a @ x, magnitude @ np.abs(x), 200)


def test_spmm_of_blocks_of_rows_is_spmm_of_all_rows_bit_for_bit(backend, arena):
    csr = graph(300, 50)
    matrix, x = arena.csr(csr, **scales_of(csr, ("weights",))), arena.put(numbers(50, 41))
    whole, blocks = arena.garbage((300, 41)), arena.garbage((300, 41))
    backend.spmm(matrix, x, whole)
    for start, stop in [(0, 1), (1, 1), (1, 150), (150, 299), (299, 300)]:
        backend.spmm(matrix, x, blocks, rows=(start, stop))
    assert (arena.get(whole) == arena.get(blocks)).all()


@pytest.mark.thread_orders
@no_or_all_scales
def test_spmm_transposed_adds_the_product_with_the_transpose(backend, arena, width, names):
    check_spmm_transposed(backend, arena, width, names)


@one_scale
def test_spmm_transposed_with_one_scale_alone(backend, arena, name):
    check_spmm_transposed(backend, arena, 41, (name,))


def test_spmm_transposed_of_no_columns(backend, arena):
    check_spmm_transposed(backend, arena, 0, ALL_SCALES)


def check_spmm_transposed(backend, arena, width, names):
    csr = graph()
    scales = scales_of(csr, names)
    x, before = numbers(37, width), numbers(29, width, seed=5)
    out = arena.put(before)
    backend.spmm_transposed_add(arena.csr(csr, **scales), arena.put(x), out, rows=(2, 31))
    a, magnitude = dense(csr, **scales)
    close(arena.get(out), before + a[2:31].T @ x[2:31],
          np.abs(before) + magnitude[2:31].T @ np.abs(x[2:31]), 400)


@pytest.mark.parametrize("weighted", [False, True], ids=["ones", "weights"])
@pytest.mark.parametrize("threshold", [0, 1, 20000, 65535])
def test_sparse_dropout_draws_as_dropout_does(backend, arena, weighted, threshold):
    indptr, indices, n_columns = graph()
    ids = np.arange(37, dtype=np.int64) * 7 + 2 ** 33
    key, rows = philox.key(3, 1, 2, philox.DROPOUT), np.repeat(np.arange(37), np.diff(indptr))
    weights = numbers(len(indices)) if weighted else np.ones(len(indices))
    before = np.full(len(indices), 9.0, backend.dtype)
    matrix = arena.csr((indptr, indices, n_columns), weights=weights if weighted else None)
    out = backend.csr(indptr, indices, n_columns, weights=before.copy())
    backend.sparse_dropout(matrix, out, key, threshold, arena.put(ids), rows=(3, 30))
    bits = philox.bits16(key, ids, n_columns)[rows, indices]
    scale = np.float32(65536 / (65536 - threshold))
    expected = np.where(bits >= threshold, weights * scale, 0)
    expected = np.where((rows >= 3) & (rows < 30), expected, before)
    identity = backend.csr(np.arange(len(indices) + 1), np.arange(len(indices), dtype=np.int32),
                           len(indices), weights=out.weights)
    values = arena.garbage((len(indices), 1))
    backend.spmm(identity, arena.put(np.ones((len(indices), 1))), values)
    close(arena.get(values)[:, 0], expected)
    assert ((arena.get(values)[:, 0] == 0) == (expected == 0)).all()
