"""While MPI starts, each rank is watched by a small process: whoever holds up the job is named."""

import os
import signal
import socket
import subprocess
import sys

import pytest
from launch import rank_environment

WATCHED = """
import os, signal, sys, time
from hpcgcn.mpi.start_watch import StartWatch
with StartWatch({seconds}) as watch:
    print(watch._watcher, flush=True)
    {body}
print("went on", flush=True)
"""


def watched(seconds, body, **environment):
    """A process that stands for a rank which starts MPI."""
    return subprocess.run([sys.executable, "-c", WATCHED.format(seconds=seconds, body=body)],
                          env=rank_environment(environment), capture_output=True, text=True,
                          timeout=60)


def test_a_stopped_rank_is_named_and_ended():
    done = watched(0.2, "os.kill(os.getpid(), signal.SIGSTOP)", OMPI_COMM_WORLD_RANK="3")
    assert done.returncode == -signal.SIGKILL
    assert f"rank 3 on host {socket.gethostname()} gives no sign of life" in done.stderr
    assert "it is stopped" in done.stderr and "went on" not in done.stdout


def test_a_rank_that_waits_says_so():
    done = watched(0.2, "time.sleep(50)", OMPI_COMM_WORLD_RANK="1")
    assert done.returncode == -signal.SIGKILL
    assert f"rank 1 on host {socket.gethostname()} waited" in done.stderr
    assert "another rank gives no sign of life" in done.stderr


@pytest.mark.parametrize("seconds,environment", [
    (30, {"OMPI_COMM_WORLD_RANK": "0"}), (0, {"OMPI_COMM_WORLD_RANK": "0"}), (30, {})])
def test_a_start_in_time_leaves_nothing(seconds, environment):
    done = watched(seconds, "pass", **environment)
    watcher = int(done.stdout.split()[0])
    assert done.returncode == 0 and done.stderr == "" and "went on" in done.stdout
    assert bool(watcher) == bool(seconds and environment)
    assert not watcher or not os.path.exists(f"/proc/{watcher}")


def test_a_rank_that_dies_is_named_and_its_watcher_ends():
    done = watched(30, "os.kill(os.getpid(), signal.SIGKILL)", OMPI_COMM_WORLD_RANK="2")
    assert done.returncode == -signal.SIGKILL and done.stderr.count("\n") == 1
    assert f"rank 2 on host {socket.gethostname()} died while the job started" in done.stderr


@pytest.mark.parametrize("body", ["raise SystemExit(3)", "raise ValueError"])
def test_an_end_by_itself_is_no_death(body):
    done = watched(30, body, OMPI_COMM_WORLD_RANK="2")
    assert done.returncode in (1, 3) and "died" not in done.stderr
