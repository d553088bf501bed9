"""Matrix products on the device: cuBLAS in fp32, or with inputs that its tensor cores round.

TF32 keeps 10 bits of each input's mantissa, bf16 7; products are exact then, and sums are fp32. The
arrays stay fp32. The numbers below are those of cuBLAS's interface.
"""

from __future__ import annotations

import importlib

import numpy as np

from hpcgcn.backend.rounding import check_precision
from hpcgcn.errors import BackendError

COMPUTE = {"tf32": 77, "bf16": 75}               # CUBLAS_COMPUTE_32F_FAST_TF32, ..._16BF
FLOAT32, ON_HOST, DEFAULT_ALGORITHM = 0, 0, -1   # CUDA_R_32F, POINTER_MODE_HOST, GEMM_DEFAULT
WITH_TENSOR_CORES = 80                           # compute capability 8.0, for these types


class Products:
    """Products in the precision of a run."""

    def __init__(self, cupy, precision: str, capability: int):
        check_precision(precision)
        if precision != "fp32" and capability < WITH_TENSOR_CORES:
            raise BackendError(f"precision = '{precision}' needs a GPU of compute capability 8.0 "
                               f"or later; this one has {capability / 10}: leave it 'fp32'")
        self._cupy, self._precision = cupy, precision

    def gemm(self, a, b, out, transpose_a: bool, transpose_b: bool, alpha: float, beta: float):
        """out = alpha * op(a) @ op(b) + beta * out; none of them empty."""
        if self._precision == "fp32":
            self._cupy.cublas.gemm("T" if transpose_a else "N", "T" if transpose_b else "N", a, b,
                                   out, alpha, beta)
            return
        calls, handle = load_cublas(self._cupy), self._cupy.cuda.get_cublas_handle()
        scalars = np.array([alpha, beta], np.float32)
        n_rows, n_columns = out.shape
        inner = a.shape[0] if transpose_a else a.shape[1]
        # cuBLAS knows columns: out^T = op(b)^T @ op(a)^T, and rows are columns of a transpose.
        calls.setPointerMode(handle, ON_HOST)
        calls.gemmEx(handle, int(transpose_b), int(transpose_a), n_columns, n_rows, inner,
                     scalars.ctypes.data, b.data.ptr, FLOAT32, b.shape[1], a.data.ptr, FLOAT32,
                     a.shape[1], scalars.ctypes.data + 4, out.data.ptr, FLOAT32, n_columns,
                     COMPUTE[self._precision], DEFAULT_ALGORITHM)


def load_cublas(cupy):
    """CuPy's bindings, or those of the stand-in."""
    if hasattr(cupy, "cublas_calls"):
        return cupy.cublas_calls
    return importlib.import_module("cupy_backends.cuda.libs.cublas")
