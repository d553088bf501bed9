"""Sparse, dense and row operations: one suite over all backends, against straightforward NumPy in float64."""

import numpy as np
import pytest
from backends import close

from hpcgcn import philox
from hpcgcn.backend.reference import from_bf16, to_bf16

WIDTHS = (1, 3, 7, 16, 41, 128, 602)
STORED = {"fp32": None, "fp16": np.float16, "bf16": np.uint16}


def numbers(*shape, seed=0):
    """Standard normal numbers in float64 that fp32 holds exactly."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(np.float64)


def graph(n_rows=37, n_columns=29, seed=0):
    """A small CSR with empty rows, one very long row, and repeated and unsorted indices."""
    rng = np.random.default_rng(seed)
    degrees = rng.integers(0, 9, n_rows)
    degrees[:1], degrees[n_rows // 2:n_rows // 2 + 1], degrees[-1:] = 0, 200, 0
    if n_columns == 0:
        degrees[:] = 0
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    indices = rng.integers(0, max(n_columns, 1), indptr[-1]).astype(np.int32)
    return indptr, indices, n_columns


def scales_of(csr, names, seed=1):
    """The scales named, as host arrays."""
    indptr, indices, n_columns = csr
    sizes = {"weights": len(indices), "row_scale": len(indptr) - 1, "column_scale": n_columns}
    return {name: numbers(sizes[name], seed=seed + i) for i, name in enumerate(names)}


def dense(csr, weights=None, row_scale=None, column_scale=None):
    """The matrix in float64, and the same of the magnitudes."""
    indptr, indices, n_columns = csr
    n_rows = len(indptr) - 1
    values = np.ones(len(indices)) if weights is None else weights
    rows = np.repeat(np.arange(n_rows), np.diff(indptr))
    matrix, magnitude = np.zeros((2, n_rows, n_columns))
    scale = np.outer(np.ones(n_rows) if row_scale is None else row_scale,
                     np.ones(n_columns) if column_scale is None else column_scale)
    np.add.at(matrix, (rows, indices), values)
    np.add.at(magnitude, (rows, indices), np.abs(values))
    return matrix * scale, magnitude * np.abs(scale)


def stored(values, kind):
    """Values in a storage type, and what they then are in float64."""
    if kind == "bf16":
        return to_bf16(values), from_bf16(to_bf16(values)).astype(np.float64)
    held = values.astype(STORED[kind] or values.dtype)
    return held, held.astype(np.float64)


# -- arrays -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("shape", [(0,), (5,), (3, 7), (0, 4), (4, 0)])
def test_empty_and_zeros_have_the_shape_and_type(backend, shape):
    assert backend.empty(shape).shape == shape and backend.empty(shape).dtype == backend.dtype
    zeros = backend.zeros(shape, np.int32)
    assert zeros.dtype == np.int32 and not backend.to_host(zeros).any()


def test_copy_goes_between_host_and_backend(backend, arena):
    values = numbers(5, 3).astype(backend.dtype)
    target = arena.garbage((5, 3))
    backend.copy(values, target)
    back = np.empty((5, 3), backend.dtype)
    backend.copy(target, back)
    assert (back == values).all()


@pytest.mark.parametrize("source, target", [((0, 4), (2, 6)), ((3, 7), None), (None, (1, 5)), ((2, 2), (1, 1))])
def test_copy_takes_blocks_of_columns(backend, arena, source, target):
    values, before = numbers(5, 7), numbers(5, 9, seed=1)
    width = (source or target)[1] - (source or target)[0]
    read = arena.put(values)[:, slice(*source)] if source else arena.put(values[:, :width])
    whole = arena.put(before if target else before[:, :width])
    backend.copy(read, whole[:, slice(*target)] if target else whole)
    expected = before.copy() if target else before[:, :width].copy()
    expected[:, slice(*target) if target else slice(None)] = values[:, slice(*source) if source else slice(0, width)]
    assert (arena.get(whole) == expected).all()


def test_blocks_of_columns_go_to_the_host_and_back(backend, arena):
    values = numbers(5, 7).astype(backend.dtype)
    whole, back = arena.put(values), np.empty((5, 3), backend.dtype)
    backend.copy(whole[:, 2:5], back)
    backend.copy(2 * back, whole[:, 2:5])
    values[:, 2:5] *= 2
    assert (back * 2 == values[:, 2:5]).all() and (arena.get(whole) == values).all()


def test_a_message_is_aligned_and_as_long_as_asked(backend):
    message = backend.message(101)
    assert message.array.nbytes == 101 and np.asarray(message.mpi).ctypes.data % 64 == 0
    backend.before_send(message)
    backend.before_receive(message)
    backend.after_receive(message)


# -- sparse -----------------------------------------------------------------------------------------------------------

SCALES = [(), ("weights",), ("row_scale",), ("column_scale",), ("weights", "row_scale", "column_scale")]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("names", SCALES, ids="+".join)
def test_spmm(backend, arena, width, names):
    csr = graph()
    scales = scales_of(csr, names)
    x, out = numbers(29, width), arena.garbage((37, width))
    matrix = arena.csr(csr, **scales)
    assert matrix.shape == (37, 29) and matrix.nnz == len(csr[1])
    backend.spmm(matrix, arena.put(x), out)
    a, magnitude = dense(csr, **scales)
    close(arena.get(out), a @ x, magnitude @ np.abs(x), 200)


@pytest.mark.parametrize("width", WIDTHS)
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
    backend.spmm(arena.csr(csr, **scales), arena.put(held, STORED[kind]), out, rows=(start, stop), accumulate=True,
                 mask=mask, mask_scale=1.25)
    a, magnitude = dense(csr, **scales)
    after = arena.get(out)
    close(after[start:stop], before[start:stop] + (a @ x)[start:stop],
          np.abs(before[start:stop]) + (magnitude @ np.abs(x))[start:stop], 200)
    assert (after[:start] == before[:start]).all() and (after[stop:] == before[stop:]).all()


def test_spmm_ignores_what_is_masked_even_a_nan(backend, arena):
    csr = graph()
    x, mask = numbers(29, 7), np.ones((29, 7))
    x[::2], mask[::2] = np.nan, 0
    out = arena.garbage((37, 7))
    backend.spmm(arena.csr(csr), arena.put(x), out, mask=arena.put(mask))
    assert np.isfinite(arena.get(out)).all()


@pytest.mark.parametrize("n_rows, n_columns, width", [(1, 29, 7), (0, 29, 7), (37, 0, 7), (37, 29, 0), (0, 0, 0)])
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


@pytest.mark.parametrize("width", WIDTHS + (0,))
@pytest.mark.parametrize("names", SCALES, ids="+".join)
def test_spmm_transposed_add(backend, arena, width, names):
    csr = graph()
    scales = scales_of(csr, names)
    x, before = numbers(37, width), numbers(29, width, seed=5)
    out = arena.put(before)
    backend.spmm_transposed_add(arena.csr(csr, **scales), arena.put(x), out, rows=(2, 31))
    a, magnitude = dense(csr, **scales)
    close(arena.get(out), before + a[2:31].T @ x[2:31], np.abs(before) + magnitude[2:31].T @ np.abs(x[2:31]), 400)


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
    identity = backend.csr(np.arange(len(indices) + 1), np.arange(len(indices), dtype=np.int32), len(indices),
                           weights=out.weights)
    values = arena.garbage((len(indices), 1))
    backend.spmm(identity, arena.put(np.ones((len(indices), 1))), values)
    close(arena.get(values)[:, 0], expected)
    assert ((arena.get(values)[:, 0] == 0) == (expected == 0)).all()


# -- dense ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("accumulate, alpha", [(False, 1.0), (True, 1.0), (False, -0.75), (True, 0.5)])
@pytest.mark.parametrize("m, k, n", [(1, 1, 1), (7, 41, 3), (130, 16, 602), (5, 0, 4), (0, 3, 4), (3, 4, 0)])
def test_gemm(backend, arena, m, k, n, transpose_a, transpose_b, accumulate, alpha):
    a, b, before = numbers(m, k), numbers(k, n, seed=1), numbers(m, n, seed=2)
    out = arena.put(before) if accumulate else arena.garbage((m, n))
    backend.gemm(arena.put(a.T if transpose_a else a), arena.put(b.T if transpose_b else b), out, transpose_a,
                 transpose_b, accumulate, alpha)
    close(arena.get(out), alpha * a @ b + (before if accumulate else 0),
          np.abs(alpha) * np.abs(a) @ np.abs(b) + np.abs(before), k)


def test_gemm_accumulates_into_more_rows_than_one_block(backend, arena):
    a, b, before = numbers(3000, 5), numbers(5, 602, seed=1), numbers(3000, 602, seed=2)
    out = arena.put(before)
    backend.gemm(arena.put(a), arena.put(b), out, accumulate=True)
    close(arena.get(out), before + a @ b, np.abs(before) + np.abs(a) @ np.abs(b), 5)


@pytest.mark.parametrize("shape", [(1, 1), (5, 41), (300, 129), (0, 3)])
@pytest.mark.parametrize("target", ["new", "x", "y"])
def test_axpby(backend, arena, shape, target):
    x, y = numbers(*shape), numbers(*shape, seed=1)
    arrays = {"new": arena.garbage(shape), "x": arena.put(x), "y": arena.put(y)}
    backend.axpby(0.3, arrays["x"], -1.7, arrays["y"], arrays[target])
    close(arena.get(arrays[target]), 0.3 * x - 1.7 * y, 0.3 * np.abs(x) + 1.7 * np.abs(y), 4)


def test_axpby_without_y_does_not_read_it(backend, arena):
    x, out = numbers(4, 5), arena.garbage((4, 5))
    backend.axpby(2.0, arena.put(x), 0.0, None, out)
    assert (arena.get(out) == 2 * x).all()
    backend.axpby(2.0, arena.put(x), 0.0, arena.garbage((4, 5)), out)
    assert (arena.get(out) == 2 * x).all()


@pytest.mark.parametrize("n", [0, 1, 65, 1000])
@pytest.mark.parametrize("width", WIDTHS + (0,))
def test_column_sum_add(backend, arena, n, width):
    x, before = numbers(n, width), numbers(width, seed=1)
    out = arena.put(before)
    backend.column_sum_add(arena.put(x), out)
    close(arena.get(out), before + x.sum(axis=0), np.abs(before) + np.abs(x).sum(axis=0), n)


@pytest.mark.parametrize("n", [0, 1, 63, 100_003])
def test_square_sum(backend, arena, n):
    x = numbers(n)
    assert backend.square_sum(arena.put(x)) == pytest.approx(float((x ** 2).sum()), rel=1e-12)


# -- rows -------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize("width", WIDTHS)
def test_gather_rows(backend, arena, width, kind):
    x, index = numbers(20, width) * 128, np.array([3, 3, 19, 0, 7, 3], np.int32)
    out = arena.garbage((6, width), STORED[kind])
    backend.gather_rows(arena.put(x), arena.put(index), out)
    assert (arena.get(out) == stored(x, kind)[0][index]).all()


@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize("width", WIDTHS)
def test_scatter_add_rows(backend, arena, width, kind):
    (held, x), index = stored(numbers(5, width), kind), np.array([3, 19, 0, 7, 11], np.int32)
    before = numbers(20, width, seed=1)
    out = arena.put(before)
    backend.scatter_add_rows(arena.put(held, STORED[kind]), arena.put(index), out)
    expected = before.copy()
    expected[index] += x
    close(arena.get(out), expected, np.abs(before) + np.abs(expected))


def test_no_rows_are_gathered_scattered_and_converted(backend, arena):
    none, x = arena.put(np.zeros(0, np.int32)), arena.put(numbers(4, 3))
    backend.gather_rows(x, none, arena.garbage((0, 3)))
    backend.scatter_add_rows(arena.garbage((0, 3)), none, x)
    backend.convert(arena.garbage((0, 3)), arena.garbage((0, 3), np.float16))
    assert (arena.get(x) == numbers(4, 3)).all()


AWKWARD = np.array([0.0, -0.0, 1.0, -1.5, 65504.0, 65519.0, 65520.0, 1e5, -1e30, 6.1e-5, 6.0e-5, 6e-8, 2.9e-8, 3e-8,
                    1e-40, 1.00390625, 1.01171875, 1.0009765625, 1.00048828125, 1.00146484375, np.inf, -np.inf, np.nan],
                   np.float32)


@pytest.mark.parametrize("kind", STORED)
def test_convert_rounds_to_nearest_even_and_keeps_what_is_not_finite(backend, arena, kind):
    x = np.concatenate([AWKWARD, numbers(3 * 67 - len(AWKWARD)) * 1024]).reshape(3, 67)
    out, back = arena.garbage(x.shape, STORED[kind]), arena.garbage(x.shape)
    backend.convert(arena.put(x), out)
    with np.errstate(over="ignore"):
        held, expected = stored(x, kind)
    number = ~np.isnan(x)
    assert (arena.get(out)[number] == held[number]).all()
    backend.convert(out, back)
    np.testing.assert_array_equal(arena.get(back), expected.astype(backend.dtype))


def test_all_sixteen_bit_numbers_widen_exactly(backend, arena):
    bits = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    for array, expected in ((bits, from_bf16(bits)), (bits.view(np.float16), bits.view(np.float16))):
        out = arena.garbage((256, 256))
        with np.errstate(invalid="ignore"):         # among them are signalling NaNs
            backend.convert(arena.put(array, array.dtype), out)
            expected = expected.astype(backend.dtype)
        np.testing.assert_array_equal(arena.get(out), expected)


@pytest.mark.parametrize("width", WIDTHS)
def test_columns_are_packed_and_unpacked(backend, arena, width):
    x, index = numbers(20, width), np.array([3, 19, 0, 7, 3], np.int32)
    columns = np.random.default_rng(0).permutation(width)[:(width + 1) // 2].astype(np.int32)
    packed, out = arena.garbage((5, len(columns))), arena.garbage((5, width))
    backend.pack_columns(arena.put(x), arena.put(index), arena.put(columns), packed)
    assert (arena.get(packed) == x[index][:, columns]).all()
    backend.unpack_columns(packed, arena.put(columns), out, 1.5)
    expected = np.zeros((5, width))
    expected[:, columns] = x[index][:, columns] * 1.5
    close(arena.get(out), expected)
