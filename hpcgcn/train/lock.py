"""One job at a time in a run folder: a lock that says who holds it, and dies with its holder.

The kernel's lock on the file tells whether a holder of this machine lives, in whatever container.
Many parallel file systems have no such locks between hosts, so the holder also touches the file
every few seconds: a lock of another host counts as left behind when it was not touched for long.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
from datetime import UTC, datetime

from hpcgcn.errors import FileError
from hpcgcn.files.alive import machine, try_lock
from hpcgcn.files.atomic import explained

NAME = "lock.json"
TOUCH_SECONDS = 5.0
STALE_SECONDS = 60.0                 # after which a lock that nobody touches is left behind
LOOK_SECONDS = 1.0


class RunLock:
    """The lock of a run folder; FileError if another job holds it."""

    def __init__(self, folder: str):
        self.folder, self.path = folder, os.path.join(folder, NAME)
        self._mine = {"host": socket.gethostname(), "process": os.getpid(), "machine": machine(),
                      "since": datetime.now(UTC).isoformat(timespec="seconds")}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._keep_touching, name="run lock", daemon=True)

    def __enter__(self) -> RunLock:
        with explained(self.path):
            self._file = self._open()
            try:
                self._claim()
            except BaseException:
                os.close(self._file)
                raise
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self._end.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            if self.is_held():
                os.unlink(self.path)
        os.close(self._file)

    def is_held(self) -> bool:
        """Is it still this job's? Another host takes it if this one was stopped for too long."""
        try:
            same = os.path.samestat(os.fstat(self._file), os.stat(self.path))
            return same and _read(self._file) == self._mine
        except OSError:
            return False

    def check(self):
        """Refuse to go on in a folder that another job has taken."""
        if not self.is_held():
            raise FileError(f"{self.folder}: another job has taken over this run, as this one was "
                            f"stopped for more than {STALE_SECONDS:.0f} s; this one ends here")

    def _open(self) -> int:
        """The lock file, which the last holder may remove in the same moment."""
        while True:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            self._has_kernel_lock = try_lock(file)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), os.stat(self.path)):
                    return file
            os.close(file)

    def _claim(self):
        holder = _read(self._file)
        here = holder.get("machine") == self._mine["machine"] and self._has_kernel_lock is not None
        if self._has_kernel_lock is False or holder and not here and self._is_touched(holder):
            raise FileError(f"{self.folder} is in use by {_name(holder)}: wait until it ends, or "
                            "choose another --name")
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, json.dumps(self._mine).encode() + b"\n", 0)
        os.fsync(self._file)

    def _is_touched(self, holder: dict) -> bool:
        """Does the holder, of another host, touch its lock? By the clock of the file system."""
        first = self._touched()
        with _probe(self.folder) as now:
            if now() - first > STALE_SECONDS:
                return False
            print(f"hpcgcn: {self.folder} was in use by {_name(holder)} a moment ago: waiting up "
                  f"to {STALE_SECONDS:.0f} s to see whether it still is", file=sys.stderr,
                  flush=True)
            while now() - first <= STALE_SECONDS:
                time.sleep(LOOK_SECONDS)
                if self._touched() != first:
                    return True
        return False

    def _touched(self) -> float:
        with open(self.path, "rb") as file:      # to open is what makes a network file system look
            return os.fstat(file.fileno()).st_mtime

    def _keep_touching(self):
        while not self._end.wait(TOUCH_SECONDS):
            with contextlib.suppress(OSError):
                os.utime(self._file)


class LockHolder:
    """Rank 0's lock, once it is taken; on the other ranks, and before, nothing."""

    def __init__(self):
        self._lock: RunLock | None = None

    def __enter__(self) -> LockHolder:
        return self

    def __exit__(self, *exc):
        if self._lock:
            self._lock.__exit__(*exc)

    def take(self, folder: str):
        """Lock a run folder until the end; FileError if another job holds it."""
        self._lock = RunLock(folder).__enter__()

    def check(self):
        """FileError if another job has taken the run over."""
        if self._lock:
            self._lock.check()


@contextlib.contextmanager
def _probe(folder: str):
    """The time of the file system's clock, whichever host keeps it."""
    from hpcgcn.files.tidy import temporary_beside
    with temporary_beside(os.path.join(folder, NAME)) as path:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)

        def now() -> float:
            os.utime(file)
            return os.fstat(file).st_mtime
        try:
            yield now
        finally:
            os.close(file)


def _read(file: int) -> dict:
    """Who holds it; empty if nobody does, or has not said yet."""
    try:
        holder = json.loads(os.pread(file, 4096, 0))
        return holder if isinstance(holder, dict) else {}
    except ValueError:
        return {}


def _name(holder: dict) -> str:
    if not holder:
        return "another process"
    return (f"process {holder.get('process')} on host {holder.get('host')}, "
            f"since {holder.get('since')}")
