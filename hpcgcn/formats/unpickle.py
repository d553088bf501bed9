"""Pickles of arrays, sparse matrices and adjacency lists, read by an allow-list: nothing else is
built, nothing is run.

Names in a pickle lead to the inert stand-ins below, never to NumPy or SciPy: what a pickle
describes is only written down, and made into arrays by this module after every part of it has been
checked.
"""

from __future__ import annotations

import io
import os
import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpcgcn.errors import FileError, printable
from hpcgcn.formats.files import check_readable
from hpcgcn.formats.pickle_size import check_pickle

_NUMBERS = ("f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1")
_OPCODES = frozenset("""PROTO FRAME STOP MARK POP POP_MARK DUP MEMOIZE PUT BINPUT LONG_BINPUT GET
    BINGET LONG_BINGET GLOBAL STACK_GLOBAL REDUCE BUILD NEWOBJ NONE NEWTRUE
    NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT STRING
    BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8 UNICODE
    BINUNICODE SHORT_BINUNICODE BINUNICODE8 EMPTY_LIST LIST APPEND APPENDS
    EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_DICT DICT SETITEM SETITEMS""".split())


@dataclass
class Csr:
    """A sparse matrix as it was pickled, checked."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    shape: tuple[int, int]


class _StandIn:
    """Keeps the state that a pickle gives it."""

    state: Any = None                    # what the file gives: of any type

    def __setstate__(self, state):
        self.state = state


class _DType(_StandIn):
    def __init__(self, code="", *_):
        self.code = code


class _Array(_StandIn):
    pass


class _Matrix(_StandIn):
    pass


def _reconstruct(*_):
    return _Array()


def _defaultdict(*_):
    return {}


def _no_bytes():
    return b""


def _latin_bytes(text="", encoding="latin1"):
    return str(text).encode("latin1")


_ALLOWED = {
    ("numpy", "dtype"): _DType, ("numpy", "ndarray"): _Array,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("scipy.sparse.csr", "csr_matrix"): _Matrix,
    ("scipy.sparse._csr", "csr_matrix"): _Matrix,
    ("collections", "defaultdict"): _defaultdict, ("__builtin__", "list"): list,
    ("builtins", "list"): list, ("_codecs", "encode"): _latin_bytes,
    ("__builtin__", "bytes"): _no_bytes, ("builtins", "bytes"): _no_bytes,
}


class _AllowListUnpickler(pickle.Unpickler):
    def find_class(self, module, name):
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}") from None


def read_pickle(path: str | os.PathLike):
    """The array, sparse matrix (Csr) or {node: [neighbours]} of a pickle; FileError for anything
    else."""
    check_readable(path)
    with open(path, "rb") as file:
        data = file.read()
    try:
        check_pickle(data, len(data), _OPCODES)
        value = _AllowListUnpickler(io.BytesIO(data), encoding="latin1").load()
        return _made(value, len(data))
    except FileError as error:
        raise FileError(f"{path}: {error}") from None
    except Exception as error:  # noqa: BLE001
        # a crafted pickle can make the unpickler fail in any way
        raise FileError(f"{path} is refused: {printable(error, 200)}; expected a pickle of a "
                        "NumPy array, a SciPy CSR matrix or a dictionary of lists, and nothing "
                        "that could run code") from None


def _made(value, n_bytes: int):
    if isinstance(value, _Array):
        return _array(value)
    if isinstance(value, _Matrix):
        return _matrix(value)
    if isinstance(value, dict):
        _check_rows(value, n_bytes)
        return value
    raise FileError(f"it holds a {type(value).__name__.lstrip('_')}; expected an array, a sparse "
                    "matrix or adjacency lists")


def _check_rows(rows: dict, n_bytes: int):
    """Every neighbour takes a byte at least, unless rows are one and the same list, to be built up
    in memory."""
    if not all(isinstance(row, (list, tuple))
               for row in rows.values()) or sum(map(len, rows.values())) > n_bytes:
        raise FileError("it holds no adjacency lists, or more of them than fit into it; expected "
                        "{node: [neighbours]}")


def _array(array: _Array) -> np.ndarray:
    _, shape, dtype, fortran, data = array.state
    if not isinstance(dtype, _DType) or dtype.code.lstrip("<>|=") not in _NUMBERS:
        raise FileError(f"an array of {getattr(dtype, 'code', dtype)!r}; expected numbers")
    order = dtype.state[1] if dtype.state else "="
    kind = np.dtype(dtype.code.lstrip("<>|=")).newbyteorder(order if order in "<>" else "=")
    data = data.encode("latin1") if isinstance(data, str) else data
    if not isinstance(data, bytes) or any(not isinstance(n, int) or n < 0 for n in shape) \
            or kind.itemsize * int(np.prod(shape, dtype=object)) != len(data):
        raise FileError(f"an array of shape {shape} whose data does not fit; expected a whole file")
    whole = np.frombuffer(data, kind).reshape(shape, order="F" if fortran else "C")
    return whole.astype(kind.newbyteorder("="))


def _matrix(matrix: _Matrix) -> Csr:
    fields = matrix.state
    indptr, indices, values = (_array(fields[name]) for name in ("indptr", "indices", "data"))
    shape = tuple(int(n) for n in fields.get("_shape", fields.get("shape")))
    sound = (len(shape) == 2 and indptr.ndim == indices.ndim == values.ndim == 1
             and len(indices) == len(values) and indptr.dtype.kind in "iu"
             and indices.dtype.kind in "iu" and len(indptr) == shape[0] + 1 and indptr[0] == 0
             and indptr[-1] == len(indices) and (np.diff(indptr.astype(np.int64)) >= 0).all()
             and (not len(indices) or (indices.min() >= 0 and indices.max() < shape[1])))
    if not sound:
        raise FileError("a sparse matrix whose row ends or columns do not fit its shape; "
                        "expected a sound CSR matrix")
    return Csr(indptr.astype(np.int64), indices.astype(np.int32), values, (shape[0], shape[1]))
