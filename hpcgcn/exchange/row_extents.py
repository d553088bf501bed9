"""The least and the greatest element of rows, on any backend: `quantise` finds them for its
scales."""

from __future__ import annotations

from typing import Any

import numpy as np


class RowExtents:
    """Reads them from the head of rows that are coded for nothing else; keeps the memory."""

    def __init__(self):
        self._coded: Any = None

    def halves(self, backend, x, index, ids) -> tuple[np.ndarray, np.ndarray]:
        """(centre of the lower half, half the range) of rows x[index]; NaN where one is not
        finite."""
        n, width = len(ids), x.shape[1]
        size = n * (8 + -(-width // 8))
        if self._coded is None or len(self._coded) < size:
            self._coded = backend.zeros(size, np.uint8)
        coded = self._coded[:size]
        backend.quantise(x, index, ids, 1, None, True, coded)
        pairs = np.asarray(backend.to_host(coded[:8 * n])).view(np.float32).reshape(n, 2)
        return pairs[:, 0], pairs[:, 1]

    def largest(self, backend, x, index, ids) -> np.ndarray:
        """The largest absolute value of each row, but for rounding."""
        centre, half = (array.astype(np.float64) for array in self.halves(backend, x, index, ids))
        return np.maximum(np.abs(centre - half / 2), np.abs(centre + 1.5 * half))
