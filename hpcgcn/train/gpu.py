"""What a process with a GPU settles before MPI starts."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping

from hpcgcn.backend.cuda_device import use_device
from hpcgcn.config import Config, read_toml
from hpcgcn.errors import ConfigError
from hpcgcn.mpi.launcher import launched_local_rank
from hpcgcn.mpi.world import ask_for_one_thread

_CHOOSE_BACKENDS = ("backend", "sparse_backend")


def asks_for_gpu(given: Mapping | Config | None, file: str | os.PathLike | None = None) -> bool:
    """Does one of these settings, or of a TOML file's where they say nothing, choose cuda?

    What is wrong with either is said later, by all ranks together.
    """
    if isinstance(given, Config):
        given = {key: getattr(given, key) for key in _CHOOSE_BACKENDS}
    given = given if isinstance(given, Mapping) else {}
    settings: dict = {}
    if file:
        with contextlib.suppress(ConfigError):
            settings = read_toml(os.fspath(file))
    settings.update({key: given[key] for key in _CHOOSE_BACKENDS if given.get(key) is not None})
    return any(settings.get(key) == "cuda" for key in _CHOOSE_BACKENDS)


def prepare_gpu():
    """Choose the device and the thread level: MPI looks at both while it starts.

    Too late, and left alone, if MPI has started.
    """
    if "mpi4py.MPI" in sys.modules:
        return
    ask_for_one_thread()
    local_rank = launched_local_rank()
    if local_rank is not None:
        use_device(local_rank)
