"""Every kernel that is compiled is also run, on the CPU and as PTX, against the reference."""

from itertools import product

import numpy as np
import pytest

from hpcgcn.backend.cuda import CudaBackend
from hpcgcn.backend.cuda_kernels import MODULES
from hpcgcn.backend.reference import ReferenceBackend

ORACLE = ReferenceBackend(np.float32)
ALL = {name for _, names in MODULES for name in names}
KEY, THRESHOLD = (5, 7), 20000
ROWS, COLUMNS = 9, 7


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class Device:
    """The backend under test: notes what is launched, and where arrays start."""

    def __init__(self, backend, shifted: bool):
        self.backend, self.shift, self.launched = backend, int(shifted), set()
        launch = backend.launch
        backend.launch = lambda name, *rest, **more: (self.launched.add(name),
                                                      launch(name, *rest, **more))

    def put(self, array):
        """A copy on the device, shifted by one item so that no vector can be read, or not."""
        flat = np.concatenate([np.zeros(self.shift, array.dtype), array.ravel()])
        return self.backend.from_host(flat)[self.shift:].reshape(array.shape)

    def same(self, name, arrays, *arguments, tolerance=1e-4, **settings):
        """Call an operation here and on the reference; all arrays must agree afterwards."""
        host = [np.array(a) if isinstance(a, np.ndarray) else a for a in arrays]
        there = [self.put(a) if isinstance(a, np.ndarray) else a for a in arrays]
        getattr(ORACLE, name)(*host, *arguments, **settings)
        getattr(self.backend, name)(*there, *arguments, **settings)
        for expected, got in zip(host, there):
            if isinstance(expected, np.ndarray):
                np.testing.assert_allclose(self.backend.to_host(got), expected, rtol=tolerance,
                                           atol=tolerance)


def every_kind_of_row():
    """Empty, short, long, and one with segments (test_everything makes them short)."""
    degrees = np.array([0, 1, 3, 16, 17, 40, 2, 5, 70])
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    indices = np.random.default_rng(0).integers(0, COLUMNS, indptr[-1]).astype(np.int32)
    return indptr, indices


def sparse(device):
    indptr, indices = every_kind_of_row()
    weights = numbers(len(indices))
    for width, dtype in product((4, 8, 16, 32, 64, 128), (np.float32, np.float16, np.uint16)):
        x = numbers(COLUMNS, width).astype(np.float16)
        x = as_bf16(x) if dtype is np.uint16 else x.astype(dtype)
        here, there = (b.csr(indptr, indices, COLUMNS, weights) for b in (ORACLE, device.backend))
        expected = numbers(ROWS, width, seed=2)
        out = device.put(expected)
        ORACLE.spmm(here, x, expected, accumulate=True)
        device.backend.spmm(there, device.put(x), out, accumulate=True)
        np.testing.assert_allclose(device.backend.to_host(out), expected, rtol=1e-3, atol=1e-3)
    after_dropout = []
    for backend, put in ((ORACLE, np.array), (device.backend, device.put)):
        matrix, out = (backend.csr(indptr, indices, COLUMNS, weights.copy()) for _ in range(2))
        backend.sparse_dropout(matrix, out, KEY, THRESHOLD, put(np.arange(ROWS, dtype=np.int64)))
        z = put(np.zeros((ROWS, 4), np.float32))
        backend.spmm(out, put(numbers(COLUMNS, 4)), z)
        after_dropout.append(backend.to_host(z))
    np.testing.assert_allclose(after_dropout[1], after_dropout[0], rtol=1e-3, atol=1e-3)


def as_bf16(x):
    out = np.empty(x.shape, np.uint16)
    ORACLE.convert(x.astype(np.float32), out)
    return out


