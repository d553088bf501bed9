"""Arithmetic of PTX that NumPy does not offer: single and directed roundings, shifts."""

from __future__ import annotations

import numpy as np

SMALLEST_NORMAL = np.float32(1.17549435e-38)


def view(x, dtype):
    """The same bits as another type."""
    return np.asarray(x).view(dtype)


def ftz(x):
    """Subnormal numbers to zero, with their sign."""
    x = np.asarray(x)
    return np.where(np.abs(x) < SMALLEST_NORMAL, np.copysign(np.float32(0), x), x)


def sat(x):
    """To [0, 1]; NaN to 0."""
    return np.where(np.isnan(x), np.float32(0), np.clip(x, np.float32(0), np.float32(1)))


def _two_sum(a, b):
    """The rounded sum of two doubles, and its error."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _product_plus(a, b, c):
    product = np.asarray(a, np.float64) * np.asarray(b, np.float64)      # of two floats: exact
    return np.broadcast_arrays(*_two_sum(product, np.asarray(c, np.float64)))


def fma(a, b, c):
    """float32 a * b + c with one rounding: the sum in double rounded to odd, then to float."""
    total, error = _product_plus(a, b, c)
    bits = np.array(total).view(np.int64)
    inexact = (error != 0) & np.isfinite(total) & np.isfinite(error) & ((bits & 1) == 0)
    away = (error > 0) == (total > 0)        # the exact sum is farther from 0 than `total`
    bits = np.where(inexact, np.where(away, bits + 1, bits - 1), bits)
    return bits.view(np.float64).astype(np.float32)


def fma_rm(a, b, c):
    """float32 a * b + c rounded down."""
    total, error = _product_plus(a, b, c)
    rounded, wide = _as_float(total)
    above = (wide > total) | ((wide == total) & (error < 0))
    return np.where(above, np.nextafter(rounded, np.float32(-np.inf)), rounded)


def add_rz(a, b):
    """float32 a + b rounded towards 0."""
    total, error = _two_sum(np.asarray(a, np.float64), np.asarray(b, np.float64))
    rounded, wide = _as_float(total)
    too_high = (wide > total) | ((wide == total) & (error < 0))
    too_low = (wide < total) | ((wide == total) & (error > 0))
    beyond = ((total > 0) & too_high) | ((total < 0) & too_low)
    return np.where(beyond, np.nextafter(rounded, np.float32(0)), rounded)


def _as_float(x):
    rounded = np.asarray(x).astype(np.float32)
    return rounded, rounded.astype(np.float64)


def fma64(a, b, c):
    """float64 a * b + c.

    The product keeps 64 bits, which is exact for what the kernels multiply: floats and small
    integers.
    """
    a, b, c = (np.asarray(x, np.longdouble) for x in (a, b, c))
    return (a * b + c).astype(np.float64)


def shl(a, by):
    """Shifts by the width and more give 0."""
    bits, by = 8 * a.dtype.itemsize, np.asarray(by)
    return np.where(by >= bits, a.dtype.type(0), a << np.minimum(by, bits - 1).astype(a.dtype))


def shr(a, by):
    """The same to the right; negative numbers give -1 in the end."""
    bits, by = 8 * a.dtype.itemsize, np.asarray(by)
    shifted = a >> np.minimum(by, bits - 1).astype(a.dtype)
    return shifted if a.dtype.kind == "i" else np.where(by >= bits, a.dtype.type(0), shifted)


def funnel(low, high, by, left: bool):
    """The upper (left) or lower half of high:low shifted by 0 to 31."""
    both = (np.asarray(high).astype(np.uint64) << np.uint64(32)) | low
    by = (by & np.uint32(31)).astype(np.uint64)
    shifted = (both << by) >> np.uint64(32) if left else both >> by
    return (shifted & np.uint64(0xffffffff)).astype(np.uint32)


def to_integer(a, dtype):
    """Towards 0, clamped to the type; NaN to 0."""
    limits = np.iinfo(dtype)
    whole = np.trunc(np.where(np.isnan(a), 0, a).astype(np.float64))
    inside = np.clip(whole, limits.min, limits.max)
    return np.where(whole >= float(limits.max), limits.max,
                    np.where(whole <= float(limits.min), limits.min, inside)).astype(dtype)


def narrow16(x):
    """float32 to float16; a NaN becomes the one that the hardware writes."""
    half = np.asarray(x).astype(np.float16)
    return np.where(np.isnan(x), np.array(0x7fff, np.uint16).view(np.float16), half)


def minimum(a, b):
    """Of floats: the number, if the other is NaN."""
    return np.fmin(a, b)


def maximum(a, b):
    return np.fmax(a, b)


HELPERS = {f.__name__: f for f in (view, ftz, sat, fma, fma_rm, add_rz, fma64, shl, shr, funnel,
                                   to_integer, narrow16, minimum, maximum)}
