"""Ends a job that does not start, with a line that names a rank and its host.

While MPI starts, no thread of Python runs: the call keeps the interpreter to itself. So each rank
has a small process that watches it from outside, until the watchdog of the job takes over. A rank
that is stopped is named by its own watcher. If it was stopped before it had one, the others only
know that they wait.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import socket
import sys
import time

from hpcgcn.mpi.launcher import launched_rank

LOOK_SECONDS = 1.0
FIRST_SECONDS = 3.0                  # the watcher of a stopped rank speaks before those that wait
STAGGER_SECONDS, MOST_STAGGER = 0.5, 20.0
DEAD_SECONDS = 0.3
SPEAK_SECONDS = 1.0                  # launchers drop output when a rank ends


_watches: list[StartWatch] = []      # of this process: one, until its job has started


def job_has_started():
    """All ranks have met, and watch each other from now on."""
    while _watches:
        _watches.pop().close()


class StartWatch:
    """Watches the start of a rank that a launcher started; 0 seconds: not at all."""

    def __init__(self, seconds: float):
        self.seconds, self._rank = seconds, launched_rank() or ""
        self._watcher, self._sign = 0, -1

    def __enter__(self) -> StartWatch:
        _watches.append(self)
        if self.seconds and self._rank.isdecimal():
            sys.stdout.flush()
            sys.stderr.flush()
            ours, self._sign = os.pipe()     # it reads the end of this when the rank goes on
            try:
                self._watcher = os.fork()
            except OSError:                  # no more processes: an alarm ends it without a word
                signal.alarm(math.ceil(self.seconds))
            else:
                if self._watcher == 0:
                    self._watch(ours)
            os.close(ours)
        return self

    def __exit__(self, *exc):
        job_has_started()

    def close(self):
        """End the watcher."""
        signal.alarm(0)
        if self._sign >= 0:
            with contextlib.suppress(OSError):   # the watcher may have been ended
                os.write(self._sign, b".")       # without this, the rank has died
            os.close(self._sign)
        if self._watcher:
            os.waitpid(self._watcher, 0)

    def _watch(self, sign: int):
        """The watcher's whole life."""
        try:
            os.close(self._sign)
            rank, where = os.getppid(), f"rank {self._rank} on host {socket.gethostname()}"
            began = time.monotonic()
            if _went_on(sign, self.seconds):
                self._tell_if_dead(sign, where)
                return
            late = FIRST_SECONDS + min(STAGGER_SECONDS * int(self._rank), MOST_STAGGER)
            limit, stopped = time.monotonic() + late, 0
            while time.monotonic() < limit and stopped < 2:
                stopped = stopped + 1 if _is_stopped(rank) else 0
                if _went_on(sign, LOOK_SECONDS):
                    return
            waited = f"{time.monotonic() - began:.0f} s"
            _say(f"no progress for {waited} while the job starts: {where} gives no sign of life "
                 "(it is stopped); ending the job" if stopped else
                 f"{where} waited {waited} for the job to start: another rank gives no sign of "
                 "life (stopped, out of memory, or its host is gone); ending the job; a longer "
                 "--stall-timeout waits longer")
            if not _went_on(sign, SPEAK_SECONDS):
                os.kill(rank, signal.SIGKILL)
        finally:
            os._exit(0)                      # nothing of the rank's own end is done here


    @staticmethod
    def _tell_if_dead(sign: int, where: str):
        """Launchers do not always name a rank that dies so early.

        Those that its launcher ends because of it have their watchers ended with them.
        """
        if not os.read(sign, 1):
            time.sleep(DEAD_SECONDS)
            _say(f"{where} died while the job started (killed, out of memory, or MPI gave up)")


def _went_on(sign: int, seconds: float) -> bool:
    """Has the job started, or the rank ended, within this time?"""
    return bool(select.select([sign], [], [], seconds)[0])


def _is_stopped(process: int) -> bool:
    """By a signal or a debugger."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] in ("T", "t")
    except (OSError, IndexError):            # no such files on this system
        return False


def _say(text: str):
    os.write(2, f"hpcgcn: {text}\n".encode())
