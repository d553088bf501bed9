"""The quantiser: every backend makes the bytes of the reference, and these have the properties that
are promised.

What follows from the bytes alone (how far a row moves, that rounding is unbiased) is tested on the
reference, at every number of bits and width; the other backends are held to its bytes on the same
rows.
"""

import numpy as np
import pytest
from backends import Arena

from hpcgcn import philox
from hpcgcn.backend.reference import ReferenceBackend, from_bf16

BITS = (1, 2, 4, 8)
WIDTHS = (1, 3, 7, 41, 128, 602)
ORACLE = ReferenceBackend(np.float32)
headers = pytest.mark.parametrize("wide", [False, True], ids=["bf16", "fp32"])
every_bits = pytest.mark.parametrize("bits", BITS)
KEY = philox.key(11, 2, 1, philox.ROUNDING)


def coded_bytes(n, width, bits, wide):
    """The length of n coded rows, by formula."""
    return n * ((8 if wide else 4) + -(-width * bits // 8))


def encode(arena, rows, bits, wide, index=None, ids=None, key=KEY):
    """The bytes of coded rows, as a backend array with canaries."""
    n = len(rows) if index is None else len(index)
    ids = np.arange(n, dtype=np.int64) + 2 ** 35 if ids is None else ids
    out = arena.garbage((coded_bytes(n, rows.shape[1], bits, wide),), np.uint8)
    arena.backend.quantise(arena.put(rows), None if index is None else arena.put(index),
                           arena.put(ids), bits, key, wide, out)
    return out


def decode(arena, data, n, width, bits, wide):
    """The rows that coded bytes stand for."""
    out = arena.garbage((n, width))
    arena.backend.dequantise(data, bits, wide, out)
    return arena.get(out)


def header_of(data, n, wide):
    """The offsets and scales in coded bytes."""
    header = data[:n * (8 if wide else 4)].copy()
    return (header.view(np.float32) if wide else from_bf16(header.view(np.uint16))).reshape(n, 2).T


def awkward_rows(width):
    """Normal, constant, zero, signed zero, tiny, subnormal, huge, shifted and one-outlier rows."""
    rng = np.random.default_rng(width)
    normal = rng.standard_normal((12, width)).astype(np.float32)
    rows = [*normal, normal[0] * 0 + 3.7, normal[0] * 0 - 1e-8, normal[0] * 0, -(normal[0] * 0),
            normal[0] * 1e-12,
            normal[1] * 1e-40, normal[2] * 1e30, normal[3] * 1e-3 + 1e4, np.maximum(normal[4], 0)]
    rows.append(np.where(np.arange(width) == width // 2, np.float32(-1e20), normal[5]))
    rows.append(np.where(rng.random(width) < 0.5, np.float32(-0.0), np.float32(0.0)))
    return np.array(rows, np.float32)


# -- every backend ---------------------------------------------------------------------------------

@pytest.mark.thread_orders
@every_bits
def test_bytes_are_those_of_the_reference(arena, width, bits):
    check_bytes(arena, awkward_rows(width), bits, wide=False)


@every_bits
def test_bytes_with_a_wide_header_are_those_of_the_reference(arena, bits):
    check_bytes(arena, awkward_rows(41), bits, wide=True)


def test_bytes_of_many_rows_are_those_of_the_reference(arena):
    rows = np.random.default_rng(0).standard_normal((4000, 41)).astype(np.float32)
    check_bytes(arena, rows * np.float32(1e-8), 2, wide=False)


def check_bytes(arena, rows, bits, wide):
    """Stochastic and nearest rounding, of all rows and of chosen ones, and what is decoded."""
    oracle, width = Arena(ORACLE), rows.shape[1]
    index = np.random.default_rng(1).integers(0, len(rows), 40).astype(np.int32)
    for chosen, key in ((None, KEY), (index, KEY), (None, None), (index, None)):
        data = encode(arena, rows, bits, wide, chosen, key=key)
        expected = encode(oracle, rows, bits, wide, chosen, key=key)
        assert (arena.get(data) == expected).all()
        n = len(rows) if chosen is None else len(chosen)
        decoded = decode(arena, data, n, width, bits, wide)
        assert (decoded == decode(oracle, expected, n, width, bits, wide)).all()


@every_bits
def test_a_row_that_is_not_finite_decodes_to_nan_and_spares_the_others(arena, bits):
    rows = awkward_rows(41)
    rows[3, 40], rows[7, 0], rows[9, 20] = np.nan, np.inf, -np.inf
    decoded = decode(arena, encode(arena, rows, bits, False), len(rows), 41, bits, False)
    assert np.isnan(decoded[[3, 7, 9]]).all() and np.isfinite(np.delete(decoded, [3, 7, 9],
                                                                        axis=0)).all()


@pytest.mark.parametrize("n, width", [(0, 5), (3, 0), (0, 0)])
def test_nothing_codes_to_its_header(arena, n, width):
    data = encode(arena, np.zeros((n, width), np.float32), 2, False)
    assert not arena.get(data).any()
    decode(arena, data, n, width, 2, False)


def test_draws_follow_the_id_not_the_position(arena):
    rows = np.random.default_rng(0).standard_normal((6, 41)).astype(np.float32)
    ids = np.array([5, 2 ** 40, 7, 2 ** 32 + 5, 1, 0], np.int64)
    order = np.array([3, 1, 5, 0, 2, 4], np.int32)
    straight = decode(arena, encode(arena, rows, 2, True, ids=ids), 6, 41, 2, True)
    shuffled = decode(arena, encode(arena, rows, 2, True, index=order, ids=ids[order]), 6, 41, 2,
                      True)
    assert (straight[order] == shuffled).all()


# -- the reference ---------------------------------------------------------------------------------

@pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"])
def oracle(request):
    """Arrays on the reference."""
    oracle = Arena(ReferenceBackend(request.param))
    yield oracle
    oracle.check()


@headers
@every_bits
@pytest.mark.parametrize("row_width", WIDTHS)
def test_every_row_survives_to_within_a_step(oracle, row_width, bits, wide):
    rows = awkward_rows(row_width)
    data = encode(oracle, rows, bits, wide)
    zero, step = header_of(oracle.get(data), len(rows), wide)
    decoded = decode(oracle, data, len(rows), row_width, bits, wide)
    error = np.abs(decoded.astype(np.float64) - rows).max(axis=1)
    # Stochastic rounding errs by less than a step; decoding rounds once more, at the size of the
    # row's numbers.
    slack = np.finfo(np.float32).eps * (np.abs(zero) + step * 2.0 ** bits) + 1e-44
    assert (error <= step + slack).all()
    assert (zero <= rows.min(axis=1)).all()
    assert (zero.astype(np.float64)
            + step.astype(np.float64) * (2 ** bits - 1) >= rows.max(axis=1)).all()


@every_bits
def test_nearest_rounding_errs_by_at_most_half_a_cell(oracle, bits):
    rows = np.random.default_rng(4).standard_normal((50, 128)).astype(np.float32)
    decoded = decode(oracle, encode(oracle, rows, bits, True, key=None), *rows.shape, bits, True)
    cell = (rows.max(axis=1) - rows.min(axis=1)) / 2 ** bits
    assert (np.abs(decoded - rows) <= 0.501 * cell[:, None]).all()


@every_bits
def test_constant_rows_decode_exactly_where_the_header_is_fp32(oracle, bits):
    rows = np.repeat(np.array([[3.7], [0.0], [-1e-8], [1e-12], [1e30]], np.float32), 41, axis=1)
    assert (decode(oracle, encode(oracle, rows, bits, True), 5, 41, bits, True) == rows).all()


@headers
@every_bits
def test_rounding_is_unbiased(oracle, bits, wide):
    n, width = 4000, 41
    row = np.random.default_rng(bits).standard_normal(width).astype(np.float32) * np.float32(1e-8)
    rows = np.repeat(row[None, :], n, axis=0)
    data = encode(oracle, rows, bits, wide)
    decoded = decode(oracle, data, n, width, bits, wide).astype(np.float64)
    zero, step = (values[0].astype(np.float64) for values in header_of(oracle.get(data), n, wide))
    up = (row - zero) / step % 1                                    # the probability of rounding up
    # Six standard errors; rare events need more, 20 of them; fp32 and 16 random bits resolve no
    # finer than the rest.
    allowed = step * (6 * np.sqrt(up * (1 - up) / n) + 20 / n + 2.0 **
                      -16) + 1e-6 * np.abs(row).max()
    assert (np.abs(decoded.mean(axis=0) - row) <= allowed).all()


def test_byte_counts_are_the_formula_and_one_bit_is_small():
    assert coded_bytes(1, 128, 1, wide=False) == 20
    assert coded_bytes(3, 41, 2, wide=True) == 3 * (8 + 11)
    assert coded_bytes(1, 602, 8, wide=False) == 606
