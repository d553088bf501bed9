"""cuBLAS on NumPy: what CuPy's two interfaces to it offer and hpcgcn calls."""

from __future__ import annotations

import ctypes

import numpy as np

from . import arrays, streams

HANDLE = 1
MANTISSA_BITS = {77: 10, 75: 7}                  # of inputs: TF32, bf16


def gemm(transa, transb, a, b, out=None, alpha=1.0, beta=0.0):
    """cupy.cublas.gemm: out = alpha * op(a) @ op(b) + beta * out, float32, in the current
    stream."""
    for array in (a, b, out):
        if not isinstance(array, arrays.ndarray) or array.dtype != np.float32 or array.ndim != 2:
            raise TypeError("gemm wants two-dimensional float32 device arrays")
        if not array.flags.c_contiguous:
            raise ValueError("gemm of a strided array would copy")
    left = a._view.T if transa == "T" else a._view
    right = b._view.T if transb == "T" else b._view
    target = out._view
    if left.shape[1] != right.shape[0] or target.shape != (left.shape[0], right.shape[1]):
        raise ValueError(f"gemm of {left.shape} by {right.shape} into {target.shape}")

    def run():
        product = np.float32(alpha) * (left @ right)
        target[...] = product if beta == 0 else product + np.float32(beta) * target

    streams.enqueue(run)
    return out


# -- the library's own calls: columns first, addresses -------------------------------------------

def setPointerMode(handle, mode):
    if (handle, mode) != (HANDLE, 0):
        raise ValueError(f"pointer mode {mode} of handle {handle}: scalars are on the host here")


def gemmEx(handle, transa, transb, m, n, k, alpha, A, Atype, lda, B, Btype, ldb, beta, C, Ctype,
           ldc, computeType, algo):
    """C = alpha * op(A) @ op(B) + beta * C, (m, n), column after column; the inputs rounded."""
    if (handle, Atype, Btype, Ctype, algo) != (HANDLE, 0, 0, 0, -1):
        raise ValueError("gemmEx of float32 arrays with the default algorithm only")
    left = _matrix(A, k if transa else m, m if transa else k, lda)
    right = _matrix(B, n if transb else k, k if transb else n, ldb)
    target = _matrix(C, m, n, ldc)
    scale, keep = (ctypes.c_float.from_address(address).value for address in (alpha, beta))
    bits = MANTISSA_BITS[computeType]

    def run():
        a, b = (_rounded(side.T if transposed else side, bits)
                for side, transposed in ((left, transa), (right, transb)))
        product = np.float32(scale) * (a @ b)
        target[...] = product if keep == 0 else product + np.float32(keep) * target

    streams.enqueue(run)


def _matrix(address: int, rows: int, columns: int, pitch: int) -> np.ndarray:
    """(rows, columns) of device memory, columns `pitch` elements apart."""
    if pitch < rows:
        raise ValueError(f"columns of {rows} elements do not fit a pitch of {pitch}")
    nbytes = 4 * (pitch * (columns - 1) + rows)
    memory = arrays.POOL.holding(address, nbytes)
    whole = np.ctypeslib.as_array(memory)
    start = address - whole.ctypes.data
    flat = whole[start:start + nbytes].view(np.float32)
    return np.lib.stride_tricks.as_strided(flat, (rows, columns), (4, 4 * pitch))


def _rounded(x: np.ndarray, bits: int) -> np.ndarray:
    """To so many bits of mantissa, by arithmetic in float64: no code in common with the backend."""
    mantissa, exponent = np.frexp(x.astype(np.float64))
    scale = 2.0 ** (bits + 1)
    return np.ldexp(np.rint(mantissa * scale) / scale, exponent).astype(np.float32)
