"""Ends a job that has come to a standstill, with a message that names the rank and host that hold it up.

Every rank has a thread that writes a heartbeat file in the run's folder each second: a count, and where the rank is. If a
rank's own work makes no headway for the stall limit, its thread looks at everyone's files: a count that stands still
belongs to a process that is stopped or gone. Files, because they need neither MPI (which is what hangs) nor open ports,
and because all ranks must share this folder for checkpoints anyway. Counts are compared with this rank's own clock, so
clocks of hosts need not agree.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time

BEAT_SECONDS = 1.0
LOOKS = 3                            # how many beats a rank may miss before it counts as silent
SPEAKER_SECONDS = 10.0               # how long the other ranks leave the word to the lowest that is alive
EXIT_STALLED = 1

_headway = 0                         # grows whenever this process gets on


def headway():
    """Called wherever work gets done: a block of rows, a message that arrived, an epoch."""
    global _headway
    _headway += 1


class Watchdog:
    """Watches over a block of code that all ranks run together. A limit of 0 seconds watches nothing."""

    def __init__(self, comm, folder: str, limit: float):
        self.comm, self.limit, self.rank = comm, limit, comm.rank
        self.folder = os.path.join(folder, ".heartbeat")
        self.host = socket.gethostname()
        self.where = "starting"
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> "Watchdog":
        if self.limit and self.comm.size > 1:
            os.makedirs(self.folder, exist_ok=True)
            self._write(0)
            self._thread.start()
        return self

    def __exit__(self, *exc):
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()
            self._remove(self.rank)

    # -- heartbeats -----------------------------------------------------------------------------------------------------
    def _path(self, rank: int) -> str:
        return os.path.join(self.folder, f"rank-{rank}")

    def _remove(self, rank: int):
        try:
            os.remove(self._path(rank))
        except OSError:
            pass                     # the folder may be gone, or never have been written: it is only a heartbeat

    def _write(self, count: int):
        temporary = self._path(self.rank) + ".tmp"
        try:
            with open(temporary, "w") as file:
                file.write(f"{count} {self.host} {self.where}")
            os.replace(temporary, self._path(self.rank))
        except OSError:
            pass                     # a full disk is for the checkpoint to report, not for a heartbeat

    def _read_all(self) -> dict[int, tuple[str, str, str]]:
        found = {}
        for rank in range(self.comm.size):
            try:
                with open(self._path(rank)) as file:
                    found[rank] = tuple(file.read().split(" ", 2))
            except OSError:
                found[rank] = ("", "unknown host", "unknown")
        return found

    # -- the thread ------------------------------------------------------------------------------------------------------
    def _watch(self):
        seen, since, count = _headway, time.monotonic(), 0
        while not self._end.wait(BEAT_SECONDS):
            count += 1
            self._write(count)
            if _headway != seen:
                seen, since = _headway, time.monotonic()
            elif time.monotonic() - since > self.limit:
                self._judge(count, time.monotonic() - since)
                seen, since = _headway, time.monotonic()

    def _judge(self, count: int, waited: float):
        """No headway here for too long: find out who is silent, say so, and end the job; unless headway was made meanwhile."""
        before, seen = self._read_all(), _headway
        for _ in range(LOOKS):
            if self._end.wait(BEAT_SECONDS):
                return
            count += 1
            self._write(count)
        after = self._read_all()
        if _headway != seen:
            return
        silent = [rank for rank in after if rank != self.rank and after[rank][0] == before[rank][0]]
        speaker = min(set(after) - set(silent), default=self.rank)
        if self.rank != speaker:
            time.sleep(SPEAKER_SECONDS)          # it ends the job, this rank included; if it does not, speak up here
        print(f"hpcgcn: {self._message(waited, silent, after)}", file=sys.stderr, flush=True)
        time.sleep(BEAT_SECONDS)                 # launchers drop what is still on its way when a job is aborted
        self.comm.Abort(EXIT_STALLED)

    def _message(self, waited: float, silent: list[int], beats: dict) -> str:
        names = ", ".join(f"rank {rank} on host {beats[rank][1]} ({beats[rank][2]})" for rank in silent)
        if silent:
            return (f"no headway for {waited:.0f} s: {names} gives no sign of life (stopped, out of memory, or its host is gone); "
                    f"ending the job; start it again with --resume auto")
        places = ", ".join(f"rank {rank} on {host}: {where}" for rank, (_, host, where) in beats.items())
        return (f"no headway for {waited:.0f} s although all ranks are alive ({places}): a link may be down or very slow; "
                f"ending the job; a longer --stall-timeout waits longer, --resume auto goes on from the last checkpoint")
