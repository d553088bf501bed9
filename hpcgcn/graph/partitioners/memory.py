"""How much memory there is for a partitioner."""

from __future__ import annotations

import os

_CGROUP = "/sys/fs/cgroup"
_SPARE = 0.9               # of what is free: other processes need some, too


def free_memory() -> float:
    """Bytes that this process may use: what the machine has free, or what is left of a limit."""
    return _SPARE * min(_of_machine(), _of_group())


def _of_machine() -> float:
    try:
        with open("/proc/meminfo") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return 1024.0 * int(line.split()[1])
    except OSError:
        pass
    return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def _of_group() -> float:
    """What is left of the limit of a container or batch job; cached files count as free."""
    try:
        with open(f"{_CGROUP}/memory.max") as file:
            limit = file.read().strip()
        if limit == "max":
            return float("inf")
        with open(f"{_CGROUP}/memory.stat") as file:
            used = sum(int(line.split()[1]) for line in file if line.startswith("anon "))
        return float(limit) - used
    except (OSError, ValueError):
        return float("inf")
