"""The default backend on CPUs: C kernels with OpenMP, fp32, the best of AVX-512, AVX2 and plain
code at run time.

All calls release the GIL. No result depends on the number of threads: rows are summed each by one
thread in the order of their entries, and sums over rows are made of fixed blocks added in order.
GEMM is NumPy's BLAS, whose results may differ in the last bits between thread counts. Random bits,
dropout masks and the quantiser's bytes are identical to the reference's; everything else agrees
with it to rounding, as it does between instruction set levels.
"""

from __future__ import annotations

import math
import os

import numpy as np
import threadpoolctl

from hpcgcn import philox
from hpcgcn.backend.base import Backend, Message, count_entries
from hpcgcn.backend.native.attention import NativeAttention
from hpcgcn.backend.native.library import available, choose_level, kernels, levels
from hpcgcn.backend.native.memory import aligned_empty, aligned_zeros

__all__ = ["NativeBackend", "available", "levels"]

STORAGE = {np.dtype(np.float32): 0, np.dtype(np.float16): 1, np.dtype(np.uint16): 2}
NO_KEY = (0, 0)
# where SpMM keeps a tile of x that it gathers from; touched only as far as used
TILE_BYTES = 16 << 20
# as in src/spmm.h: the size of a tile, and when tiles pay
TILE_COLUMNS, NEAR_BYTES, MIN_REUSE = 32, 4 << 20, 8
GEMM_SCRATCH = 1 << 18  # elements: an accumulating product is made in blocks that stay in the cache


class CsrMatrix:
    """A sparse matrix handle: shared structure, optional weights and scales, all float32."""

    def __init__(self, indptr, indices, n_columns, weights, row_scale, column_scale, row_ends):
        self.indptr = np.ascontiguousarray(indptr, np.int64)
        self.indices = np.ascontiguousarray(indices, np.int32)
        self.row_ends = None if row_ends is None else np.ascontiguousarray(row_ends, np.int64)
        self.shape, self.nnz = (len(indptr) - 1, int(n_columns)), count_entries(indptr, row_ends)
        self.weights = _values(weights, len(indices), "weights")
        self.row_scale = _values(row_scale, self.shape[0], "row_scale")
        self.column_scale = _values(column_scale, self.shape[1], "column_scale")


def _values(array, n: int, name: str):
    if array is None:
        return None
    array = np.ascontiguousarray(array, np.float32)
    if array.shape != (n,):
        raise ValueError(f"csr: {name} must have the shape ({n},), not {array.shape}")
    return array


