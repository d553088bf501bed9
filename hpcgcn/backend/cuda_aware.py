"""Can MPI read and write device memory? Asked, then tried with the calls of a run.

A library that cannot often crashes instead of saying so. So `--mpi auto` tries it only where the
library announces that it can; `--mpi cuda-aware` tries it unless the library denies it.
"""

from __future__ import annotations

import ctypes
import logging
import os

import numpy as np

from hpcgcn.backend.cuda_device import uses_stand_in
from hpcgcn.errors import BackendError

log = logging.getLogger(__name__)

# A message within what MPI sends at once, one that it cuts up itself, and one with an odd end.
SIZES = (1 << 10, 4 << 20, (1 << 20) + 3)
ENABLING = ("MPICH_GPU_SUPPORT_ENABLED", "MV2_USE_CUDA")


def announced() -> bool | None:
    """Does the library say that it takes device memory? None: it cannot be asked."""
    if uses_stand_in():
        return os.environ.get("HPCGCN_CUDA_STAND_IN_MPI") == "aware"
    if any(os.environ.get(name) == "1" for name in ENABLING):
        return True
    from mpi4py import MPI
    query = getattr(ctypes.CDLL(MPI.__file__), "MPIX_Query_cuda_support", None)
    return None if query is None else bool(query())


def choose(comm, cupy, stream, mpi: str) -> bool:
    """Does MPI get device memory? mpi: "auto" or "cuda-aware". Collective."""
    problem = find_problem(comm, cupy, stream, mpi == "auto")
    if problem and mpi == "cuda-aware":
        raise BackendError(f"--mpi cuda-aware: {problem}. Use an MPI library built with CUDA "
                           "support (and its switch, such as MPICH_GPU_SUPPORT_ENABLED=1), or "
                           "leave the default --mpi staged")
    if comm.rank == 0 and mpi == "auto":
        log.info("messages %s", f"go through host memory: {problem}" if problem
                 else "are sent from device memory")
    return not problem


def find_problem(comm, cupy, stream, only_if_announced: bool) -> str:
    """Why messages cannot be sent from device memory, the same on all ranks; "" if they can.

    Collective.
    """
    says = comm.allgather(announced())
    if False in says:
        return f"this MPI library ({_library()}) was built without CUDA support"
    if only_if_announced and None in says:
        return f"this MPI library ({_library()}) does not say that it takes device memory"
    if comm.rank == 0:
        log.warning("testing CUDA-aware MPI (a crash here means: use --mpi staged)")
    return next((problem for problem in comm.allgather(_try(comm, cupy, stream)) if problem), "")


def _library() -> str:
    from mpi4py import MPI
    return MPI.Get_library_version().split(",")[0].strip()


def _peers(comm) -> list[int]:
    """Ranks at distances 1, 2, 4, ... both ways: on this host and on others, few in any job."""
    steps = [1 << k for k in range(comm.size.bit_length()) if 1 << k < max(comm.size, 2)]
    return sorted({(comm.rank + sign * step) % comm.size for step in steps for sign in (1, -1)})


def _pattern(source: int, target: int, size: int) -> np.ndarray:
    return ((np.arange(size) + 7 * source + 13 * target) % 251).astype(np.uint8)


def _try(comm, cupy, stream) -> str:
    """Persistent requests over device memory, as a run has them, to some peers and of some sizes;
    twice, because some libraries register memory at the first use."""
    peers = _peers(comm)
    pairs = [(peer, size) for peer in peers for size in SIZES]
    outgoing = [cupy.asarray(_pattern(comm.rank, peer, size)) for peer, size in pairs]
    incoming = [cupy.asarray(np.zeros(size, np.uint8)) for _, size in pairs]
    stream.synchronize()                         # all are in place before MPI reads
    try:
        requests = [comm.Recv_init(array, peer, 77 + k % len(SIZES))
                    for k, ((peer, _), array) in enumerate(zip(pairs, incoming))]
        requests += [comm.Send_init(array, peer, 77 + k % len(SIZES))
                     for k, ((peer, _), array) in enumerate(zip(pairs, outgoing))]
        for _ in range(2):
            for request in requests:
                request.Start()
            for request in requests:
                request.Wait()
        for request in requests:
            request.Free()
    except Exception as error:  # noqa: BLE001 - libraries differ in what they raise; all mean no
        return f"sending device memory failed ({type(error).__name__}: {error})"
    wrong = [size for (peer, size), array in zip(pairs, incoming)
             if not (array.get() == _pattern(peer, comm.rank, size)).all()]
    return f"{wrong[0]} bytes of device memory arrived with wrong contents" if wrong else ""
