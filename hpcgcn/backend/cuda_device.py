"""Finding CuPy and a device: the stand-in, devices that are shared, memory that runs out,
CUDA-aware MPI."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import sys
import warnings
from pathlib import Path

from hpcgcn.errors import BackendError

log = logging.getLogger(__name__)

SOURCES = Path(__file__).resolve().parent / "cuda_sources"
STAND_IN = "HPCGCN_CUDA_STAND_IN"


def uses_stand_in() -> bool:
    """Is the CPU stand-in for CuPy asked for? Only the exact value 1 counts."""
    value = os.environ.get(STAND_IN, "")
    if value not in ("", "0", "1"):
        raise BackendError(f"{STAND_IN}={value}: the only values are 1 (run the kernels on the "
                           "CPU, for tests) and 0")
    return value == "1"


def load_cupy():
    """CuPy, or its stand-in if the environment asks for it; a BackendError says what is missing."""
    if uses_stand_in():
        return _load_stand_in()
    try:
        import cupy
    except ImportError as error:
        raise BackendError(f"backend 'cuda' needs CuPy, which cannot be imported ({error}): pip "
                           "install 'hpcgcn[cuda12]' or 'hpcgcn[cuda13]', or choose --backend "
                           "native") from None
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise BackendError(f"backend 'cuda' finds no usable GPU here ({error}): run on a node "
                           "with one (nvidia-smi lists them), or choose --backend native") from None
    if count == 0:
        raise BackendError("backend 'cuda' finds no GPU: is CUDA_VISIBLE_DEVICES empty? Or "
                           "choose --backend native")
    try:
        import cupy.cublas  # not loaded by `import cupy`; needs libcublas
    except ImportError as error:
        raise BackendError(f"backend 'cuda' needs the CUDA libraries beside CuPy ({error}): load "
                           "the site's CUDA module, or pip install 'hpcgcn[cuda12]' or "
                           "'hpcgcn[cuda13]'") from None
    return cupy


def _load_stand_in():
    if "hpcgcn_cuda_stand_in" in sys.modules:
        return sys.modules["hpcgcn_cuda_stand_in"]
    path = SOURCES / "host" / "stand_in" / "__init__.py"
    if not path.exists():
        raise BackendError(f"{STAND_IN}=1 is set, but {path} is not there: the stand-in comes "
                           "with the source tree")
    spec = importlib.util.spec_from_file_location("hpcgcn_cuda_stand_in", path,
                                                  submodule_search_locations=[str(path.parent)])
    if spec is None or spec.loader is None:
        raise BackendError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules["hpcgcn_cuda_stand_in"] = module
    spec.loader.exec_module(module)
    return module


def use_device(local_rank: int):
    """Make the device of a local rank the current one, with a context, before MPI starts.

    Says nothing of what is wrong: all ranks do that together, when they make their backends.
    """
    with contextlib.suppress(BackendError):
        cupy = load_cupy()
        cupy.cuda.Device(local_rank % cupy.cuda.runtime.getDeviceCount()).use()
        cupy.cuda.runtime.free(0)                # the first call of the runtime makes the context


def warn_if_shared(comm, job_rank: int, uuid: bytes):
    """Warn, on rank 0, if two ranks compute on one GPU. Collective; job_rank: to name this rank."""
    ranks: dict[bytes, list[int]] = {}
    for rank, device in comm.allgather((job_rank, uuid)):
        ranks.setdefault(device, []).append(rank)
    shared = [group for group in ranks.values() if len(group) > 1]
    if shared and comm.rank == 0:
        groups = "; ".join("ranks " + ", ".join(map(str, group)) for group in shared)
        warnings.warn(f"GPUs are shared ({groups}): each gets a part of its speed and memory. "
                      "Start one rank per GPU.", RuntimeWarning, stacklevel=3)


@contextlib.contextmanager
def explain_out_of_memory(cupy, n_bytes: int):
    """Turn CuPy's error into one that says what was needed and what would help."""
    try:
        yield
    except cupy.cuda.memory.OutOfMemoryError:
        free, total = cupy.cuda.runtime.memGetInfo()
        used = cupy.get_default_memory_pool().used_bytes()
        raise BackendError(f"out of device memory: {n_bytes / 2**20:.1f} MiB more were needed, "
                           f"{used / 2**20:.1f} MiB are in use by this rank and "
                           f"{free / 2**20:.1f} of {total / 2**20:.1f} MiB are free. What helps: "
                           "more ranks (each holds a smaller part), --precision bf16, a smaller "
                           "--hidden, fewer layers") from None
