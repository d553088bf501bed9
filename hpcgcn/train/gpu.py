"""What a process with a GPU settles before MPI starts."""

from __future__ import annotations

from hpcgcn.backend.cuda_device import use_device
from hpcgcn.mpi.launcher import launched_local_rank
from hpcgcn.mpi.world import ask_for_one_thread


def prepare_gpu():
    """Choose the device and the thread level: MPI looks at both while it starts."""
    ask_for_one_thread()
    local_rank = launched_local_rank()
    if local_rank is not None:
        use_device(local_rank)
