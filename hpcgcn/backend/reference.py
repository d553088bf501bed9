"""The oracle: every operation in plain NumPy and SciPy, in float32 or float64.

Clear first, fast where it is free.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from hpcgcn import philox
from hpcgcn.backend.base import Backend, Message, count_entries
from hpcgcn.backend.reference_attention import ReferenceAttention
from hpcgcn.backend.rounding import check_precision, rounded

EPSILON = 1e-5                          # LayerNorm's


class CsrMatrix:
    """A sparse matrix handle: shared structure, optional weights and scales."""

    def __init__(self, indptr, indices, n_columns, weights, row_scale, column_scale, row_ends):
        self.indptr, self.indices, self.row_ends = indptr, indices, row_ends
        self.weights, self.row_scale, self.column_scale = weights, row_scale, column_scale
        self.shape, self.nnz = (len(indptr) - 1, n_columns), count_entries(indptr, row_ends)

    def block(self, start: int, stop: int, dtype) -> sp.csr_array:
        """Rows start:stop as a SciPy matrix with all scales multiplied in."""
        first, last = int(self.indptr[start]), int(self.indptr[stop])
        indices = self.indices[first:last]
        data = np.ones(last - first,
                       dtype) if self.weights is None else self.weights[first:last].astype(dtype)
        if self.column_scale is not None:
            data = data * self.column_scale[indices].astype(dtype)
        if self.row_scale is not None:
            data = data * np.repeat(self.row_scale[start:stop],
                                    np.diff(self.indptr[start:stop + 1])).astype(dtype)
        indptr = self.indptr[start:stop + 1] - first
        if self.row_ends is not None:
            kept = np.arange(first, last) < np.repeat(self.row_ends[start:stop], np.diff(indptr))
            data, indices = data[kept], indices[kept]
            lengths = self.row_ends[start:stop] - self.indptr[start:stop]
            indptr = np.concatenate([[0], np.cumsum(lengths)])
        return sp.csr_array((data, indices, indptr), shape=(stop - start, self.shape[1]))


def to_bf16(x: np.ndarray) -> np.ndarray:
    """float -> bfloat16 bits (uint16), to nearest, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(x), 0x7FC0, rounded).astype(np.uint16)


def from_bf16(x: np.ndarray) -> np.ndarray:
    """bfloat16 bits -> float32."""
    return (x.astype(np.uint32) << 16).view(np.float32)


def bf16_towards(x: np.ndarray, upward: bool) -> np.ndarray:
    """float32 -> the nearest bfloat16 that is not below (upward) or not above it, as float32."""
    truncated = (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)   # towards zero
    away = ((x.view(np.uint32) & np.uint32(0xFFFF0000)) + np.uint32(0x10000)).view(np.float32)
    needs_away = (truncated != x) & ((x > 0) if upward else (x < 0))
    return np.where(needs_away, away, truncated).astype(np.float32)


def widen(x: np.ndarray, dtype) -> np.ndarray:
    """Rows in any storage type as `dtype`."""
    return (from_bf16(x) if x.dtype == np.uint16 else x).astype(dtype, copy=False)


def narrow(x: np.ndarray, dtype) -> np.ndarray:
    """Rows of the arithmetic type in a storage type."""
    if dtype == np.uint16:
        return to_bf16(x)
    with np.errstate(over="ignore"):
        return x.astype(dtype, copy=False)


