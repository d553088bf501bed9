"""The backend for one GPU a rank: CuPy arrays, the kernels of cuda/*.cu, cuBLAS.

Messages: cuda_messages.py.
"""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np

from hpcgcn.backend import cuda_aware, cuda_device, cuda_sparse
from hpcgcn.backend.base import Backend
from hpcgcn.backend.cuda_arguments import (
    DeviceSum,
    backward_kernel,
    backward_shape,
    dropout_arguments,
    key_arguments,
    moved_shape,
    vectors,
)
from hpcgcn.backend.cuda_attention import CudaAttention
from hpcgcn.backend.cuda_columns import CudaColumns
from hpcgcn.backend.cuda_kernels import (
    BLOCK,
    C_NAMES,
    NULL,
    Kernels,
    aligned,
    blocks,
    boolean,
    flat_shape,
    lanes_for,
    row_shape,
)
from hpcgcn.backend.cuda_messages import CudaMessage
from hpcgcn.backend.cuda_nccl import Nccl
from hpcgcn.backend.cuda_uploads import Uploads

log = logging.getLogger(__name__)

MAX_PARTS = 512  # partial results of a reduction: fixed, so that sums do not depend on the device


class CudaBackend(CudaAttention, CudaColumns, Backend):
    """CuPy arrays in float32 on the device of this rank: local rank modulo the number of
    devices."""

    name = "cuda"
    dtype = np.dtype(np.float32)
    # Launches cost microseconds each, and no cache holds a block: only memory for recomputed rows
    # speaks against blocks of any size.
    block_bytes = 1 << 28
    blocks_by_distance = False

    def __init__(self, local_rank: int = 0, mpi: str = "staged", transport: str = "mpi"):
        """local_rank: this rank's number on its host, which chooses the device."""
        self.cupy = cuda_device.load_cupy()
        runtime = self.cupy.cuda.runtime
        self.device = local_rank % runtime.getDeviceCount()
        self.cupy.cuda.Device(self.device).use()
        self.properties = runtime.getDeviceProperties(self.device)
        # what stays in the L2 cache while indices and sums pass through it
        self.cache_bytes = 0.7 * self.properties["l2CacheSize"]
        self.compute = self.cupy.cuda.Stream(non_blocking=True)
        self.communication = self.cupy.cuda.Stream(non_blocking=True)
        self.compute.use()
        self._mpi, self.sends_device_memory = mpi, mpi == "cuda-aware"
        self._transport = transport
        self._nccl: Nccl | None = None
        self.kernels = Kernels(self.cupy, 10 * self.properties["major"]
                               + self.properties["minor"])
        self._uploads = Uploads(self.cupy)
        self.structures = cuda_sparse.Structures(self.from_host)
        self._scratch: Any = None            # a device array

    def check_ranks(self, comm, job_rank: int):
        cuda_device.warn_if_shared(comm, job_rank, self.properties["uuid"])
        if comm.rank == 0 and cuda_device.uses_stand_in():
            log.warning("%s=1: NO GPU IS USED, its kernels are emulated on the CPU",
                        cuda_device.STAND_IN)
        if self._transport == "nccl":
            self._nccl = Nccl(self.cupy, comm, job_rank, self.compute, self.communication)
        elif self._mpi != "staged":
            self.sends_device_memory = cuda_aware.choose(comm, self.cupy, self.compute, self._mpi)

    def describe(self) -> dict:
        pool = self.cupy.get_default_memory_pool()
        facts = {"backend": self.name, "device": self.device,
                 "device_name": self.properties["name"].decode(),
                 "device_uuid": self.properties["uuid"].hex(), "cupy": self.cupy.__version__,
                 "compute_capability": f"{self.properties['major']}.{self.properties['minor']}",
                 "messages": "nccl" if self._nccl
                 else "cuda-aware" if self.sends_device_memory else "staged",
                 "device_memory_mib": self.properties["totalGlobalMem"] >> 20,
                 "pool_used_mib": pool.used_bytes() >> 20,
                 "pool_held_mib": pool.total_bytes() >> 20}
        if cuda_device.uses_stand_in():
            facts["STAND_IN"] = (f"{cuda_device.STAND_IN}=1: no GPU is used, CUDA kernels are "
                                 "emulated on the CPU, for tests only")
        return facts

    # -- launching ---------------------------------------------------------------------------------
    def launch(self, name: str, grid, block, args, shared_mem: int = 0):
        """Queue a kernel on the compute stream."""
        self.kernels[name](grid, block, args, shared_mem=shared_mem)

    def scratch(self, shape, dtype):
        """Memory for the kernels of one operation; the next operation reuses it, in the order of
        the stream."""
        dtype = np.dtype(dtype)
        nbytes = math.prod(shape) * dtype.itemsize
        if self._scratch is None or len(self._scratch) < nbytes:
            self._scratch = self.empty((max(nbytes, 1 << 16),), np.uint8)
        return self._scratch[:nbytes].view(dtype).reshape(shape)

    # -- arrays ------------------------------------------------------------------------------------
    def empty(self, shape, dtype=None):
        return self._allocate(self.cupy.empty, shape, dtype)

    def zeros(self, shape, dtype=None):
        return self._allocate(self.cupy.zeros, shape, dtype)

    def _allocate(self, make, shape, dtype):
        shape = shape if isinstance(shape, tuple) else (shape,)
        dtype = np.dtype(dtype or self.dtype)
        with cuda_device.explain_out_of_memory(self.cupy, math.prod(shape) * dtype.itemsize):
            return make(shape, dtype)

    def from_host(self, array):
        if isinstance(array, self.cupy.ndarray):
            return array
        array = np.asarray(array)
        there = self.empty(array.shape, array.dtype)
        self._uploads.copy(np.ascontiguousarray(array), there, self.compute)
        return there

    def to_host(self, array):
        if isinstance(array, np.ndarray):
            return array
        if not array.flags.c_contiguous:
            packed = self.empty(array.shape, array.dtype)
            self._copy_on_device(array, packed)
            array = packed
        return array.get()

    def copy(self, source, target):
        if isinstance(target, np.ndarray):
            np.copyto(target, self.to_host(source))
        elif not isinstance(source, np.ndarray):
            self._copy_on_device(source, target)
        elif target.flags.c_contiguous:
            self._uploads.copy(np.ascontiguousarray(source, target.dtype), target, self.compute)
        else:
            self._copy_on_device(self.from_host(np.asarray(source, target.dtype)), target)

    def _copy_on_device(self, source, target):
        """Either may be a block of columns: rows of whole elements, a pitch apart."""
        if target.size == 0:
            return
        if source.flags.c_contiguous and target.flags.c_contiguous:
            target.data.copy_from_device_async(source.data, target.nbytes, self.compute)
            return
        if target.ndim != 2 or source.shape != target.shape or source.dtype != target.dtype:
            raise ValueError(f"copy of {source.dtype} {source.shape} to {target.dtype} "
                             f"{target.shape}")
        runtime = self.cupy.cuda.runtime
        runtime.memcpy2DAsync(target.data.ptr, target.strides[0], source.data.ptr,
                              source.strides[0], target.shape[1] * target.itemsize, len(target),
                              runtime.memcpyDeviceToDevice, self.compute.ptr)

    def clear(self, out):
        if out.size:
            out.data.memset_async(0, out.nbytes, self.compute)

    def synchronize(self):
        self.compute.synchronize()

    # -- messages ----------------------------------------------------------------------------------
    def message(self, nbytes):
        staged = not self.sends_device_memory and self._nccl is None
        return CudaMessage(self.cupy, nbytes, staged,
                           self.zeros((nbytes,), np.uint8))

    def before_send(self, message, nbytes):
        message.before_send(nbytes, self.compute, self.communication)

    def before_receive(self, message, nbytes):
        message.before_receive(nbytes, self.compute)

    def transfer(self, messages, sizes, peers):
        return self._nccl.transfer(messages, sizes, peers) if self._nccl else None

    def after_receive(self, message):
        message.after_receive(self.compute, self.communication)

    # -- sparse ------------------------------------------------------------------------------------
    def csr(self, indptr, indices, n_columns, weights=None, row_scale=None, column_scale=None,
            row_ends=None):
        scales = (None if a is None else self._as_float(a)
                  for a in (weights, row_scale, column_scale))
        structure = self.structures.get(indptr, indices, n_columns)
        return cuda_sparse.CudaMatrix(structure if row_ends is None else structure.ending(row_ends),
                                      *scales)

    def _as_float(self, array):
        return self.from_host(np.asarray(array, self.dtype) if isinstance(array, np.ndarray)
                              else array)

    def spmm(self, matrix, x, out, rows=None, accumulate=False, mask=None, mask_scale=1.0):
        rows = rows or (0, matrix.shape[0])
        if out.shape[1] and rows[1] > rows[0]:
            scales = (matrix.weights, matrix.row_scale, matrix.column_scale)
            cuda_sparse.multiply(self, matrix.structure, scales, x, out, rows, accumulate, mask,
                                 mask_scale)

    def spmm_transposed_add(self, matrix, x, out, rows=None):
        rows = rows or (0, matrix.shape[0])
        if out.size and rows[1] > rows[0]:
            scales = (matrix.weights, matrix.column_scale, matrix.row_scale)
            cuda_sparse.multiply(self, matrix.structure.transposed(*rows), scales, x, out,
                                 (0, matrix.shape[1]), True)

    def sparse_dropout(self, matrix, out, key, threshold, ids, rows=None):
        start, stop = rows or (0, matrix.shape[0])
        if stop > start and matrix.nnz:
            structure = matrix.structure
            self.launch("sparse_dropout", (blocks(stop - start, 32),), (8, 32),
                        (structure.indptr, structure.indices, NULL if matrix.weights is None
                         else matrix.weights, out.weights, ids, np.int32(start),
                         np.int32(stop - start), *dropout_arguments(key, threshold)))

    # -- dense -------------------------------------------------------------------------------------
    def gemm(self, a, b, out, transpose_a=False, transpose_b=False, accumulate=False, alpha=1.0):
        inner = a.shape[0] if transpose_a else a.shape[1]
        if out.size == 0 or (inner == 0 and accumulate):
            return
        if inner == 0:                           # cuBLAS refuses leading dimensions of 0
            self.clear(out)
            return
        self.cupy.cublas.gemm("T" if transpose_a else "N", "T" if transpose_b else "N", a, b, out,
                              alpha, 1.0 if accumulate else 0.0)

    def axpby(self, alpha, x, beta, y, out):
        if out.size:
            y = None if beta == 0 else y
            self.launch(f"axpby<{boolean(aligned(x, y, out))}>", *flat_shape(out.size),
                        (np.float32(alpha), x, np.float32(beta), NULL if y is None else y, out,
                         np.int64(out.size)))

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
                         np.int64(n), np.int32(width), *key_arguments(key), np.int32(wide), out))

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
                         *dropout_arguments(key, threshold), np.int32(first_column)))

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
                         *dropout_arguments(key, threshold)))

    def random_bits(self, key, ids, out):
        n, width = out.shape
        if out.size:
            self.launch("random_bits", *row_shape(n, width, 8),
                        (ids, out, np.int64(n), np.int32(width), *key_arguments(key)))

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
        partials = self.empty((parts,), np.float64)      # not scratch: read when it is asked for
        self.launch(name, (parts,), (lanes, rows), (logits, *labels, np.float32(scale), dlogits,
                                                    partials, np.int64(n), np.int32(width)))
        return DeviceSum(partials)

    # -- optimiser ---------------------------------------------------------------------------------
    def adam(self, param, grad, m, v, lr, beta1, beta2, epsilon, weight_decay, correction1,
             correction2):
        if param.size:
            numbers = (lr, beta1, 1 - beta1, beta2, 1 - beta2, epsilon, weight_decay, correction1,
                       correction2)
            self.launch(f"adam<{boolean(aligned(param, grad, m, v))}>", *flat_shape(param.size),
                        (param, grad, m, v, np.int64(param.size), *map(np.float32, numbers)))
