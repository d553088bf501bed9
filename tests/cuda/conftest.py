"""Fixtures of the CUDA tests: all but the NVRTC ones run on the stand-in, on any machine with
g++."""

import shutil

import pytest

ORDERS = ("ascending", "descending", "shuffled")
SCHEDULES = ("lazy", "stream0", "stream1")


@pytest.fixture
def stand_in(monkeypatch):
    """The stand-in for CuPy, chosen by the environment for this test only."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ to compile CUDA sources for the CPU")
    monkeypatch.setenv("HPCGCN_CUDA_STAND_IN", "1")
    from hpcgcn.backend.cuda_device import load_cupy
    return load_cupy()


@pytest.fixture
def ptx_machine(monkeypatch):
    """Call it with an architecture for the stand-in that runs the PTX of that architecture."""
    pytest.importorskip("cupy_backends.cuda.libs.nvrtc",
                        reason="no NVRTC: pip install 'hpcgcn[cuda-test]'")
    monkeypatch.setenv("HPCGCN_CUDA_STAND_IN", "1")

    def choose(architecture: int):
        monkeypatch.setenv("HPCGCN_CUDA_STAND_IN_KERNELS", f"ptx-{architecture}")
        from hpcgcn.backend.cuda_device import load_cupy
        return load_cupy()
    return choose


@pytest.fixture
def backend(stand_in):
    """The CUDA backend on the stand-in, with staged messages."""
    from hpcgcn.backend.cuda import CudaBackend
    return CudaBackend()


@pytest.fixture(params=ORDERS)
def order(request, monkeypatch):
    """Each order in which threads and blocks may run."""
    monkeypatch.setenv("HPCGCN_CUDA_STAND_IN_ORDER", request.param)
    return request.param


@pytest.fixture(params=SCHEDULES)
def schedule(request, monkeypatch):
    """Each way in which two streams may overtake one another."""
    monkeypatch.setenv("HPCGCN_CUDA_STAND_IN_SCHEDULE", request.param)
    return request.param
