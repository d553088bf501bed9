"""The kernels of cuda/*.cu: which instantiations exist, how they are compiled, and the shapes they
are launched in."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from hpcgcn.backend import cuda_compile
from hpcgcn.errors import BackendError

FLOATS = ("float", "half16", "bf16")
LANES = (4, 8, 16, 32)
BLOCK = 256                       # threads per block of row and flat kernels
NULL = np.uintp(0)                # a null pointer, as kernels take it

C_NAMES = {np.dtype(np.float32): "float", np.dtype(np.float16): "half16",
           np.dtype(np.uint16): "bf16"}


def _combinations(template: str, *choices) -> list[str]:
    return [template.format(*values) for values in product(*choices)]


BOOLS = ("false", "true")

# What is compiled together: (file, name expressions). The many products are cut by type, so that a
# run that uses one type of storage does not wait for the others.
MODULES = (
    *(("spmm.cu", (*_combinations("spmm_short<{}, {}, {}>", (x,), (1, 4), LANES),
                   *_combinations("spmm_long<{}, {}, {}>", (x,), (1, 4), LANES))) for x in FLOATS),
    ("spmm.cu", ("spmm_combine<1>", "spmm_combine<4>", "sparse_dropout")),
    ("rows.cu", (*_combinations("gather_rows<{}, {}>", FLOATS, BOOLS),
                 *_combinations("scatter_add_rows<{}, {}>", FLOATS, BOOLS),
                 *_combinations("copy_columns<{}, {}>", FLOATS, BOOLS),
                 "column_affine", "pack_columns", "invert_columns",
                 *_combinations("unpack_columns<{}>", BOOLS))),
    ("elementwise.cu", (*_combinations("convert<float, {}, {}>", FLOATS[1:], BOOLS),
                        *_combinations("convert<{}, float, {}>", FLOATS[1:], BOOLS),
                        *_combinations("axpby<{}>", BOOLS), *_combinations("adam<{}>", BOOLS))),
    ("attention.cu", ("head_dots", "head_dots_backward", "attend", "attention_gradients",
                      "attend_backward")),
    ("reduce.cu", ("column_sums", "square_sums", "column_dots", "column_totals")),
    ("loss.cu", ("softmax_cross_entropy", "sigmoid_cross_entropy")),
    ("epilogue.cu", ("random_bits", *_combinations("dropout<{}>", BOOLS),
                     *_combinations("epilogue_forward<{}>", BOOLS),
                     *_combinations("epilogue_backward<{}, {}>", BOOLS, BOOLS),
                     *_combinations("epilogue_backward_wide<{}, {}, {}>", BOOLS, BOOLS, BOOLS))),
    ("quantise.cu", (*_combinations("quantise<{}, {}>", (1, 2, 4, 8), BOOLS),
                     *_combinations("dequantise<{}, {}>", (1, 2, 4, 8), BOOLS))),
)


def boolean(value: bool) -> str:
    """As C++ writes it in a name expression."""
    return "true" if value else "false"


class Kernels:
    """All kernels by name; a module is compiled when the first of its kernels is asked for."""

    def __init__(self, cupy, capability: int):
        self._cupy, self._capability = cupy, capability
        self._home = {name: (file, names) for file, names in MODULES for name in names}
        self._functions: dict[str, Any] = {}

    def __getitem__(self, name: str):
        if name not in self._functions:
            try:
                self._load(*self._home[name])
            except BackendError:
                raise
            except Exception as error:           # CuPy, NVRTC and g++ raise what they like
                raise BackendError(f"the CUDA kernel {name} cannot be compiled or loaded here: "
                                   f"{error}\nCuPy needs the libraries of CUDA: load the site's "
                                   "CUDA module, or pip install 'hpcgcn[cuda12]' or "
                                   "'hpcgcn[cuda13]'") from error
        return self._functions[name]

    def _load(self, file: str, names: tuple[str, ...]):
        nvrtc = cuda_compile.load_nvrtc(self._cupy)
        target = cuda_compile.choose_target(nvrtc.getSupportedArchs(), self._capability)
        path, in_image = cuda_compile.compiled(nvrtc, file, names, target)
        module = self._cupy.RawModule(path=str(path))
        self._functions.update({name: module.get_function(in_image[name]) for name in names})


def blocks(n: int, each: int) -> int:
    """How many blocks of `each` cover n."""
    return -(-n // each)


def lanes_for(width: int, columns_a_thread: int) -> int:
    """Threads that share a row: a power of two up to a warp that covers the width, if it can."""
    needed = max(1, blocks(width, columns_a_thread))
    return min(32, 1 << (needed - 1).bit_length())


def row_shape(n: int, width: int, columns_a_thread: int) -> tuple[tuple[int], tuple[int, int]]:
    """Grid and block of a row kernel: all rows at once."""
    lanes = lanes_for(width, columns_a_thread)
    return (blocks(n, BLOCK // lanes),), (lanes, BLOCK // lanes)


def flat_shape(n: int) -> tuple[tuple[int], tuple[int]]:
    """Grid and block of a flat kernel: four elements a thread."""
    return (blocks(n, 4 * BLOCK),), (BLOCK,)


def aligned(*arrays) -> bool:
    """May four neighbouring elements of each array be read as one vector?"""
    return all(a is None or a.data.ptr % (4 * a.itemsize) == 0 for a in arrays)
