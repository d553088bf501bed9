"""The environment variables of the stand-in, read at each use so that a test can change them."""

from __future__ import annotations

import os

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


def architecture() -> int:
    """Of whose PTX kernels are run; 0: what g++ makes of the sources."""
    value = os.environ.get(f"{PREFIX}_KERNELS", "g++")
    if value == "g++":
        return 0
    kind, _, number = value.partition("-")
    if kind != "ptx" or not number.isdigit():
        raise ValueError(f"{PREFIX}_KERNELS={value}: g++, or ptx-80 for the PTX of compute_80")
    return int(number)