def rows(device):
    index = np.array([4, 0, 6, 2], np.int32)
    columns = np.array([1, 3, 6], np.int32)
    for dtype in (np.float32, np.float16, np.uint16):
        for width in (8, 7):
            device.same("gather_rows", (numbers(ROWS, width), index, np.zeros((4, width), dtype)))
            stored = np.zeros((4, width), dtype)
            ORACLE.convert(numbers(4, width), stored)
            device.same("scatter_add_rows", (stored, index, numbers(ROWS, width)))
            if dtype is not np.float32:
                device.same("convert", (numbers(3, width), np.zeros((3, width), dtype)))
                device.same("convert", (stored, np.zeros((4, width), np.float32)))
    for dtype, first in product((np.float32, np.float16, np.uint16), (4, 3)):
        x = numbers(ROWS, 16).view(np.uint16)[:, :16] if dtype is np.uint16 \
            else numbers(ROWS, 16).astype(dtype)
        there, out = device.put(np.ascontiguousarray(x)), device.put(np.zeros((ROWS, 8), dtype))
        device.backend.copy(there[:, first:first + 8], out)
        np.testing.assert_array_equal(device.backend.to_host(out), x[:, first:first + 8])
    for width in (8, 7):
        device.same("pack_columns", (numbers(ROWS, width), index, columns,
                                     np.zeros((4, 3), np.float32)))
        device.same("unpack_columns", (numbers(4, 3), columns, numbers(4, width)), 2.0)


