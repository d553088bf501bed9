"""Attention over edges: launches of the kernels of cuda/attention.cu."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpcgcn.backend.attention import AttentionOperations
from hpcgcn.backend.cuda_kernels import NULL, blocks, row_shape

WARPS = 8                        # per block: a warp per row and head
MAX_PARTS = 512                  # partial sums over rows: fixed, as everywhere


class CudaAttention(AttentionOperations):
    """The operations of attention on the device."""

    launch: Any
    scratch: Any
    _column_sums: Any
    dropout_arguments: Any

    def head_dots(self, x, vector, out):
        heads = out.shape[1]
        columns, n = x.shape[1] // heads, len(x) * heads
        if n:
            self.launch("head_dots", *row_shape(n, columns, 1),
                        (x, vector, out, np.int64(n), np.int32(heads), np.int32(columns)))

    def head_dots_backward(self, x, vector, dout, dx, dvector):
        n, width = x.shape
        if x.size:
            parts = min(blocks(n, 64), MAX_PARTS)
            partials = self.scratch((parts, width), np.float32)
            self.launch("head_dots_backward", (parts, blocks(width, 32)), (32, 8),
                        (x, vector, dout, dx, partials, np.int64(n), np.int32(dout.shape[1]),
                         np.int32(width)))
            self._column_sums(partials, parts, width, 0, width, dvector, 1, accumulate=True)

    def attend(self, matrix, x, source_logits, target_logits, state, sums, out, rows, first, last,
               dropout=None):
        (start, stop), heads = rows, source_logits.shape[1]
        if stop > start:
            self.launch("attend", *_warps(rows, heads),
                        (*_structure(matrix), x, source_logits, target_logits, state, sums, out,
                         np.int32(start), np.int32(stop - start), np.int32(heads),
                         np.int32(x.shape[1]), np.int32(first), np.int32(last),
                         *self._drawn(dropout)))

    def attention_gradients(self, dout, sums, state, target_logits, facts, dtarget_logits):
        heads = target_logits.shape[1]
        columns, n = dout.shape[1] // heads, len(dout) * heads
        if n:
            self.launch("attention_gradients", *row_shape(n, columns, 1),
                        (dout, sums, state, target_logits, facts, dtarget_logits, np.int64(n),
                         np.int32(heads), np.int32(columns)))

    def attend_backward(self, matrix, dout, facts, x, source_logits, dx, dsource_logits, rows,
                        accumulate=False, dropout=None):
        (start, stop), heads = rows, source_logits.shape[1]
        if stop > start:
            self.launch("attend_backward", *_warps(rows, heads),
                        (*_structure(matrix), dout, facts, x, source_logits, dx, dsource_logits,
                         np.int32(start), np.int32(stop - start), np.int32(heads),
                         np.int32(x.shape[1]), np.int32(accumulate), *self._drawn(dropout)))

    def _drawn(self, dropout) -> tuple:
        """Key, threshold, scale and ids as the kernels take them."""
        key, threshold, *ids = dropout or (None, 0, NULL, NULL)
        return *self.dropout_arguments(key, threshold), *ids


def _structure(matrix) -> tuple:
    return matrix.structure.indptr, matrix.structure.row_ends, matrix.structure.indices


def _warps(rows, heads: int) -> tuple[tuple[int], tuple[int, int]]:
    """Grid and block of a warp per row and head."""
    return (blocks((rows[1] - rows[0]) * heads, WARPS),), (32, WARPS)
