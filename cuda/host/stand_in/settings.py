"""The environment variables of the stand-in, read at each use so that a test can change them."""

from __future__ import annotations

import os
from pathlib import Path

PREFIX = "HPCGCN_CUDA_STAND_IN"
ORDERS = ("ascending", "descending", "shuffled")
SCHEDULES = ("lazy", "stream0", "stream1")


def _choice(name: str, choices: tuple[str, ...]) -> str:
    value = os.environ.get(f"{PREFIX}_{name}", choices[0])
    if value not in choices:
        raise ValueError(f"{PREFIX}_{name}={value}: choose one of {', '.join(choices)}")
    return value


def order() -> int:
    """In which order threads and blocks run: 0 ascending, 1 descending, 2 shuffled."""
    return ORDERS.index(_choice("ORDER", ORDERS))


def schedule() -> str:
    """When queued work runs: `lazy`, or one stream as early as its event waits allow and the others
    lazily."""
    return _choice("SCHEDULE", SCHEDULES)


def sanitizers() -> str:
    """What g++ gets as -fsanitize, for instance `address,undefined`; empty for none."""
    return os.environ.get(f"{PREFIX}_SANITIZE", "")


def device_count() -> int:
    return int(os.environ.get(f"{PREFIX}_DEVICES", "8"))


def memory_limit() -> int:
    """Bytes of a device."""
    return int(os.environ.get(f"{PREFIX}_MEMORY", str(1 << 34)))


def mpi_is_aware() -> bool:
    """Does MPI take device arrays? Off by default, as for most MPI libraries."""
    return os.environ.get(f"{PREFIX}_MPI", "") == "aware"


def cache_directory() -> Path:
    """Where compiled modules are kept."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "hpcgcn-cuda-host"
    return Path(os.environ.get(f"{PREFIX}_CACHE", default))
