"""Does a process that holds a file still live? The kernel knows, whatever container it is in."""

from __future__ import annotations

import fcntl
import functools
import socket


@functools.cache
def machine() -> str:
    """This start of this machine's kernel: locks of two processes of one kernel see each other."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return socket.gethostname()


def try_lock(file: int) -> bool | None:
    """True if the lock was free, False if a process holds it, None where there are no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    except OSError:
        return None
