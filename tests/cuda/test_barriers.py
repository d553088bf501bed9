"""Every kernel with a barrier, in every thread order and as PTX, against NumPy: small, so that
mutations run through it quickly."""

import numpy as np
import pytest

from hpcgcn.backend.cuda import CudaBackend
from hpcgcn.backend.reference import ReferenceBackend

ORDERS = ("ascending", "descending", "shuffled")


@pytest.fixture(params=[*ORDERS, "ptx-70", "ptx-80", "ptx-90", "ptx-100"])
def backend(request, stand_in, monkeypatch):
    """The sources in each order of threads, and the PTX of each architecture."""
    if request.param in ORDERS:
        monkeypatch.setenv("HPCGCN_CUDA_STAND_IN_ORDER", request.param)
    else:
        pytest.importorskip("cupy_backends.cuda.libs.nvrtc", reason="no NVRTC")
        monkeypatch.setenv("HPCGCN_CUDA_STAND_IN_KERNELS", request.param)
    return CudaBackend()


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_column_sums(backend):
    for seed in range(2):  # what an earlier launch left in shared memory must not help
        x = numbers(300, 40, seed=seed)
        out = backend.zeros((40,))
        backend.column_sum_add(backend.from_host(x), out)
        np.testing.assert_allclose(backend.to_host(out), x.sum(axis=0), rtol=1e-4, atol=1e-4)


def test_sums_of_attention_vectors(backend):
    for seed in range(2):
        x, vector, dout = (numbers(300, 40, seed=seed), numbers(4, 10, seed=seed),
                           numbers(300, 4, seed=seed + 9))
        dx, dvector = backend.zeros((300, 40)), backend.zeros((4, 10))
        backend.head_dots_backward(backend.from_host(x), backend.from_host(vector),
                                   backend.from_host(dout), dx, dvector)
        expected = (x.reshape(300, 4, 10) * dout[:, :, None]).sum(axis=0)
        np.testing.assert_allclose(backend.to_host(dvector), expected, rtol=1e-4, atol=1e-4)


def test_sums_of_blocks(backend):
    for seed in range(2):
        x = numbers(5000, seed=seed)
        assert backend.square_sum(backend.from_host(x)) == pytest.approx(
            float((x.astype(np.float64) ** 2).sum()))


def test_columns_are_unpacked_where_they_belong(backend):
    for seed in range(2):
        columns = np.sort(np.random.default_rng(seed).choice(300, 40,
                                                             replace=False)).astype(np.int32)
        x = numbers(5, 40, seed=seed)
        out, expected = backend.zeros((5, 300)), np.zeros((5, 300), np.float32)
        backend.unpack_columns(backend.from_host(x), backend.from_host(columns), out)
        expected[:, columns] = x
        np.testing.assert_array_equal(backend.to_host(out), expected)


@pytest.mark.parametrize("width", [40, 260])             # sums in registers, and in strips
def test_sums_of_the_backward_pass(backend, width):
    oracle = ReferenceBackend(np.float32)
    for seed in range(2):
        dout, out, xhat = (numbers(70, width, seed=3 * seed + k) for k in range(3))
        gamma, rstd = numbers(width, seed=seed), np.abs(numbers(70, seed=seed))
        expected = [np.zeros(width, np.float32) for _ in range(3)]
        dy = np.empty_like(dout)
        oracle.epilogue_backward(dout, out, dy, 1.5, gamma, xhat, rstd, *expected)
        sums = [backend.zeros((width,)) for _ in range(3)]
        on_device = [backend.from_host(a) for a in (dout, out, np.empty_like(dout))]
        backend.epilogue_backward(*on_device, 1.5,
                                  *(backend.from_host(a) for a in (gamma, xhat, rstd)), *sums)
        np.testing.assert_allclose(backend.to_host(on_device[2]), dy, rtol=1e-4, atol=1e-4)
        for got, want in zip(sums, expected):
            np.testing.assert_allclose(backend.to_host(got), want, rtol=1e-4, atol=1e-4)
