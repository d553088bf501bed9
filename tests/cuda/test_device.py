"""Choosing a device, saying what is wrong with it, and never taking the stand-in for a GPU by
accident."""

import gc
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hpcgcn.backend import cuda_compile
from hpcgcn.backend.cuda import CudaBackend
from hpcgcn.backend.cuda_device import (
    explain_out_of_memory,
    load_cupy,
    use_device,
    warn_if_shared,
)
from hpcgcn.errors import BackendError


class TwoRanks:
    """A communicator of two ranks as far as an allgather can tell."""

    rank, size = 0, 2

    def __init__(self, other):
        self.other = other

    def allgather(self, mine):
        return [mine, (1, self.other)]


@pytest.mark.parametrize("value", ["", "0", None])
def test_without_the_variable_there_is_no_stand_in(monkeypatch, value):
    if value is None:
        monkeypatch.delenv("HPCGCN_CUDA_STAND_IN", raising=False)
    else:
        monkeypatch.setenv("HPCGCN_CUDA_STAND_IN", value)
    try:
        assert load_cupy().__name__ == "cupy"
    except BackendError as error:
        assert "--backend native" in str(error)


@pytest.mark.parametrize("value", ["yes", "true", "2"])
def test_only_the_exact_value_chooses_the_stand_in(monkeypatch, value):
    monkeypatch.setenv("HPCGCN_CUDA_STAND_IN", value)
    with pytest.raises(BackendError, match="HPCGCN_CUDA_STAND_IN"):
        load_cupy()


def test_the_stand_in_says_that_it_is_one(backend):
    facts = backend.describe()
    assert "no GPU is used" in facts["STAND_IN"] and "stand-in" in facts["device_name"]


def test_no_cupy_is_explained(tmp_path):
    (tmp_path / "cupy.py").write_text("raise ImportError('libcudart.so is not there')")
    code = ("from hpcgcn.backend.cuda_device import load_cupy\nfrom hpcgcn.errors import "
            "BackendError\n"
            "try:\n    load_cupy()\nexcept BackendError as error:\n    print(error)")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.getcwd()])}
    env.pop("HPCGCN_CUDA_STAND_IN", None)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env,
                          timeout=60)
    assert ("libcudart.so is not there" in done.stdout
            and "hpcgcn[cuda12]" in done.stdout), done.stderr


def test_the_device_is_the_local_rank_modulo_the_devices(stand_in, monkeypatch):
    monkeypatch.setenv("HPCGCN_CUDA_STAND_IN_DEVICES", "4")
    assert CudaBackend(local_rank=5).device == 1


def test_ranks_that_share_a_gpu_are_warned(recwarn):
    with pytest.warns(RuntimeWarning, match="ranks 0, 1"):
        warn_if_shared(TwoRanks(b"same"), 0, b"same")
    recwarn.clear()
    warn_if_shared(TwoRanks(b"other"), 0, b"same")
    assert not recwarn.list


def test_out_of_memory_says_what_helps(backend, monkeypatch):
    monkeypatch.setenv("HPCGCN_CUDA_STAND_IN_MEMORY", str(1 << 20))
    for allocate in (lambda: backend.empty((1 << 20,)), lambda: backend.zeros((1 << 20,)),
                     lambda: backend.from_host(np.zeros(1 << 20, np.float32)),
                     lambda: backend.message(1 << 22)):
        with pytest.raises(BackendError,
                           match=r"4\.0 MiB more were needed.*more ranks.*bf16.*--hidden"):
            allocate()


def test_a_compiler_that_fails_is_explained(backend, monkeypatch, tmp_path):
    def fail(*_):
        raise RuntimeError("libnvrtc.so.12 is not there")
    monkeypatch.setattr(backend.cupy.nvrtc, "createProgram", fail)
    monkeypatch.setattr(cuda_compile, "cache_folder", lambda: tmp_path)
    with pytest.raises(BackendError, match=r"(?s)axpby.*libnvrtc.*hpcgcn\[cuda12\]"):
        backend.axpby(1.0, backend.zeros((4,)), 0.0, None, backend.zeros((4,)))


def test_memory_comes_back(backend):
    gc.collect()  # what earlier tests left in cycles goes now, not in the middle of this one
    pool = backend.cupy.get_default_memory_pool()
    before = pool.used_bytes()
    array = backend.empty((1000,))
    assert pool.used_bytes() == before + 4000
    backend.synchronize()
    del array
    assert pool.used_bytes() == before


