"""Start-up, agreement on errors, and the end of a job: what every rank must do together."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback

from hpcgcn.errors import LAUNCHER_SECONDS, HpcgcnError

# Exit code of a run that stopped early at an epoch boundary, with a checkpoint: "run me again" (EX_TEMPFAIL).
EXIT_RUN_AGAIN = 75


def world():
    """COMM_WORLD; the first call initialises MPI, so only commands that need it call this."""
    # Open MPI's one-sided UCX component complains about itself wherever windows are made; shared memory does not need it.
    os.environ.setdefault("OMPI_MCA_osc", "^ucx")
    from mpi4py import MPI
    return MPI.COMM_WORLD


def local_rank(comm) -> tuple[int, int]:
    """This rank's number on its host, and how many ranks of the job are there."""
    from mpi4py import MPI
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    try:
        return node.rank, node.size
    finally:
        node.Free()


@contextlib.contextmanager
def agree(comm):
    """Run a block that may fail on some ranks only: if it fails on any, every rank raises the same error.

    The message of the lowest rank that failed counts. Other exceptions than HpcgcnError pass through and abort the job.
    """
    error = None
    try:
        yield
    except HpcgcnError as caught:
        error = caught
    verdicts = comm.allgather(None if error is None else (type(error), str(error)))
    failed = [(rank, verdict) for rank, verdict in enumerate(verdicts) if verdict is not None]
    if failed:
        rank, (kind, message) = failed[0]
        # Rank 0 speaks for the job; another rank alone had something of its own, so say which.
        shared = kind(message if rank == 0 else f"{message} [rank {rank}]")
        shared.agreed = True
        raise shared from None


def on_root(comm, function, *args):
    """Call a function on rank 0 and give its result to all; its HpcgcnError is raised on all."""
    result = None
    with agree(comm):
        if comm.rank == 0:
            result = function(*args)
    return comm.bcast(result)


def run_ranks(function, *args) -> int:
    """Run a command's body on all ranks and return the exit code.

    A mistake that all ranks agree on is printed once, by rank 0. Anything else aborts all ranks at once, because the
    others may be waiting for this one.
    """
    comm = world()
    try:
        return function(comm, *args)
    except HpcgcnError as error:
        alone = comm.size > 1 and not error.agreed
        if comm.rank == 0 or alone:
            print(f"hpcgcn: {error}" + (f" [rank {comm.rank}]" if alone else ""), file=sys.stderr, flush=True)
        if alone:
            time.sleep(LAUNCHER_SECONDS)
            comm.Abort(error.exit_code)
        if comm.size > 1:
            comm.Barrier()               # rank 0 has spoken
            time.sleep(LAUNCHER_SECONDS)
        return error.exit_code
    except KeyboardInterrupt:
        comm.Abort(130)
    except BaseException:                # noqa: BLE001 - the other ranks must not be left waiting, whatever it was
        print(f"hpcgcn: rank {comm.rank} failed:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        comm.Abort(1)
    return 1


class StopRequest:
    """Remembers SIGTERM and SIGUSR1 until the ranks agree on them at an epoch boundary."""

    SIGNALS = (signal.SIGTERM, signal.SIGUSR1)

    def __init__(self):
        self.received: str | None = None
        self._previous = {}

    def __enter__(self) -> "StopRequest":
        for number in self.SIGNALS:
            self._previous[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, *exc):
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _remember(self, number, frame):
        self.received = signal.Signals(number).name
