"""A process that its launcher left alone does not take itself for the whole job."""

import os
import signal
import subprocess
import sys
import time

import pytest
from folders import contents
from launch import end, launch, rank_environment, ranks_of, start

from hpcgcn.errors import ConfigError
from hpcgcn.graph.generate import generate_sbm
from hpcgcn.graph.store import write_graph
from hpcgcn.mpi.launcher import check_size

OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "0"}
STEP = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0"}


@pytest.mark.parametrize("environment,size", [
    (OPEN_MPI, 1), ({"PMI_SIZE": "2"}, 1), (STEP, 1), ({"MPI_LOCALNRANKS": "3"}, 1),
    (STEP | {"PMI_SIZE": "8"}, 4)])
def test_fewer_ranks_than_were_started_are_refused(environment, size):
    with pytest.raises(ConfigError, match=f"but MPI connects {size}"):
        check_size(size, environment)


@pytest.mark.parametrize("environment,size", [
    ({}, 1), (OPEN_MPI, 4), (STEP, 4), (OPEN_MPI | STEP, 4),
    ({"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, 1),             # a batch script, one process
    (OPEN_MPI | STEP | {"SLURM_STEP_NUM_TASKS": "2"}, 4),        # mpirun's helpers, one per host
    ({"MPI_LOCALNRANKS": "2"}, 8), ({"PMI_SIZE": "damaged"}, 1)])
def test_jobs_that_are_whole_go_on(environment, size):
    check_size(size, environment)


def test_srun_without_pmix_is_told_how():
    with pytest.raises(ConfigError, match="srun --mpi=pmix"):
        check_size(1, STEP)


def alone(arguments, folder, extra):
    """One process, in the environment of a launcher."""
    return subprocess.run([sys.executable, "-m", "hpcgcn", *arguments], cwd=folder, timeout=60,
                          env=rank_environment(extra), capture_output=True, text=True)


@pytest.fixture
def folder(tmp_path):
    write_graph(tmp_path / "g.h5", generate_sbm(100, 8, 8, 4, seed=1))
    return tmp_path


def test_one_process_of_many_refuses_and_leaves_nothing(folder):
    before = contents(folder)
    done = alone(["train", "g.h5", "--epochs", "2"], folder, OPEN_MPI)
    assert done.returncode == 2 and "the launcher started 4 ranks" in done.stderr
    assert "Traceback" not in done.stderr
    other = alone(["train", "g.h5", "--epochs", "2"], folder,
                  OPEN_MPI | {"OMPI_COMM_WORLD_RANK": "1"})
    assert other.returncode == 2 and other.stderr == "", "one rank speaks for all"
    assert contents(folder) == before


@pytest.mark.parametrize("delay", [0.05, 0.15, 0.3])
def test_nobody_trains_alone_when_the_launcher_is_killed_early(folder, delay):
    name = f"early-{int(1000 * delay)}"
    job = start(2, ["hpcgcn", "train", "g.h5", "--epochs", "100000", "--name", name], cwd=folder)
    try:
        time.sleep(delay)
        os.kill(job.pid, signal.SIGKILL)
        job.wait(10)
        limit = time.monotonic() + 60
        while ranks_of(name):
            assert time.monotonic() < limit, "ranks are left"
            time.sleep(0.1)
    finally:
        for process in ranks_of(name):
            os.kill(process, signal.SIGKILL)
        end(job)
    metrics = folder / "runs" / name / "metrics.csv"
    assert not metrics.exists() or len(metrics.read_text().splitlines()) == 1
    launch(2, ["hpcgcn", "train", "g.h5", "--epochs", "2", "--name", name, "--resume", "auto"],
           cwd=folder).check()
