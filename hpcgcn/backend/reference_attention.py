"""Attention over edges in NumPy: one array element per edge and head, clear and not fast."""

from __future__ import annotations

import numpy as np

from hpcgcn import philox
from hpcgcn.backend.attention import SLOPE, AttentionOperations


class ReferenceAttention(AttentionOperations):
    """The operations of attention on NumPy arrays."""

    dtype: np.dtype

    def head_dots(self, x, vector, out):
        out[...] = (by_head(x, out.shape[1]) * by_head(vector[None], out.shape[1])).sum(axis=2)

    def head_dots_backward(self, x, vector, dout, dx, dvector):
        heads = dout.shape[1]
        dx += flat(dout[:, :, None] * by_head(vector[None], heads))
        dvector += flat((dout[:, :, None] * by_head(x, heads)).sum(axis=0, keepdims=True))[0]

    def attend(self, matrix, x, source_logits, target_logits, state, sums, out, rows, first, last,
               dropout=None):
        (start, stop), heads, width = rows, source_logits.shape[1], x.shape[1]
        row, column = entries(matrix, start, stop)
        peak, total, positive = np.split(state[start:stop], 3, axis=1)           # views
        signed = sums[start:stop].reshape(stop - start, 2, heads, width // heads)
        if first:
            peak[...], total[...], positive[...], signed[...] = -np.inf, 0, 0, 0
        logit = source_logits[column] + target_logits[start + row]
        e = leaky(logit)
        old_peak = peak.copy()
        np.maximum.at(peak, row, e)
        with np.errstate(invalid="ignore"):                  # -inf - -inf: nothing was added yet
            shrink = np.where(np.isneginf(old_peak), 0, np.exp(old_peak - peak))
        total *= shrink
        positive *= shrink
        signed *= shrink[:, None, :, None]
        weight = np.exp(e - peak[row])
        np.add.at(total, row, weight)
        np.add.at(positive, row, np.where(logit > 0, weight, 0))
        weight = self._kept(weight, dropout, start + row, column, row_is_target=True)
        for side, used in enumerate((logit > 0, logit <= 0)):
            np.add.at(signed[:, side], row,
                      np.where(used, weight, 0)[:, :, None] * by_head(x[column], heads))
        if last:
            safe = np.where(total > 0, total, 1)
            peak[...] = np.where(total > 0, peak + np.log(safe), 0)
            positive /= safe
            signed /= safe[:, None, :, None]
            out[start:stop] = signed.sum(axis=1).reshape(stop - start, width)

    def attention_gradients(self, dout, sums, state, target_logits, facts, dtarget_logits):
        heads = target_logits.shape[1]
        signed = sums.reshape(len(sums), 2, heads, dout.shape[1] // heads)
        positive, negative = ((signed[:, side] * by_head(dout, heads)).sum(axis=2)
                              for side in (0, 1))
        product = positive + negative
        facts[...] = np.concatenate([target_logits, state[:, :heads], product], axis=1)
        # The gradients of a row's softmax add up to 0: those of the two sides are opposite.
        share = state[:, 2 * heads:]
        dtarget_logits[...] = self.dtype.type(1 - SLOPE) * (positive - product * share)

    def attend_backward(self, matrix, dout, facts, x, source_logits, dx, dsource_logits, rows,
                        accumulate=False, dropout=None):
        (start, stop), heads = rows, source_logits.shape[1]
        row, column = entries(matrix, start, stop)
        target_logits, logarithm, product = np.split(facts[column], 3, axis=1)
        logit = source_logits[start + row] + target_logits
        coefficient = np.exp(leaky(logit) - logarithm)
        kept = self._kept(coefficient, dropout, start + row, column, row_is_target=False)
        slope = np.where(logit > 0, 1, self.dtype.type(SLOPE))
        there = by_head(dout[column], heads)
        gradient = np.zeros((stop - start, heads, there.shape[2]), self.dtype)
        np.add.at(gradient, row, kept[:, :, None] * there)
        dlogit = slope * (kept * (there * by_head(x[start + row], heads)).sum(axis=2)
                          - coefficient * product)
        dsource_logits[start:stop] = 0
        np.add.at(dsource_logits, start + row, dlogit)
        dx[start:stop] = flat(gradient) + (dx[start:stop] if accumulate else 0)

    def _kept(self, weight, dropout, row, column, row_is_target: bool):
        """Weights (n_entries, heads) after dropout."""
        if dropout is None or not dropout[1]:
            return weight
        key, threshold, row_ids, column_ids = dropout
        here, there = row_ids[row].astype(np.uint64), column_ids[column].astype(np.uint64)
        target, source = (here, there) if row_is_target else (there, here)
        heads = weight.shape[1]
        blocks = np.arange(-(-heads // 8), dtype=np.uint64)
        low = np.uint64(0xFFFFFFFF)
        words = philox.philox_words(((source[:, None] * np.uint64(len(blocks)) + blocks) & low,
                                     target[:, None] & low, target[:, None] >> np.uint64(32), 0),
                                    key)
        bits = np.stack([half for word in words
                         for half in (word & np.uint64(0xFFFF), word >> np.uint64(16))], axis=-1)
        bits = bits.reshape(len(weight), 8 * len(blocks))[:, :heads]
        return np.where(bits >= threshold,
                        weight * self.dtype.type(philox.dropout_scale(threshold)), 0)


def by_head(x: np.ndarray, heads: int) -> np.ndarray:
    """(n, width) as (n, heads, columns of a head)."""
    return x.reshape(len(x), heads, x.shape[1] // heads)


def flat(x: np.ndarray) -> np.ndarray:
    """(n, heads, columns of a head) as (n, width)."""
    return x.reshape(len(x), x.shape[1] * x.shape[2])


def leaky(logit: np.ndarray) -> np.ndarray:
    """The leaky ReLU of attention."""
    return np.where(logit > 0, logit, logit.dtype.type(SLOPE) * logit)


def entries(matrix, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    """(row, counted from start; column) of every entry of rows start:stop."""
    row_ends = matrix.indptr[1:] if matrix.row_ends is None else matrix.row_ends
    lengths = np.diff(matrix.indptr[start:stop + 1])
    row = np.repeat(np.arange(stop - start), lengths)
    first, last = int(matrix.indptr[start]), int(matrix.indptr[stop])
    kept = np.arange(first, last) < row_ends[start:stop][row]
    return row[kept], matrix.indices[first:last][kept]
