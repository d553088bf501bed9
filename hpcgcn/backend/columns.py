"""The operations on whole columns, and their contracts; part of the table in base.py.

BatchNorm is made of them: sums over rows as blocks of rows come, and then every column scaled and
shifted. Sums are float64: ranks add theirs up, and a variance is the small difference of two.
"""

from __future__ import annotations

import abc


class ColumnOperations(abc.ABC):
    """What every backend offers for columns."""

    @abc.abstractmethod
    def column_dots_add(self, x, y, out):
        """out += the sum over rows of x * y; out (width,) float64, products and sums in float64.

        y may be x, or None: then 1 everywhere. Deterministic, independent of the number of
        threads.
        """

    @abc.abstractmethod
    def column_affine(self, x, scale, y, weight, shift, out):
        """out = x * scale + y * weight + shift; scale, weight and shift (width,).

        y and weight may be None: then without that term. out may be x or y.
        """