class TiledRows:
    """Rows for spmm to gather, a tile of their columns after another: what it gathers at a time
    lies close together."""

    def __init__(self, shape, dtype):
        tiles = -(-shape[1] // TILE_COLUMNS)
        self.array = aligned_zeros((tiles, shape[0], TILE_COLUMNS), dtype)
        # rows of a tile, first row; first, last tile
        self.shape, self.place = tuple(shape), (shape[0], 0, 0, tiles)

    def __getitem__(self, rows: slice) -> TiledRows:
        """The same tiles without some of the first and last rows."""
        start, stop, _ = rows.indices(self.shape[0])
        tile_rows, first_row, *tiles = self.place
        return self._view((stop - start, self.shape[1]), (tile_rows, first_row + start, *tiles))

    def one_by_one(self) -> list[TiledRows]:
        """Each tile alone: spmm then writes its columns only."""
        tile_rows, first_row, first, last = self.place
        return [self._view(self.shape, (tile_rows, first_row, tile, tile + 1))
                for tile in range(first, last)]

    def _view(self, shape, place) -> TiledRows:
        view = object.__new__(TiledRows)
        view.array, view.shape, view.place = self.array, shape, place
        return view


class NativeBackend(NativeAttention, Backend):
    """The table of operations in C.

    `threads` (default: all cores of this process) also goes to NumPy's BLAS.
    """

    name = "native"
    dtype = np.dtype(np.float32)

    def __init__(self, threads: int | None = None, isa: str | None = None,
                 tile_bytes: int = TILE_BYTES):
        self.threads = threads or len(os.sched_getaffinity(0))
        self.isa = choose_level(isa)
        self._call = kernels().operations(self.isa)
        self._tile = aligned_empty((tile_bytes,), np.uint8)
        self._scratch = aligned_empty((0,), np.float32)
        threadpoolctl.threadpool_limits(self.threads, user_api="blas")

    # -- arrays ------------------------------------------------------------------------------------
    def empty(self, shape, dtype=None):
        return aligned_empty(shape, dtype or self.dtype)

    def zeros(self, shape, dtype=None):
        return aligned_zeros(shape, dtype or self.dtype)

    def from_host(self, array):
        return np.ascontiguousarray(array)

    def to_host(self, array):
        return array

    def copy(self, source, target):
        np.copyto(target, source)

    def clear(self, out):
        out.fill(0)

    def message(self, nbytes):
        return Message(aligned_zeros((nbytes,), np.uint8))

    def message_over(self, rows):
        return Message(rows.reshape(-1).view(np.uint8)) if rows.flags.c_contiguous else None

    # -- sparse ------------------------------------------------------------------------------------
    def csr(self, indptr, indices, n_columns, weights=None, row_scale=None, column_scale=None,
            row_ends=None):
        matrix = CsrMatrix(indptr, indices, n_columns, weights, row_scale, column_scale, row_ends)
        self._call["check_csr"](self.threads, matrix.indptr, matrix.indices, matrix.shape[1])
        return matrix

    def spmm(self, matrix, x, out, rows=None, accumulate=False, mask=None, mask_scale=1.0):
        start, stop = rows or (0, matrix.shape[0])
        array, tiles = (x.array, x.place) if isinstance(x, TiledRows) else (x, (0, 0, 0, 0))
        self._call["spmm"](self.threads, matrix.indptr, matrix.indices, matrix.weights,
                           matrix.row_scale, matrix.column_scale, array, STORAGE[array.dtype],
                           x.shape[1], out, start, stop, accumulate,
                           mask, mask_scale, matrix.shape[1], self._tile, *tiles, matrix.row_ends)

    def gather_store(self, shape, precision, reuse):
        dtype = np.dtype(np.uint16 if precision == "bf16" else np.float32)
        if (shape[1] > TILE_COLUMNS and math.prod(shape) * dtype.itemsize > NEAR_BYTES
            and reuse >= MIN_REUSE):
            return TiledRows(shape, dtype)
        return super().gather_store(shape, precision, reuse)

    def store_rows(self, x, store, rows):
        if isinstance(store, TiledRows):
            self._call["tile_rows"](self.threads, x, x.shape[1], store.array,
                                    STORAGE[store.array.dtype], store.place[0], *rows)
        else:
            super().store_rows(x, store, rows)

    def gather_passes(self, x):
        return x.one_by_one() if isinstance(x, TiledRows) else [x]

    def spmm_transposed_add(self, matrix, x, out, rows=None):
        start, stop = rows or (0, matrix.shape[0])
        self._call["spmm_transposed_add"](self.threads, matrix.indptr, matrix.indices,
                                          matrix.weights, matrix.row_scale, matrix.column_scale, x,
                                          x.shape[1], out, start, stop, matrix.shape[1])

    def sparse_dropout(self, matrix, out, key, threshold, ids, rows=None):
        start, stop = rows or (0, matrix.shape[0])
        self._call["sparse_dropout"](self.threads, matrix.indptr, matrix.indices, matrix.weights,
                                     out.weights, *(key or NO_KEY), threshold,
                                     philox.dropout_scale(threshold), ids, start, stop)

    # -- dense -------------------------------------------------------------------------------------
    def gemm(self, a, b, out, transpose_a=False, transpose_b=False, accumulate=False, alpha=1.0):
        a, b = (a.T if transpose_a else a), (b.T if transpose_b else b)
        if not accumulate:
            np.matmul(a, b, out=out)
            if alpha != 1.0:
                self.axpby(alpha, out, 0.0, None, out)
            return
        block = max(1, GEMM_SCRATCH // max(1, out.shape[1]))
        for start in range(0, len(out), block):
            target = out[start:start + block]
            product = self._scratch_of(target.shape)
            np.matmul(a[start:start + block], b, out=product)
            self.axpby(alpha, product, 1.0, target, target)

    def _scratch_of(self, shape) -> np.ndarray:
        """A block of the scratch array, which grows once and is then reused."""
        size = math.prod(shape)
        if self._scratch.size < size:
            self._scratch = aligned_empty((size,), np.float32)
        return self._scratch[:size].reshape(shape)

    def axpby(self, alpha, x, beta, y, out):
        self._call["axpby"](self.threads, alpha, x, beta, None if beta == 0 else y, out)

    def column_sum_add(self, x, out):
        self._call["column_sum_add"](self.threads, x, x.shape[1], out)

    def column_dots_add(self, x, y, out):
        self._call["column_dots_add"](self.threads, x, y, x.shape[1], out)

    def column_affine(self, x, scale, y, weight, shift, out):
        self._call["column_affine"](self.threads, x, scale, y, weight, shift, out, x.shape[1])

    def square_sum(self, x):
        return self._call["square_sum"](self.threads, x)

    # -- rows --------------------------------------------------------------------------------------
    def gather_rows(self, x, index, out):
        self._call["gather_rows"](self.threads, x, STORAGE[x.dtype], index, out, STORAGE[out.dtype],
                                  *out.shape)

    def scatter_add_rows(self, x, index, out):
        self._call["scatter_add_rows"](self.threads, x, STORAGE[x.dtype], index, out, out.shape[1])

    def convert(self, x, out):
        if x.dtype == out.dtype:
            np.copyto(out, x)
        else:
            self._call["gather_rows"](self.threads, x, STORAGE[x.dtype], None, out,
                                      STORAGE[out.dtype], len(out), math.prod(out.shape[1:]))

    # -- codecs ------------------------------------------------------------------------------------
    def pack_columns(self, x, index, columns, out):
        self._call["pack_columns"](self.threads, x, x.shape[1], index, columns, out)

    def unpack_columns(self, x, columns, out, scale=1.0):
        self._call["unpack_columns"](self.threads, x, columns, out, out.shape[1], scale)

    def quantise(self, x, index, ids, bits, key, wide, out):
        self._call["quantise"](self.threads, x, x.shape[1], index, ids, bits, *(key or NO_KEY),
                               key is None, wide, out)

    def dequantise(self, data, bits, wide, out):
        self._call["dequantise"](self.threads, data, bits, wide, out, *out.shape)

    # -- fused row-wise steps ----------------------------------------------------------------------
    def epilogue_forward(self, y, out, bias=None, gamma=None, beta=None, xhat=None, rstd=None,
                         key=None, threshold=0, ids=None, first_column=0):
        self._call["epilogue_forward"](self.threads, y, out, bias, gamma, beta, xhat, rstd,
                                       y.shape[1], len(y), *(key or NO_KEY), threshold,
                                       philox.dropout_scale(threshold), ids, first_column)

    def epilogue_backward(self, dout, out, dy, scale=1.0, gamma=None, xhat=None, rstd=None,
                          dgamma=None, dbeta=None, dbias=None):
        self._call["epilogue_backward"](self.threads, dout, out, dy, scale, gamma, xhat, rstd,
                                        dgamma, dbeta, dbias, dy.shape[1], len(dy))

    def dropout(self, x, out, key, threshold, ids):
        if not threshold:
            np.copyto(out, x)
            return
        self._call["dropout"](self.threads, x, out, x.shape[1], len(x), *key, threshold,
                              philox.dropout_scale(threshold), ids)

    def random_bits(self, key, ids, out):
        self._call["random_bits"](self.threads, *key, ids, out, out.shape[1])

    # -- losses ------------------------------------------------------------------------------------
    def softmax_cross_entropy(self, logits, labels, scale, dlogits, class_weights=None):
        return self._call["softmax_cross_entropy"](self.threads, logits, labels, scale, dlogits,
                                                   logits.shape[1], class_weights)

    def sigmoid_cross_entropy(self, logits, targets, row_used, scale, dlogits):
        return self._call["sigmoid_cross_entropy"](self.threads, logits, targets, row_used, scale,
                                                   dlogits, logits.shape[1])

    # -- optimiser ---------------------------------------------------------------------------------
    def adam(self, param, grad, m, v, lr, beta1, beta2, epsilon, weight_decay, correction1,
             correction2):
        self._call["adam"](self.threads, param, grad, m, v, lr, beta1, beta2, epsilon, weight_decay,
                           correction1, correction2)

    # -- facts for the summary ---------------------------------------------------------------------
    def describe(self):
        """Level and threads, for summaries and `hpcgcn doctor`."""
        return {"backend": self.name, "isa": self.isa, "threads": self.threads}