class ReferenceBackend(ReferenceAttention, Backend):
    """NumPy and SciPy; `dtype` float32 or float64; `precision` of the inputs of matrix products."""

    name = "reference"

    def __init__(self, dtype=np.float32, precision: str = "fp32"):
        check_precision(precision)
        self.dtype, self.precision = np.dtype(dtype), precision

    # -- arrays ------------------------------------------------------------------------------------
    def empty(self, shape, dtype=None):
        return np.empty(shape, dtype or self.dtype)

    def zeros(self, shape, dtype=None):
        return np.zeros(shape, dtype or self.dtype)

    def from_host(self, array):
        return array

    def to_host(self, array):
        return array

    def copy(self, source, target):
        np.copyto(target, source)

    def clear(self, out):
        out.fill(0)

    def message(self, nbytes):
        raw = np.zeros(nbytes + 64, np.uint8)
        start = -raw.ctypes.data % 64
        return Message(raw[start:start + nbytes])

    def message_over(self, rows):
        return Message(rows.reshape(-1).view(np.uint8)) if rows.flags.c_contiguous else None

    # -- sparse ------------------------------------------------------------------------------------
    def csr(self, indptr, indices, n_columns, weights=None, row_scale=None, column_scale=None,
            row_ends=None):
        return CsrMatrix(indptr, indices, n_columns, weights, row_scale, column_scale, row_ends)

    def spmm(self, matrix, x, out, rows=None, accumulate=False, mask=None, mask_scale=1.0):
        start, stop = rows or (0, matrix.shape[0])
        x = widen(x, self.dtype)
        if mask is not None:
            x = np.where(mask != 0, x * self.dtype.type(mask_scale), 0)
        product = matrix.block(start, stop, self.dtype) @ x
        if accumulate:
            out[start:stop] += product
        else:
            out[start:stop] = product

    def spmm_transposed_add(self, matrix, x, out, rows=None):
        start, stop = rows or (0, matrix.shape[0])
        out += matrix.block(start, stop, self.dtype).T @ x[start:stop]

    def sparse_dropout(self, matrix, out, key, threshold, ids, rows=None):
        start, stop = rows or (0, matrix.shape[0])
        first, last = int(matrix.indptr[start]), int(matrix.indptr[stop])
        values = 1.0 if matrix.weights is None else matrix.weights[first:last]
        if threshold:
            columns = matrix.indices[first:last].astype(np.uint64)
            entry_ids = np.repeat(ids[start:stop],
                                  np.diff(matrix.indptr[start:stop + 1])).astype(np.uint64)
            words = philox.philox_words((columns // np.uint64(8), entry_ids & np.uint64(0xFFFFFFFF),
                                   entry_ids >> np.uint64(32), 0), key)
            half = (columns % np.uint64(8)).astype(np.int64)
            word = np.choose(half // 2, words)
            bits = np.where(half % 2 == 0, word & np.uint64(0xFFFF), word >> np.uint64(16))
            values = np.where(bits >= threshold,
                              values * self.dtype.type(philox.dropout_scale(threshold)), 0)
        out.weights[first:last] = values

    # -- dense -------------------------------------------------------------------------------------
    def gemm(self, a, b, out, transpose_a=False, transpose_b=False, accumulate=False, alpha=1.0):
        a, b = (rounded(x, self.precision) for x in (a, b))
        a, b = (a.T if transpose_a else a), (b.T if transpose_b else b)
        product = a @ b if alpha == 1.0 else self.dtype.type(alpha) * (a @ b)
        if accumulate:
            out += product
        else:
            out[...] = product

    def axpby(self, alpha, x, beta, y, out):
        scaled = self.dtype.type(alpha) * x
        out[...] = scaled if beta == 0 else scaled + self.dtype.type(beta) * y

    def column_sum_add(self, x, out):
        out += x.sum(axis=0)

    def column_dots_add(self, x, y, out):
        out += (x * np.float64(1) * (1 if y is None else y)).sum(axis=0)

    def column_affine(self, x, scale, y, weight, shift, out):
        out[...] = x * scale + shift if y is None else x * scale + y * weight + shift

    def square_sum(self, x):
        return float(np.dot(x.astype(np.float64).ravel(), x.astype(np.float64).ravel()))

    # -- rows --------------------------------------------------------------------------------------
    def gather_rows(self, x, index, out):
        out[...] = narrow(x[index], out.dtype)

    def scatter_add_rows(self, x, index, out):
        out[index] += widen(x, self.dtype)

    def convert(self, x, out):
        out[...] = x if x.dtype == out.dtype else narrow(widen(x, self.dtype), out.dtype)

    # -- codecs ------------------------------------------------------------------------------------
    def pack_columns(self, x, index, columns, out):
        out[...] = x[index][:, columns]

    def unpack_columns(self, x, columns, out, scale=1.0):
        out[...] = 0
        out[:, columns] = x * self.dtype.type(scale)

    def quantise(self, x, index, ids, bits, key, wide, out):
        rows = np.ascontiguousarray(x if index is None else x[index], np.float32)   # (n, width)
        n, width = rows.shape
        zero, step = (quantiser_cells if key is None else quantiser_range)(rows, bits, wide)
        levels = np.float32(2 ** bits - 1)
        with np.errstate(all="ignore"):
            noise: np.ndarray | np.float32 = np.float32(0.5)
            if key is not None:
                noise = philox.bits16(key, ids, width).astype(np.float32) / np.float32(65536)
            q = np.floor((rows - zero[:, None]) / step[:, None] + noise)
            q = np.where(step[:, None] > 0, np.clip(q, 0, levels), 0)
            q = np.nan_to_num(q, nan=0.0).astype(np.uint8)
        stored = np.stack([zero, step], axis=1)
        header = (stored if wide else to_bf16(stored)).tobytes()
        per_byte = 8 // bits
        padded = np.zeros((n, -(-width // per_byte) * per_byte), np.uint8)
        padded[:, :width] = q
        shifts = (np.arange(per_byte) * bits).astype(np.uint8)
        packed = np.bitwise_or.reduce(padded.reshape(n, padded.shape[1] // per_byte,
                                                     per_byte) << shifts, axis=2)
        out[:len(header)] = np.frombuffer(header, np.uint8)
        out[len(header):len(header) + packed.size] = packed.ravel()

    def dequantise(self, data, bits, wide, out):
        n, width = out.shape
        header_bytes, row_bytes = n * (8 if wide else 4), -(-width * bits // 8)
        stored = data[:header_bytes]
        stored = (stored.view(np.float32) if wide
                  else from_bf16(stored.view(np.uint16))).reshape(n, 2)
        packed = data[header_bytes:header_bytes + n * row_bytes].reshape(n, row_bytes)
        shifts = (np.arange(8 // bits) * bits).astype(np.uint8)
        q = ((packed[:, :, None] >> shifts)
             & np.uint8(2 ** bits - 1)).reshape(n, row_bytes * (8 // bits))[:, :width]
        with np.errstate(all="ignore"):
            out[...] = q.astype(np.float32) * stored[:, 1:] + stored[:, :1]

    # -- fused row-wise steps ----------------------------------------------------------------------
    def epilogue_forward(self, y, out, bias=None, gamma=None, beta=None, xhat=None, rstd=None,
                         key=None, threshold=0, ids=None, first_column=0):
        if bias is not None:
            y += bias
        v = y
        if gamma is not None:
            centred = y - y.mean(axis=1, keepdims=True)
            rstd[...] = 1.0 / np.sqrt((centred * centred).mean(axis=1) + EPSILON)
            xhat[...] = centred * rstd[:, None]
            v = xhat * gamma + beta
        np.maximum(v, 0, out=out)
        if threshold:
            self._drop(out, out, key, threshold, ids, first_column)

    def epilogue_backward(self, dout, out, dy, scale=1.0, gamma=None, xhat=None, rstd=None,
                          dgamma=None, dbeta=None, dbias=None):
        dv = np.where(out != 0, dout * self.dtype.type(scale), 0)
        if gamma is None:
            dy[...] = dv
        else:
            dgamma += (dv * xhat).sum(axis=0)
            dbeta += dv.sum(axis=0)
            dxhat = dv * gamma
            dy[...] = rstd[:, None] * (dxhat - dxhat.mean(axis=1, keepdims=True)
                                       - xhat * (dxhat * xhat).mean(axis=1, keepdims=True))
        if dbias is not None:
            dbias += dy.sum(axis=0)

    def dropout(self, x, out, key, threshold, ids):
        if not threshold:
            out[...] = x
            return
        self._drop(x, out, key, threshold, ids, 0)

    def _drop(self, x, out, key, threshold, ids, first_column):
        keep = philox.bits16(key, ids, first_column + x.shape[1])[:, first_column:] >= threshold
        out[...] = np.where(keep, x * self.dtype.type(philox.dropout_scale(threshold)), 0)

    def random_bits(self, key, ids, out):
        out[...] = philox.bits16(key, ids, out.shape[1])

    # -- losses ------------------------------------------------------------------------------------
    def softmax_cross_entropy(self, logits, labels, scale, dlogits, class_weights=None):
        used = np.flatnonzero(labels >= 0)
        picked = logits[used]
        shifted = picked - picked.max(axis=1, keepdims=True, initial=-np.inf)
        exponent = np.exp(shifted)
        total = exponent.sum(axis=1, keepdims=True)
        targets = labels[used]
        loss = np.log(total[:, 0]) - shifted[np.arange(len(used)), targets]
        gradient = exponent / total
        gradient[np.arange(len(used)), targets] -= 1
        if class_weights is not None:
            loss = loss * class_weights[targets]
            gradient *= class_weights[targets][:, None]
        dlogits[...] = 0
        dlogits[used] = gradient * self.dtype.type(scale)
        return float(loss.sum(dtype=np.float64))

    def sigmoid_cross_entropy(self, logits, targets, row_used, scale, dlogits):
        used = np.flatnonzero(row_used)
        x, t = logits[used], targets[used].astype(self.dtype)
        small = np.exp(-np.abs(x))
        loss = np.maximum(x, 0) - x * t + np.log1p(small)
        sigmoid = np.where(x >= 0, 1, small) / (1 + small)
        dlogits[...] = 0
        dlogits[used] = (sigmoid - t) * self.dtype.type(scale)
        return float(loss.sum(dtype=np.float64))

    # -- optimiser ---------------------------------------------------------------------------------
    def adam(self, param, grad, m, v, lr, beta1, beta2, epsilon, weight_decay, correction1,
             correction2):
        g = grad + self.dtype.type(weight_decay) * param
        m *= self.dtype.type(beta1)
        m += self.dtype.type(1 - beta1) * g
        v *= self.dtype.type(beta2)
        v += self.dtype.type(1 - beta2) * g * g
        denominator = np.sqrt(v / self.dtype.type(correction2)) + self.dtype.type(epsilon)
        param -= self.dtype.type(lr) * (m / self.dtype.type(correction1)) / denominator


def quantiser_range(rows: np.ndarray, bits: int, wide: bool) -> tuple[np.ndarray, np.ndarray]:
    """Offset and scale of each row as stored, (n,) float32 each; the contract is in
    base.py."""
    if rows.shape[1] == 0:
        return np.zeros(len(rows), np.float32), np.zeros(len(rows), np.float32)
    levels = 2 ** bits - 1
    low, high = rows.min(axis=1) + np.float32(0), rows.max(axis=1) + np.float32(0)  # -0 becomes 0
    with np.errstate(all="ignore"):
        zero = low if wide else bf16_towards(low, upward=False)
        step = ((high.astype(np.float64) - zero) / levels).astype(np.float32)
        short = zero.astype(np.float64) + levels * step.astype(np.float64) < high
        step = np.where(short, np.nextafter(step, np.float32(np.inf)), step).astype(np.float32)
        step = step if wide else bf16_towards(step, upward=True)
        finite = np.isfinite(rows).all(axis=1)
    return np.where(finite, zero, np.float32(np.nan)), np.where(finite, step, np.float32(np.nan))


def quantiser_cells(rows: np.ndarray, bits: int, wide: bool) -> tuple[np.ndarray, np.ndarray]:
    """Offset and scale of each row for rounding to the nearest, (n,) float32 each."""
    if rows.shape[1] == 0:
        return np.zeros(len(rows), np.float32), np.zeros(len(rows), np.float32)
    low, high = rows.min(axis=1).astype(np.float64), rows.max(axis=1).astype(np.float64)
    with np.errstate(all="ignore"):
        step = stored_nearest(((high - low) / 2 ** bits).astype(np.float32), wide)
        zero = stored_nearest((low + step.astype(np.float64) / 2).astype(np.float32), wide)
        finite = np.isfinite(rows).all(axis=1)
    return np.where(finite, zero, np.float32(np.nan)), np.where(finite, step, np.float32(np.nan))


def stored_nearest(x: np.ndarray, wide: bool) -> np.ndarray:
    """float32 as the stored type holds it."""
    return x if wide else from_bf16(to_bf16(x))
