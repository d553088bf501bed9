"""Operations on whole columns: launches of kernels of cuda/reduce.cu and cuda/rows.cu."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpcgcn.backend.columns import ColumnOperations
from hpcgcn.backend.cuda_kernels import BLOCK, NULL, blocks, row_shape

MAX_PARTS = 64                   # of eight strips each: fixed partial sums, as everywhere
STRIPS = 8


class CudaColumns(ColumnOperations):
    """The operations on columns on the device."""

    launch: Any
    scratch: Any

    def column_dots_add(self, x, y, out):
        n, width = x.shape
        if x.size:
            parts = min(blocks(n, 64), MAX_PARTS)
            partials = self.scratch((parts * STRIPS, width), np.float64)
            self.launch("column_dots", (parts, blocks(width, 32)), (32, STRIPS),
                        (x, NULL if y is None else y, np.int64(n), np.int32(width), partials))
            self.launch("column_totals", (blocks(width, BLOCK),), (BLOCK,),
                        (partials, np.int32(parts * STRIPS), np.int32(width), out))

    def column_affine(self, x, scale, y, weight, shift, out):
        n, width = x.shape
        if x.size:
            y, weight = (NULL, NULL) if y is None else (y, weight)
            self.launch("column_affine", *row_shape(n, width, 1),
                        (x, scale, y, weight, shift, out, np.int64(n), np.int32(width)))