def test_the_stand_in_offers_nothing_that_cupy_does_not(stand_in):
    cupy = pytest.importorskip("cupy")
    for name in ("RawModule", "asarray", "empty", "zeros", "ndarray", "get_default_memory_pool",
                 "__version__"):
        assert hasattr(cupy, name)
    for name in vars(stand_in.cuda):
        assert hasattr(cupy.cuda, name)
    for name in vars(stand_in.runtime):
        assert hasattr(cupy.cuda.runtime, name)
    assert hasattr(cupy.cuda.memory, "OutOfMemoryError")
    # the machinery's, and Stream.ptr, which CuPy sets in each instance
    own = ("allocate", "holding", "ptr")
    for ours, theirs in ((stand_in.cuda.Stream, cupy.cuda.Stream),
                         (stand_in.cuda.Event, cupy.cuda.Event), (stand_in.ndarray, cupy.ndarray),
                         (stand_in.arrays.MemoryPointer, cupy.cuda.MemoryPointer),
                         (stand_in.arrays.MemoryPool, cupy.cuda.MemoryPool),
                         (stand_in.RawModule, cupy.RawModule)):
        for name in (n for n in vars(ours) if not n.startswith("_") and n not in own):
            assert hasattr(theirs, name), (theirs, name)


def test_gemm_has_the_arguments_of_cupy(stand_in):
    cupy = pytest.importorskip("cupy")
    source = (Path(cupy.__file__).parent / "cublas.py").read_text()  # importing it needs libcublas
    signature = re.search(r"^def gemm\((.*?)\):", source, re.MULTILINE | re.DOTALL).group(1)
    assert [part.strip() for part in signature.split(",")] == [
        str(p).split(":")[0] for p in inspect.signature(stand_in.cublas.gemm).parameters.values()]


def test_explain_out_of_memory_lets_other_errors_pass(stand_in):
    with pytest.raises(ZeroDivisionError), explain_out_of_memory(stand_in, 1):
        assert 1 / 0


@pytest.mark.parametrize("variable", ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                      "SLURM_LOCALID"])
def test_the_device_is_chosen_before_mpi_starts(stand_in, variable):
    """In a process of its own: MPI is running in this one."""
    code = ("import sys, hpcgcn.train.gpu as gpu\n"
            "gpu.use_device = lambda rank: print('device of local rank', rank)\n"
            "gpu.prepare_gpu()\n"
            "assert 'mpi4py.MPI' not in sys.modules\n"
            "from mpi4py import MPI\n"
            "print(MPI.Query_thread() == MPI.THREAD_SERIALIZED)")
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("OMPI_COMM", "PMIX", "PMI_", "SLURM", "MPI_LOCAL"))}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
                          env=environment | {variable: "3"})
    assert done.stdout == "device of local rank 3\nTrue\n", done.stderr


LIBRARY = """
import sys
import hpcgcn.train.gpu as gpu
import hpcgcn.train.run as run
gpu.use_device = lambda rank: print("device of local rank", rank)
try:
    run.train_model("no such file", CONFIG)
except Exception:
    pass                                  # MPI runs, which is what counts
from mpi4py import MPI
print(MPI.Query_thread() == MPI.THREAD_SERIALIZED)
"""


@pytest.mark.parametrize("config, chosen",
                         [("{'backend': 'cuda'}", True), ("run.Config(backend='cuda')", True),
                          ("{'backend': 'native'}", False), ("None", False)])
def test_the_library_settles_the_device_before_mpi_starts(stand_in, tmp_path, config, chosen):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("OMPI_COMM", "PMIX", "PMI_", "SLURM", "MPI_LOCAL"))}
    done = subprocess.run([sys.executable, "-c", LIBRARY.replace("CONFIG", config)], cwd=tmp_path,
                          capture_output=True, text=True, timeout=60,
                          env=environment | {"SLURM_LOCALID": "2"})
    assert done.stdout == ("device of local rank 2\nTrue\n" if chosen else "False\n"), done.stderr


def test_a_file_of_settings_may_ask_for_a_gpu(tmp_path):
    from hpcgcn.train.gpu import asks_for_gpu
    file = tmp_path / "run.toml"
    file.write_text('backend = "cuda"\n')
    assert asks_for_gpu({}, file) and asks_for_gpu({"backend": None}, file)
    assert not asks_for_gpu({"backend": "native"}, file)     # flags win
    file.write_text("backend = ")
    assert not asks_for_gpu({}, file) and not asks_for_gpu({}, tmp_path / "none.toml")


def test_doctor_tells_of_nccl_and_of_gpus_per_rank(stand_in, monkeypatch):
    from hpcgcn.doctor import examine
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_RANK", "1")
    rows = {row["what"]: row for row in examine()}
    assert rows["NCCL"]["ok"] and "--transport nccl" in rows["NCCL"]["found"]
    assert "device 1 of 8; MPI starts with thread level serialized" in rows["GPU per rank"]["found"]
    monkeypatch.setenv("HPCGCN_CUDA_STAND_IN_DEVICES", "1")
    shared = {row["what"]: row for row in examine()}["GPU per rank"]
    assert not shared["ok"] and "MORE RANKS THAN GPUs" in shared["found"]


def test_a_device_chosen_early_says_nothing_of_what_is_wrong(monkeypatch):
    monkeypatch.setenv("HPCGCN_CUDA_STAND_IN", "not a value")
    use_device(0)
