"""The backend for one GPU a rank: CuPy arrays, the kernels of cuda/*.cu, cuBLAS.

Messages: cuda_messages.py.
"""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np

from hpcgcn.backend import cuda_aware, cuda_device, cuda_sparse
from hpcgcn.backend.cuda_attention import CudaAttention
from hpcgcn.backend.cuda_columns import CudaColumns
from hpcgcn.backend.cuda_graphs import Recording
from hpcgcn.backend.cuda_kernels import (
    C_NAMES,
    NULL,
    Kernels,
    aligned,
    blocks,
    boolean,
    flat_shape,
)
from hpcgcn.backend.cuda_messages import CudaMessage
from hpcgcn.backend.cuda_nccl import Nccl
from hpcgcn.backend.cuda_products import Products
from hpcgcn.backend.cuda_rows import CudaRows
from hpcgcn.backend.cuda_uploads import PinnedCopy, Uploads

log = logging.getLogger(__name__)


class CudaBackend(CudaAttention, CudaColumns, CudaRows):
    """CuPy arrays in float32 on the device of this rank: local rank modulo the number of
    devices."""

    name = "cuda"
    dtype = np.dtype(np.float32)
    # Launches cost microseconds each, and no cache holds a block: only memory for recomputed rows
    # speaks against blocks of any size.
    block_bytes = 1 << 28
    blocks_by_distance = False

    def __init__(self, local_rank: int = 0, mpi: str = "staged", transport: str = "mpi",
                 graphs: bool = False, precision: str = "fp32"):
        """local_rank: this rank's number on its host, which chooses the device. graphs: is work
        that repeats recorded and replayed? precision: of matrix products."""
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
        capability = 10 * self.properties["major"] + self.properties["minor"]
        self.kernels = Kernels(self.cupy, capability)
        self._products = Products(self.cupy, precision, capability)
        self._uploads = Uploads(self.cupy)
        self.structures = cuda_sparse.Structures(self.from_host)
        self._scratch: Any = None            # a device array
        self._graphs = graphs
        self.recording: Recording | None = None      # the epoch that is queued now, if it repeats

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
        if self.recording is not None:
            self.recording.keep(args)
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

    def host_copy(self, array):
        return PinnedCopy(self, array)

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
        if (target.ndim != 2 or source.shape != target.shape or source.dtype != target.dtype
                or target.dtype not in C_NAMES):
            raise ValueError(f"copy of {source.dtype} {source.shape} to {target.dtype} "
                             f"{target.shape}")
        self.copy_columns(source, target)

    def clear(self, out):
        if out.size:
            out.data.memset_async(0, out.nbytes, self.compute)

    def repeated(self, work):
        return Recording(self, work) if self._graphs else super().repeated(work)

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
                         np.int32(stop - start), *self.dropout_arguments(key, threshold)))

    # -- dense -------------------------------------------------------------------------------------
    def gemm(self, a, b, out, transpose_a=False, transpose_b=False, accumulate=False, alpha=1.0):
        inner = a.shape[0] if transpose_a else a.shape[1]
        if out.size == 0 or (inner == 0 and accumulate):
            return
        if inner == 0:                           # cuBLAS refuses leading dimensions of 0
            self.clear(out)
            return
        self._products.gemm(a, b, out, transpose_a, transpose_b, alpha,
                            1.0 if accumulate else 0.0)

    def axpby(self, alpha, x, beta, y, out):
        if out.size:
            y = None if beta == 0 else y
            self.launch(f"axpby<{boolean(aligned(x, y, out))}>", *flat_shape(out.size),
                        (np.float32(alpha), x, np.float32(beta), NULL if y is None else y, out,
                         np.int64(out.size)))

    # -- optimiser ---------------------------------------------------------------------------------
    def adam(self, param, grad, m, v, lr, beta1, beta2, epsilon, weight_decay, correction1,
             correction2):
        if param.size:
            numbers = (lr, beta1, 1 - beta1, beta2, 1 - beta2, epsilon, weight_decay, correction1,
                       correction2)
            self.launch(f"adam<{boolean(aligned(param, grad, m, v))}>", *flat_shape(param.size),
                        (param, grad, m, v, np.int64(param.size), *map(np.float32, numbers)))
