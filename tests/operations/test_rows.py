"""Rows gathered, scattered, converted and packed, on every backend."""

import numpy as np
import pytest
from arrays import STORED, numbers, stored
from backends import close

from hpcgcn.backend.reference import from_bf16


@pytest.mark.parametrize("kind", STORED)
def test_gathered_rows_are_copies_in_the_stored_type(backend, arena, width, kind):
    x, index = numbers(20, width) * 128, np.array([3, 3, 19, 0, 7, 3], np.int32)
    out = arena.garbage((6, width), STORED[kind])
    backend.gather_rows(arena.put(x), arena.put(index), out)
    assert (arena.get(out) == stored(x, kind)[0][index]).all()


@pytest.mark.parametrize("kind", STORED)
def test_scattered_rows_are_added_to_their_targets(backend, arena, width, kind):
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


AWKWARD = np.array([0.0, -0.0, 1.0, -1.5, 65504.0, 65519.0, 65520.0, 1e5, -1e30, 6.1e-5, 6.0e-5,
                    6e-8, 2.9e-8, 3e-8, 1e-40, 1.00390625, 1.01171875, 1.0009765625, 1.00048828125,
                    1.00146484375, np.inf, -np.inf, np.nan], np.float32)


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
    for array, expected in ((bits, from_bf16(bits)),
                            (bits.view(np.float16), bits.view(np.float16))):
        out = arena.garbage((256, 256))
        with np.errstate(invalid="ignore"):         # among them are signalling NaNs
            backend.convert(arena.put(array, array.dtype), out)
            expected = expected.astype(backend.dtype)
        np.testing.assert_array_equal(arena.get(out), expected)


@pytest.mark.thread_orders
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
