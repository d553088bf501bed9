"""Row-wise operations on the device: launches of the kernels of cuda/rows.cu, quantise.cu,
epilogue.cu and loss.cu."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpcgcn import philox
from hpcgcn.backend.base import Backend
from hpcgcn.backend.cuda_arguments import (
    DeviceSum,
    backward_kernel,
    backward_shape,
    moved_shape,
    vectors,
)
from hpcgcn.backend.cuda_graphs import Recording
from hpcgcn.backend.cuda_kernels import (
    BLOCK,
    C_NAMES,
    NULL,
    aligned,
    blocks,
    boolean,
    flat_shape,
    lanes_for,
    row_shape,
)

MAX_PARTS = 512  # partial results of a reduction: fixed, so that sums do not depend on the device


class CudaRows(Backend):
    """The row-wise operations of the CUDA backend."""

    launch: Any
    scratch: Any
    recording: Recording | None      # the epoch that is queued now, if it repeats

    def key_arguments(self, key) -> tuple:
        """A key of random draws, as kernels take it: two words, or where on the device they will
        be."""
        recording = self.recording
        if recording is not None and isinstance(key, philox.Key):
            recording.note(key)
            if recording.records and recording.varies(key):
                return np.uint32(0), np.uint32(0), recording.key(key)
        return *map(np.uint32, key or (0, 0)), NULL

    def dropout_arguments(self, key, threshold: int) -> tuple:
        """Key, threshold and factor of dropout, as kernels take them."""
        scale = philox.dropout_scale(threshold) if threshold else 1.0
        return (*self.key_arguments(key if threshold else None), np.uint32(threshold),
                np.float32(scale))

    # -- sums --------------------------------------------------------------------------------------
    def column_sum_add(self, x, out):
        n, width = x.shape
        if x.size:
            parts = min(blocks(n, 64), MAX_PARTS)
            if parts > 1:
                partials = self.scratch((parts, width), np.float32)
                self._column_sums(x, n, width, 0, width, partials, parts, accumulate=False)
                x, n = partials, parts
            self._column_sums(x, n, width, 0, width, out, 1, accumulate=True)

    def _column_sums(self, x, n, pitch, offset, width, out, parts, accumulate):
        self.launch("column_sums", (parts, blocks(width, 32)), (32, 8),
                    (x, np.int64(n), np.int32(pitch), np.int32(offset), np.int32(width), out,
                     np.int32(accumulate)))

    def square_sum(self, x):
        if x.size == 0:
            return 0.0
        parts = min(blocks(x.size, BLOCK * 16), MAX_PARTS)
        partials = self.scratch((parts,), np.float64)
        self.launch("square_sums", (parts,), (32, 8), (x, np.int64(x.size), partials))
        return float(partials.get().sum())

    # -- rows --------------------------------------------------------------------------------------
    def gather_rows(self, x, index, out):
        n, width = out.shape
        if out.size:
            vector = vectors(width, x, out)
            self.launch(f"gather_rows<{C_NAMES[out.dtype]}, {vector}>",
                        *moved_shape(n, width, vector),
                        (x, index, out, np.int64(n), np.int32(width)))

    def scatter_add_rows(self, x, index, out):
        n, width = x.shape
        if x.size:
            vector = vectors(width, x, out)
            self.launch(f"scatter_add_rows<{C_NAMES[x.dtype]}, {vector}>",
                        *moved_shape(n, width, vector),
                        (x, index, out, np.int64(n), np.int32(width)))

    def copy_columns(self, source, target):
        """target = source, both two-dimensional; either may be a block of columns."""
        n, width = target.shape
        pitches = [array.strides[0] // array.itemsize for array in (source, target)]
        vector = boolean(aligned(source, target) and not any(p % 4 for p in (width, *pitches)))
        self.launch(f"copy_columns<{C_NAMES[target.dtype]}, {vector}>",
                    *moved_shape(n, width, vector),
                    (source, target, np.int64(n), np.int32(width), *map(np.int64, pitches)))

    def convert(self, x, out):
        if x.dtype == out.dtype:
            self.copy(x, out)
        elif out.size:
            self.launch(f"convert<{C_NAMES[x.dtype]}, {C_NAMES[out.dtype]}, "
                        f"{boolean(aligned(x, out))}>",
                        *flat_shape(out.size), (x, out, np.int64(out.size)))

    # -- codecs ------------------------------------------------------------------------------------
    def pack_columns(self, x, index, columns, out):
        n, chosen = out.shape
        if out.size:
            self.launch("pack_columns", *row_shape(n, chosen, 1),
                        (x, index, columns, out, np.int64(n), np.int32(x.shape[1]),
                         np.int32(chosen)))

    def unpack_columns(self, x, columns, out, scale=1.0):
        n, width = out.shape
        if out.size:
            inverse = self.scratch((width,), np.int32)
            self.launch("invert_columns", (1,), (BLOCK,),
                        (columns, np.int32(len(columns)), inverse, np.int32(width)))
            vector = vectors(width, out)
            self.launch(f"unpack_columns<{vector}>", *moved_shape(n, width, vector),
                        (x, inverse, out, np.float32(scale), np.int64(n), np.int32(width),
                         np.int32(len(columns))))

    def quantise(self, x, index, ids, bits, key, wide, out):
        n, width = (len(x) if index is None else len(index)), x.shape[1]
        if n:
            self.launch(f"quantise<{bits}, {vectors(width, x)}>", *row_shape(n, width, 8),
                        (x, NULL if index is None else index, NULL if key is None else ids,
                         np.int64(n), np.int32(width), *self.key_arguments(key), np.int32(wide),
                         out))

    def dequantise(self, data, bits, wide, out):
        n, width = out.shape
        if out.size:
            self.launch(f"dequantise<{bits}, {vectors(width, out)}>", *row_shape(n, width, 8),
                        (data, np.int32(wide), out, np.int64(n), np.int32(width)))

    # -- fused row-wise steps ----------------------------------------------------------------------
    def epilogue_forward(self, y, out, bias=None, gamma=None, beta=None, xhat=None, rstd=None,
                         key=None, threshold=0, ids=None, first_column=0):
        n, width = y.shape
        if y.size:
            pointers = [NULL if a is None else a for a in (bias, gamma, beta, xhat, rstd, ids)]
            self.launch(f"epilogue_forward<{vectors(width, y, out, bias, gamma, beta, xhat)}>",
                        *row_shape(n, width, 8),
                        (y, out, *pointers, np.int64(n), np.int32(width),
                         *self.dropout_arguments(key, threshold), np.int32(first_column)))

    def epilogue_backward(self, dout, out, dy, scale=1.0, gamma=None, xhat=None, rstd=None,
                          dgamma=None, dbeta=None, dbias=None):
        n, width = dout.shape
        if dout.size == 0:
            return
        sums = [a
                for a in ((dgamma, dbeta) if gamma is not None else ()) + (dbias,) if a is not None]
        lanes, rows, shared_bytes = backward_shape(width, len(sums))
        parts = min(blocks(n, rows), MAX_PARTS)
        fits = bool(shared_bytes) or not sums
        strips = parts if fits else parts * rows             # of a block, or a row of threads
        partials = self.scratch((strips, len(sums) * width), np.float32)
        name = backward_kernel(width, gamma is not None, fits, dout, out, dy, gamma, xhat)
        self.launch(name, (parts,), (lanes, rows),
                    (dout, out, dy, np.float32(scale),
                     *(NULL if a is None else a for a in (gamma, xhat, rstd)), partials,
                     np.int32(dbias is not None), np.int64(n), np.int32(width)),
                    shared_mem=shared_bytes)
        for slot, target in enumerate(sums):
            self._column_sums(partials, strips, len(sums) * width, slot * width, width, target, 1,
                              accumulate=True)

    def dropout(self, x, out, key, threshold, ids):
        n, width = x.shape
        if not threshold:
            self.copy(x, out)
        elif x.size:
            self.launch(f"dropout<{vectors(width, x, out)}>", *row_shape(n, width, 8),
                        (x, out, ids, np.int64(n), np.int32(width),
                         *self.dropout_arguments(key, threshold)))

    def random_bits(self, key, ids, out):
        n, width = out.shape
        if out.size:
            self.launch("random_bits", *row_shape(n, width, 8),
                        (ids, out, np.int64(n), np.int32(width), *self.key_arguments(key)))

    # -- losses ------------------------------------------------------------------------------------
    def softmax_cross_entropy(self, logits, labels, scale, dlogits, class_weights=None):
        weights = NULL if class_weights is None else class_weights
        return self._loss("softmax_cross_entropy", logits, (labels, weights), scale, dlogits)

    def sigmoid_cross_entropy(self, logits, targets, row_used, scale, dlogits):
        return self._loss("sigmoid_cross_entropy", logits, (targets, row_used), scale, dlogits)

    def _loss(self, name, logits, labels, scale, dlogits):
        n, width = logits.shape
        if logits.size == 0:
            return 0.0
        lanes = lanes_for(width, 1)
        rows = BLOCK // lanes
        parts = min(blocks(n, rows), MAX_PARTS)
        # not scratch: read when it is asked for
        make = self.empty if self.recording is None else self.recording.array
        partials = make((parts,), np.float64)
        self.launch(name, (parts,), (lanes, rows), (logits, *labels, np.float32(scale), dlogits,
                                                    partials, np.int64(n), np.int32(width)))
        return DeviceSum(partials)
