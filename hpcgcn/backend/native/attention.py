"""Attention over edges: calls of the C kernels (src/attention.h)."""

from __future__ import annotations

import numpy as np

from hpcgcn import philox
from hpcgcn.backend.attention import AttentionOperations

_NONE = (0, 0, 0, 1.0, None, None)


class NativeAttention(AttentionOperations):
    """The operations of attention in C."""

    threads: int
    _call: dict

    def head_dots(self, x, vector, out):
        self._call["head_dots"](self.threads, x, vector, out, len(x), out.shape[1], x.shape[1])

    def head_dots_backward(self, x, vector, dout, dx, dvector):
        self._call["head_dots_backward"](self.threads, x, vector, dout, dx, dvector, len(x),
                                         dout.shape[1], x.shape[1])

    def attend(self, matrix, x, source_logits, target_logits, state, sums, out, rows, first, last,
               dropout=None):
        self._call["attend"](self.threads, matrix.indptr, matrix.row_ends, matrix.indices,
                             matrix.shape[1], x, source_logits.shape[1], x.shape[1], source_logits,
                             target_logits, state, sums, out, *rows, first, last, *_drawn(dropout))

    def attention_gradients(self, dout, sums, state, target_logits, facts, dtarget_logits):
        self._call["attention_gradients"](self.threads, dout, sums, state, target_logits, facts,
                                          dtarget_logits, len(dout), target_logits.shape[1],
                                          dout.shape[1])

    def attend_backward(self, matrix, dout, facts, x, source_logits, dx, dsource_logits, rows,
                        accumulate=False, dropout=None):
        self._call["attend_backward"](self.threads, matrix.indptr, matrix.row_ends, matrix.indices,
                                      matrix.shape[1], dout, source_logits.shape[1], dout.shape[1],
                                      facts, x, source_logits, dx, dsource_logits, *rows,
                                      accumulate, *_drawn(dropout))


def _drawn(dropout) -> tuple:
    """Key, threshold, scale and ids as the kernels take them."""
    if dropout is None or not dropout[1]:
        return _NONE
    key, threshold, row_ids, column_ids = dropout
    return (*key, threshold, philox.dropout_scale(threshold),
            np.ascontiguousarray(row_ids, np.int64), np.ascontiguousarray(column_ids, np.int64))
