"""Start-up, agreement on errors, and the end of a job: what every rank must do together."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import socket
import sys
import time
import traceback

from hpcgcn.errors import LAUNCHER_SECONDS, FileError, HpcgcnError
from hpcgcn.logs import show_messages
from hpcgcn.mpi import large
from hpcgcn.mpi.launcher import SPEAKER_SECONDS, check_size, launched_rank
from hpcgcn.mpi.start_watch import StartWatch, job_has_started

log = logging.getLogger(__name__)

# Exit code of a run that stopped early, with a checkpoint: "run me again" (EX_TEMPFAIL).
EXIT_RUN_AGAIN = 75


def world():
    """COMM_WORLD; the first call initialises MPI, so only commands that need it call this."""
    # Open MPI's one-sided UCX component complains about itself wherever windows are made; shared
    # memory does not need it.
    os.environ.setdefault("OMPI_MCA_osc", "^ucx")
    # Over TCP the others often notice a dead rank before its launcher does, and would be blamed for
    # the end of the job.
    os.environ.setdefault("OMPI_MCA_mpi_abort_delay", "2")
    # Rabenseifner's all-reduce. Below 4 ranks or a few MB Open MPI 5 reduces to one rank and
    # broadcasts: over a link of 200 Mb/s 2.8 MB took twice as long as the rate allows with 2 ranks,
    # 2.6 times with 4; this one takes what the rate allows.
    os.environ.setdefault("OMPI_MCA_coll_libnbc_iallreduce_algorithm", "3")
    from mpi4py import MPI
    try:
        check_size(MPI.COMM_WORLD.size)
    except HpcgcnError:
        if launched_rank() in (None, "0"):
            raise
        time.sleep(SPEAKER_SECONDS)      # each is alone: the launcher's first rank speaks for all
        sys.exit(HpcgcnError.exit_code)
    return MPI.COMM_WORLD


def ask_for_one_thread():
    """Before MPI starts: only one thread at a time will call it.

    By default mpi4py asks for any number, and Open MPI then leaves out UCX components that GPU
    memory needs. The watchdog's abort is the one call from another thread, and its last.
    """
    import mpi4py
    mpi4py.rc.thread_level = "serialized"


def local_rank(comm) -> tuple[int, int]:
    """This rank's number on its host, and how many ranks of the job are there."""
    from mpi4py import MPI
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    try:
        return node.rank, node.size
    finally:
        node.Free()


@contextlib.contextmanager
def collective_errors(comm):
    """Run a block that may fail on some ranks only: if on any, every rank raises the same error.

    The message of the lowest rank that failed counts. Other exceptions than HpcgcnError pass
    through and abort the job.
    """
    error = None
    try:
        yield
    except HpcgcnError as caught:
        error = caught
    verdicts = comm.allgather(None if error is None else (type(error), str(error), here(comm)))
    failed = [verdict for verdict in verdicts if verdict is not None]
    if failed:
        kind, message, who = failed[0]
        # What fails on all ranks alike concerns the job; else name the rank.
        alike = len(failed) == comm.size and len({text for _, text, _ in failed}) == 1
        raise _agreed(kind, message if alike else f"{message} [{who}]") from None


def _agreed(kind: type, message: str) -> HpcgcnError:
    error = kind(message)
    error.agreed = True
    return error


def all_true(comm, mine: bool) -> bool:
    """Is it so on every rank? Collective."""
    return all(comm.allgather(mine))


def here(comm) -> str:
    """This rank and its host, for messages."""
    return f"rank {comm.rank} on host {socket.gethostname()}"


def on_root(comm, function, *args):
    """Call a function on rank 0; all ranks get its result, or raise its HpcgcnError. Collective."""
    result = error = None
    if comm.rank == 0:
        try:
            result = function(*args)
        except HpcgcnError as caught:
            # A file may be missing or full on one host alone.
            where = f" [{here(comm)}]" if isinstance(caught, FileError) and comm.size > 1 else ""
            error = type(caught), f"{caught}{where}"
    result, error = large.bcast_object(comm, (result, error))
    if error:
        raise _agreed(*error) from None
    return result


def run_ranks(function, *args, patience: float = 0.0) -> int:
    """Run a command's body on all ranks and return the exit code.

    An error that all ranks agree on is printed once, by rank 0. Anything else aborts all ranks at
    once, because the others may be waiting for this one. If the body does not call
    `job_has_started` within `patience` seconds, the job is ended with a line that names a rank.
    While MPI ends, a rank that waits as long for the others is ended by an alarm, and its launcher
    says so: no thread of Python runs then. 0 waits for ever.
    """
    with StartWatch(patience):
        comm = world()
        show_messages(comm.rank)
        try:
            code = _run_body(comm, function, *args)
            # One rank tells the launcher: Open MPI's (5.0.11) sometimes never returns when ranks on
            # several hosts end with an error at once (7 of 60 jobs whose disk was full).
            return code if comm.rank == 0 else 0
        finally:
            job_has_started()
            signal.alarm(math.ceil(patience))


def _abort(comm, code: int):
    """End all ranks; what is wrong has been said."""
    job_has_started()
    comm.Abort(code)


def _run_body(comm, function, *args) -> int:
    try:
        return function(comm, *args)
    except HpcgcnError as error:
        alone = comm.size > 1 and not error.agreed
        if comm.rank == 0 or alone:
            log.error("%s", f"{error} [{here(comm)}]" if alone else error)
        if alone:
            time.sleep(LAUNCHER_SECONDS)
            _abort(comm, error.exit_code)
        if comm.size > 1:
            comm.Barrier()               # rank 0 has written its message
            time.sleep(LAUNCHER_SECONDS)
        return error.exit_code
    except KeyboardInterrupt:
        _abort(comm, 130)
    except MemoryError as error:
        log.error("%s is out of memory (%s): start more ranks on more hosts, or fewer on each; "
                  "--resume auto goes on from the last checkpoint", here(comm),
                  error or "no more to be had")
        _abort(comm, 1)
    except BaseException:                # noqa: BLE001 - the other ranks must not be left waiting
        log.error("%s failed:\n%s", here(comm), traceback.format_exc())
        _abort(comm, 1)
    return 1
