"""Starting a program on several ranks from a test: `launch(2, ["hpcgcn", "train", ...])`.

A hang fails, it never blocks.

With HPCGCN_TEST_HOSTS=2 in the environment the ranks are on that many lab hosts and talk over TCP
(`make test-lab`).

As a program, for tests that run on all ranks of one job:

    python tests/launch.py RANKS SECONDS python -m pytest --with-mpi
        tests/communication/test_mpi_halo.py
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

import pytest
from oversubscribed import patient_environment

PR_SET_PDEATHSIG = 1
LAB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "jobs", "lab", "hosts")
RANK_VARIABLES = (b"OMPI_COMM_WORLD_RANK", b"PMI_RANK")
GRACE_SECONDS = 5        # between asking a job that hangs to end and ending it


@dataclass
class Outcome:
    """How a job ended."""

    code: int
    stdout: str
    stderr: str

    def check(self) -> Outcome:
        """Fail the test, with what the job said, unless it ended well."""
        assert self.code == 0, ("exit code "
                                f"{self.code}\n{self.stdout[-3000:]}\n{self.stderr[-6000:]}")
        return self


@functools.cache
def mpiexec() -> tuple[str, ...]:
    """The launcher: the environment variable MPIEXEC, or the mpiexec beside this Python, or the one
    on the path."""
    given = os.environ.get("MPIEXEC")
    if given:
        return tuple(shlex.split(given))
    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    found = beside if os.path.exists(beside) else shutil.which("mpiexec")
    if not found:
        pytest.skip("no mpiexec: install an MPI, or set MPIEXEC")
    return (found,)


@functools.cache
def is_open_mpi() -> bool:
    """Does the launcher belong to Open MPI?"""
    done = subprocess.run([*mpiexec(), "--version"], capture_output=True, text=True, timeout=60)
    return "Open MPI" in done.stdout + done.stderr or "open-mpi" in done.stdout + done.stderr


def wait_for(condition, seconds: float = 120):
    """Return as soon as the condition holds; generous, because other work may load the machine."""
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "waited too long"
        time.sleep(0.05)


def rank_environment(extra: dict[str, str] | None = None) -> dict[str, str]:
    """The environment of a job: this Python's commands first, one BLAS thread per rank, leave to
    run as root if we are."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    env["PATH"] = os.path.dirname(sys.executable) + os.pathsep + env.get("PATH", "")
    if os.geteuid() == 0:
        env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return env | (extra or {})


def lab_environment(extra: dict[str, str] | None = None) -> dict[str, str]:
    """The environment of jobs/lab/hosts: with the launcher of this MPI, and the tools of root."""
    env = rank_environment({"MPIEXEC": shlex.join(mpiexec())} | (extra or {}))
    return env | {"PATH": env["PATH"] + ":/usr/sbin:/sbin"}


def n_hosts(n_ranks: int) -> int:
    """On how many lab hosts a job of this size runs; 0: on this machine, as it is."""
    wanted = int(os.environ.get("HPCGCN_TEST_HOSTS", "0"))
    return min(wanted, n_ranks) if n_ranks > 1 else 0


def command(n_ranks: int, args: list) -> list[str]:
    """The whole command line of a job."""
    if n_hosts(n_ranks):
        return [LAB, "--hosts", str(n_hosts(n_ranks)), "--ranks", str(n_ranks), "--",
                *map(os.fspath, args)]
    oversubscribe = ["--oversubscribe"] if is_open_mpi() else []
    return [*mpiexec(), *oversubscribe, "-n", str(n_ranks), *map(os.fspath, args)]


def start(n_ranks: int, args: list, *, cwd=None, env=None, stdout=subprocess.DEVNULL,
          stderr=subprocess.DEVNULL):
    """The job as a Popen object, in a session of its own; end it with `end`."""
    environment = patient_environment(n_ranks) | (lab_environment(env) if n_hosts(n_ranks)
                                                  else rank_environment(env))
    return subprocess.Popen(command(n_ranks, args), cwd=cwd, env=environment, stdout=stdout,
                            stderr=stderr, stdin=subprocess.DEVNULL, start_new_session=True,
                            preexec_fn=end_with_parent)


def ranks_of(mark: str) -> list[int]:
    """Process ids of the ranks of a job that run, in order of rank: those with `mark` among their
    arguments."""
    found = {}
    for process in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if (process.name.isdigit()
                and mark.encode() in (process / "cmdline").read_bytes().split(b"\0")):
                variables = dict(line.partition(b"=")[::2]
                                 for line in (process / "environ").read_bytes().split(b"\0"))
                found |= {int(variables[name]): int(process.name)
                          for name in RANK_VARIABLES if name in variables}
    return [found[rank] for rank in sorted(found)]


def end_with_parent():
    """Called in the child: if the tests are killed, their jobs are asked to end (Linux; elsewhere
    they are not)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def end(process: subprocess.Popen):
    """End a job that was started here, its ranks first: the launcher takes them with it if it is
    asked."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                continue


def launch(n_ranks: int, args: list, *, timeout: float = 120, cwd=None,
           env: dict[str, str] | None = None) -> Outcome:
    """Run a program on n ranks and wait for its end; no end within `timeout` seconds fails the
    test."""
    # Files, not pipes: a rank that outlives its launcher would keep a pipe open, and us waiting.
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        process = start(n_ranks, args, cwd=cwd, env=env, stdout=stdout, stderr=stderr)
        hung = False
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            hung = True
        finally:
            end(process)
        texts = []
        for file in (stdout, stderr):
            file.seek(0)
            texts.append(file.read())
    if hung:
        pytest.fail(f"{n_ranks} ranks of {args} hang: no end after {timeout} "
                    f"s\n{texts[0][-3000:]}\n{texts[1][-3000:]}")
    return Outcome(process.returncode, *texts)


def main(n_ranks: str, seconds: str, *args: str) -> int:
    """Run a program on n ranks with what it prints shown; 124 if it does not end in time."""
    process = start(int(n_ranks), list(args), stdout=None, stderr=None)
    try:
        return process.wait(float(seconds))
    except subprocess.TimeoutExpired:
        print(f"{n_ranks} ranks of {shlex.join(args)} hang: no end after {seconds} s",
              file=sys.stderr)
        return 124
    finally:
        end(process)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
