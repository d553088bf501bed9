"""Signals, time limits and dead ranks: the job ends within seconds and goes on from its
checkpoint."""

import concurrent.futures
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from launch import end, is_open_mpi, launch, rank_environment, ranks_of, start, wait_for

from hpcgcn.graph.generate import generate_sbm
from hpcgcn.graph.store import write_graph
from hpcgcn.mpi.stop import StopRequest
from hpcgcn.train import checkpoint

ARGS = ["hpcgcn", "train", "g.h5", "--hidden", "16", "--epochs", "3000", "--eval-every", "0",
        "--checkpoint-every", "20"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stops")
    write_graph(folder / "g.h5", generate_sbm(400, 8, 12, 4, seed=1))
    return folder


def checkpoints(folder, name):
    return checkpoint.checkpoint_folders(str(folder / "runs" / name / "checkpoints"))


def final(folder, name):
    return checkpoint.load(checkpoints(folder, name)[-1][1])


@pytest.mark.parametrize("method", ["overlap", "pipegcn-gf"])
def test_killed_rank_ends_the_job_and_resume_is_bit_identical(folder, method):
    name = f"killed-{method}"
    args = [*ARGS, "--method", method, "--name", name, "--resume", "auto"]
    job = start(2, args, cwd=folder)
    try:
        wait_for(lambda: checkpoints(folder, name) and len(ranks_of(name)) == 2)
        subprocess.run(["kill", "-9", str(ranks_of(name)[-1])], check=True)
        began = time.monotonic()
        assert job.wait(30) != 0
        assert time.monotonic() - began < 10
    finally:
        end(job)
    assert checkpoints(folder, name)[-1][0] < 3000
    short = [a if a != "3000" else str(checkpoints(folder, name)[-1][0] + 30) for a in args]
    launch(2, short, cwd=folder).check()
    straight = [*short[:-2], "--resume", "never", "--name", name + "-straight"]
    launch(2, straight, cwd=folder).check()
    resumed, uninterrupted = final(folder, name), final(folder, name + "-straight")
    assert resumed.epoch == uninterrupted.epoch
    for array in ("parameters", "m", "v"):
        np.testing.assert_array_equal(getattr(resumed, array), getattr(uninterrupted, array))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_signal_to_one_rank_stops_all_at_an_epoch_boundary(folder, number):
    name = f"signalled-{number.name}"
    job = start(2, [*ARGS, "--name", name], cwd=folder)
    try:
        wait_for(lambda: checkpoints(folder, name) and len(ranks_of(name)) == 2)
        subprocess.run(["kill", f"-{int(number)}", str(ranks_of(name)[-1])], check=True)
        assert job.wait(30) == 75
    finally:
        end(job)
    stopped_at = checkpoints(folder, name)[-1][0]
    rows = (folder / "runs" / name / "metrics.csv").read_text().splitlines()
    assert len(rows) - 1 == stopped_at < 3000


def test_time_limit_stops_cleanly_with_its_exit_code(folder):
    done = launch(2, [*ARGS, "--epochs", "1000000", "--time-limit", "0.03", "--name", "limited"],
                  cwd=folder, timeout=60)
    assert done.code == 75
    assert "--resume auto" in done.stdout


def test_a_stopped_rank_is_named_and_the_job_ends(folder, tmp_path):
    """SIGSTOP: the process is there, but gives no sign of life."""
    with open(tmp_path / "stderr", "w+") as stderr:
        job = start(3, [*ARGS, "--name", "frozen", "--stall-timeout", "3"], cwd=folder,
                    stderr=stderr)
        try:
            wait_for(lambda: checkpoints(folder, "frozen") and len(ranks_of("frozen")) == 3)
            subprocess.run(["kill", "-STOP", str(ranks_of("frozen")[1])], check=True)
            assert job.wait(60) not in (0, 2, 75)
        finally:
            end(job)
        stderr.seek(0)
        said = [line for line in stderr.read().splitlines() if line.startswith("hpcgcn: ")]
    assert len(said) == 1 and "rank 1 on host" in said[0] and "no sign of life" in said[0], said
    args = [*ARGS, "--name", "frozen", "--resume", "auto", "--epochs",
            str(checkpoints(folder, "frozen")[-1][0] + 5)]
    launch(3, args, cwd=folder).check()


def test_ctrl_c_in_one_process_saves_as_sigterm_does(folder):
    args = [sys.executable, "-m", *ARGS, "--epochs", "1000000", "--name", "interrupted"]
    job = subprocess.Popen(args, cwd=folder, env=rank_environment(), stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: checkpoints(folder, "interrupted"))
        job.send_signal(signal.SIGINT)
        stdout, stderr = job.communicate(timeout=60)
    finally:
        job.kill()
    assert job.returncode == 75 and "stopped early" in stdout and "Traceback" not in stderr
    assert stderr.count("stopping after this epoch, with a checkpoint") == 1
    assert f"after {checkpoints(folder, 'interrupted')[-1][0]} of" in stdout


def test_a_second_ctrl_c_interrupts_at_once():
    with StopRequest() as request:
        signal.raise_signal(signal.SIGINT)
        assert request.received == "SIGINT"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_run_in_another_thread_leaves_signals_alone():
    found = []
    with concurrent.futures.ThreadPoolExecutor() as pool:
        def run():
            with StopRequest() as request:
                found.append((request.received, signal.getsignal(signal.SIGTERM)))
        pool.submit(run).result()
    assert found == [(None, signal.getsignal(signal.SIGTERM))]


@pytest.mark.skipif(not is_open_mpi(), reason="other launchers do as they like with signals")
def test_sigusr1_to_the_launcher_stops_all_ranks_with_a_checkpoint(folder):
    job = start(2, [*ARGS, "--epochs", "1000000", "--name", "by-launcher"], cwd=folder)
    try:
        wait_for(lambda: checkpoints(folder, "by-launcher") and len(ranks_of("by-launcher")) == 2)
        job.send_signal(signal.SIGUSR1)
        assert job.wait(30) == 75
    finally:
        end(job)
