"""Ends a job that makes no progress, with a message that names the rank and host that hold it up.

Every rank has a thread that writes a heartbeat file each second: a count, and where the rank is. If
a rank's own work makes no progress for the stall limit, its thread reads everyone's files: a
count that stands still belongs to a process that is stopped or gone. Files, because they need
neither MPI (which is what hangs) nor open ports, and because all ranks must share the run's folder
for checkpoints anyway. Counts are compared with this rank's own clock, so clocks of hosts need not
agree.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
import time

from hpcgcn.mpi.heartbeat_folder import leave_folder, make_folder
from hpcgcn.mpi.progress import Heartbeat
from hpcgcn.mpi.start_watch import job_has_started

log = logging.getLogger(__name__)

BEAT_SECONDS = 1.0
LEAST_SILENCE, MOST_SILENCE = 3.0, 60.0      # without a beat, to count as silent: files may be slow
START_PATIENCE = 10                  # times the limit before and after the epochs, without progress
SPEAKER_SECONDS = 10.0               # how long the lowest living rank may take to end the job
ABORT_SECONDS = 10                   # after which a rank that could not end the job ends itself
EXIT_STALLED = 1
LINE_BYTES = 256                     # of a heartbeat file


class Watchdog:
    """Watches a block of code that all ranks run together; limit 0: not at all. Collective."""

    def __init__(self, comm, output: str, limit: float, heartbeat: Heartbeat):
        """output: a folder for all ranks, made if need be. heartbeat: of this rank's work."""
        self.comm, self.limit, self.heartbeat = comm, limit, heartbeat
        self.output, self.folder, self._is_new = output, "", False
        self.host = socket.gethostname()
        self.hosts: list[str] = []           # of each rank
        self.where = "starting"
        self._sign: int | None = None        # rank 0 holds its lock as long as it lives
        self.patience = START_PATIENCE       # times the limit that no rank may make progress
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        if self.limit and self.comm.size > 1:
            self._is_new = not os.path.isdir(self.output)
            folder, self._sign = make_folder(self.output) if self.comm.rank == 0 else ("", None)
            of_ranks = self.comm.allgather((self.host, folder))
            self.hosts, self.folder = [host for host, _ in of_ranks], of_ranks[0][1]
        job_has_started()
        if self.folder:
            self._write(0)
            self._thread.start()
        return self

    def __exit__(self, *exc):
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()
        if self.folder:
            leave_folder(self.folder, self._path(self.comm.rank), self._sign)
            if self._is_new:
                _quietly(os.rmdir, self.output)      # if nothing else was written there

    @contextlib.contextmanager
    def impatient(self):
        """A block in which all ranks make progress all the time: the limit holds as it is."""
        self.patience = 1
        yield
        self.patience, self.where = START_PATIENCE, "ending"

    # -- heartbeats ---------------------------------------------------------------------------
    def _path(self, rank: int) -> str:
        return os.path.join(self.folder, f"rank-{rank}")

    def _write(self, count: int):
        """In place: network file systems show new content sooner than a new file of that name."""
        line = f"{count} {self.where}".encode()[:LINE_BYTES - 1].ljust(LINE_BYTES - 1) + b"\n"
        try:
            descriptor = os.open(self._path(self.comm.rank), os.O_WRONLY | os.O_CREAT, 0o644)
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)
        except OSError:
            pass                     # a full disk is for the checkpoint to report

    def _read_all(self) -> dict[int, tuple[str, str]]:
        """{rank: (count, where it is)}"""
        beats = {}
        for rank in range(self.comm.size):
            try:
                with open(self._path(rank), encoding="utf-8", errors="replace") as file:
                    count, where = file.read().rstrip().split(" ", 1)
                    beats[rank] = (count, where)
            except (OSError, ValueError):
                beats[rank] = ("", "starting or ending")
        return beats

    # -- the thread ---------------------------------------------------------------------------
    def _watch(self):
        seen, since, self._count, next_check = self.heartbeat.count, time.monotonic(), 0, self.limit
        while not self._end.wait(BEAT_SECONDS):
            self._beat()
            waited = time.monotonic() - since
            if self.heartbeat.count != seen:
                seen, since, next_check = self.heartbeat.count, time.monotonic(), self.limit
            elif waited > next_check:
                self._judge(waited)
                next_check *= 1.5        # each reads the files of all, while others load a graph

    def _beat(self):
        self._count += 1
        self._write(self._count)

    def _judge(self, waited: float):
        """No heartbeat here for too long: name who is silent and end the job, unless one comes."""
        before, seen = self._read_all(), self.heartbeat.count
        silence = min(max(self.limit / 5, LEAST_SILENCE), MOST_SILENCE)
        for _ in range(round(silence / BEAT_SECONDS)):
            if self._end.wait(BEAT_SECONDS):
                return
            self._beat()
        after = self._read_all()
        if self.heartbeat.count != seen:
            return
        silent = [rank for rank in after
                  if rank != self.comm.rank and after[rank][0] == before[rank][0]]
        if silent or waited > self.patience * self.limit:
            self._end_job(waited + silence, silent, after)

    def _end_job(self, waited: float, silent: list[int], beats: dict):
        speaker = min(set(beats) - set(silent), default=self.comm.rank)
        if self.comm.rank != speaker:
            time.sleep(SPEAKER_SECONDS)          # it ends the job; if it does not, this rank will
        log.error("%s", self._message(waited, silent, beats))
        time.sleep(BEAT_SECONDS)                 # launchers drop output at an abort
        signal.alarm(ABORT_SECONDS)              # its launcher may be out of reach
        self.comm.Abort(EXIT_STALLED)

    def _message(self, waited: float, silent: list[int], beats: dict) -> str:
        names = ", ".join(f"rank {rank} on host {self.hosts[rank]} ({beats[rank][1]})"
                          for rank in silent)
        if silent:
            return (f"no progress for {waited:.0f} s: {names} gives no sign of life (stopped, out "
                    f"of memory, or its host is gone); ending the job; start it again with "
                    f"--resume auto")
        places = ", ".join(f"rank {rank} on host {self.hosts[rank]}: {where}"
                           for rank, (_, where) in beats.items())
        return (f"no progress for {waited:.0f} s although all ranks are alive ({places}): a link "
                f"may be down or very slow; ending the job; a longer --stall-timeout waits longer, "
                f"--resume auto goes on from the last checkpoint")


def _quietly(function, path: str):
    try:
        function(path)
    except OSError:
        pass