def codecs(device):
    ids = np.arange(ROWS, dtype=np.int64) + 2 ** 33
    for bits, width in product((1, 2, 4, 8), (16, 13)):
        nbytes = ROWS * 8 + ROWS * (-(-width * bits // 8))
        coded = np.zeros(nbytes, np.uint8)
        x = numbers(ROWS, width)
        ORACLE.quantise(x, None, ids, bits, KEY, True, coded)
        there = device.backend.zeros((nbytes,), np.uint8)
        device.backend.quantise(device.put(x), None, device.put(ids), bits, KEY, True, there)
        np.testing.assert_array_equal(device.backend.to_host(there), coded)     # every bit
        decoded, out = np.zeros_like(x), device.put(np.zeros_like(x))
        ORACLE.dequantise(coded, bits, True, decoded)
        device.backend.dequantise(there, bits, True, out)
        np.testing.assert_array_equal(device.backend.to_host(out), decoded)


def fused(device):
    ids = np.arange(ROWS, dtype=np.int64)
    for width in (16, 13, 260, 4800, 4801):       # sums in registers, shared and global memory
        arrays = [numbers(ROWS, width, seed=k) for k in range(3)]
        device.same("epilogue_backward", (*arrays, 1.5, numbers(width),
                                          numbers(ROWS, width, seed=4), np.abs(numbers(ROWS)),
                                          *np.zeros((3, width), np.float32)), tolerance=1e-3)
    for width in (16, 13, 260, 14000, 14001):
        arrays = [numbers(ROWS, width, seed=k) for k in range(3)]
        device.same("epilogue_backward", (*arrays, 1.5, None, None, None, None, None,
                                          np.zeros(width, np.float32)))
    for width in (16, 13):
        shape = ROWS, width
        dropped, out = np.zeros(shape, np.float32), device.put(np.zeros(shape, np.float32))
        ORACLE.dropout(numbers(*shape), dropped, KEY, THRESHOLD, ids)
        device.backend.dropout(device.put(numbers(*shape)), out, KEY, THRESHOLD, device.put(ids))
        np.testing.assert_allclose(device.backend.to_host(out), dropped, rtol=1e-6)
        vectors = [numbers(width, seed=k) for k in range(3)]
        device.same("epilogue_forward", (numbers(*shape), np.zeros(shape, np.float32), *vectors,
                                         np.zeros(shape, np.float32), np.zeros(ROWS, np.float32)))
    bits = device.backend.empty((ROWS, 13), np.uint16)
    device.backend.random_bits(KEY, device.put(ids), bits)
    expected = np.empty((ROWS, 13), np.uint16)
    ORACLE.random_bits(KEY, ids, expected)
    np.testing.assert_array_equal(device.backend.to_host(bits), expected)


def flat(device):
    x, y = numbers(101), numbers(101, seed=1)
    device.same("axpby", (2.0, x, 3.0, y, np.zeros(101, np.float32)))
    device.same("adam", (x, y, numbers(101, seed=2), np.abs(numbers(101, seed=3))), 0.01, 0.9,
                0.999, 1e-8, 0.1, 0.5, 0.5)
    device.same("column_sum_add", (numbers(100, 9), numbers(9)))
    rows, other, sums = numbers(700, 41), numbers(700, 41, seed=1), np.ones(41)
    for y in (other, None):
        device.same("column_dots_add", (rows, y, sums), tolerance=1e-12)
    vectors = [numbers(41, seed=k) for k in (2, 3, 4)]
    device.same("column_affine", (rows, vectors[0], other, *vectors[1:], np.zeros_like(rows)))
    device.same("column_affine", (rows, vectors[0], None, None, vectors[2], np.zeros_like(rows)))
    assert device.backend.square_sum(device.put(x)) == pytest.approx(ORACLE.square_sum(x))


def losses(device):
    logits, labels = numbers(ROWS, 5), np.arange(ROWS, dtype=np.int32) % 6 - 1
    device.same("softmax_cross_entropy", (logits, labels, 0.5, np.zeros_like(logits)))
    device.same("sigmoid_cross_entropy", (logits, (logits > 0).astype(np.uint8),
                                          (labels > 0).astype(np.uint8), 0.5,
                                          np.zeros_like(logits)))


def attention(device):
    heads, width = 2, 12
    indptr, indices = every_kind_of_row()
    structure = ((indptr, indices, COLUMNS), (np.arange(COLUMNS + 1, dtype=np.int64) * 2,
                                              np.arange(2 * COLUMNS, dtype=np.int32) % ROWS, ROWS))
    there, back = (Matrices(device, arrays) for arrays in structure)
    x, source, target, dout = (numbers(COLUMNS, width), numbers(COLUMNS, heads),
                               numbers(ROWS, heads, seed=1), numbers(ROWS, width, seed=2))
    made = np.zeros((ROWS, 3 * heads), np.float32), np.zeros((ROWS, 2 * width), np.float32)
    ids = np.arange(ROWS, dtype=np.int64), np.arange(COLUMNS, dtype=np.int64)
    there.same("attend", (x, source, target, *made, np.zeros_like(dout)), ((0, ROWS), True, True),
               ids)
    facts = np.abs(numbers(ROWS, 3 * heads, seed=3))
    back.same("attend_backward", (dout, facts, x, source, np.zeros_like(x), np.zeros_like(source)),
              ((0, COLUMNS), False), ids[::-1])
    device.same("attention_gradients", (dout, numbers(ROWS, 2 * width), facts, target,
                                        np.zeros_like(facts), np.zeros_like(target)))
    vector = numbers(width, seed=4)
    device.same("head_dots", (x, vector, np.zeros_like(source)))
    device.same("head_dots_backward", (x, vector, source, np.zeros_like(x), np.zeros_like(vector)))


class Matrices:
    """A matrix here and on the device, for operations that take one first."""

    def __init__(self, device, arrays):
        self.device = device
        self.here, self.there = (b.csr(*arrays) for b in (ORACLE, device.backend))

    def same(self, name, arrays, arguments, ids):
        """Call an operation on both, with dropout; all arrays must agree afterwards."""
        there = [self.device.put(a) for a in arrays]
        getattr(ORACLE, name)(self.here, *arrays, *arguments, (KEY, THRESHOLD, *ids))
        getattr(self.device.backend, name)(self.there, *there, *arguments,
                                           (KEY, THRESHOLD, *map(self.device.put, ids)))
        for expected, got in zip(arrays, there):
            np.testing.assert_allclose(self.device.backend.to_host(got), expected, rtol=1e-4,
                                       atol=1e-4)


@pytest.mark.parametrize("architecture", [0, 70, 80, 90, 100])
def test_everything_is_launched(stand_in, ptx_machine, monkeypatch, architecture):
    if architecture:
        ptx_machine(architecture)
    monkeypatch.setattr("hpcgcn.backend.cuda_sparse.SEGMENT", 32)
    launched = set()
    for shifted in (False, True):
        device = Device(CudaBackend(), shifted)
        for part in (sparse, rows, codecs, fused, flat, losses, attention):
            part(device)
        launched |= device.launched
    assert launched == ALL
