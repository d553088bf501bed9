"""Two starts in one run folder: the second is told who is there; locks of the dead are
recognised."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from folders import contents
from launch import end, launch, rank_environment, ranks_of, start, wait_for

from hpcgcn.errors import FileError
from hpcgcn.graph.generate import generate_sbm
from hpcgcn.graph.store import write_graph
from hpcgcn.train import lock as locks
from hpcgcn.train.lock import RunLock

ARGS = ["hpcgcn", "train", "g.h5", "--hidden", "8", "--eval-every", "0", "--checkpoint-every", "20"]
LONG = [*ARGS, "--epochs", "100000"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("locks")
    write_graph(folder / "g.h5", generate_sbm(200, 8, 8, 4, seed=1))
    return folder


@pytest.mark.parametrize("n_ranks", [1, 2])
@pytest.mark.parametrize("flags", [["--resume", "auto"], ["--overwrite"]],
                         ids=["resume", "overwrite"])
def test_a_second_start_is_told_who_is_there(folder, flags, n_ranks):
    name = f"two-{n_ranks}-{flags[-1].strip('-')}"
    run = folder / "runs" / name
    job = start(n_ranks, [*LONG, "--name", name], cwd=folder)
    try:
        wait_for(lambda: (run / "checkpoints").exists()
                 and list((run / "checkpoints").glob("epoch*")) and len(ranks_of(name)) == n_ranks)
        process = ranks_of(name)[0]
        done = launch(n_ranks, [*LONG, "--name", name, *flags], cwd=folder)
        assert done.code == 2, done.stderr
        assert f"in use by process {process} on host {socket.gethostname()}" in done.stderr
        assert job.poll() is None, "the first goes on"
    finally:
        end(job)


def test_the_lock_of_a_killed_job_is_no_obstacle(folder):
    name = "killed"
    run = folder / "runs" / name
    job = start(2, [*LONG, "--name", name], cwd=folder)
    try:
        wait_for(lambda: (run / "lock.json").exists() and len(ranks_of(name)) == 2
                 and list((run / "checkpoints").glob("epoch*")))
        os.kill(ranks_of(name)[0], signal.SIGKILL)
        job.wait(30)
    finally:
        end(job)
    assert (run / "lock.json").exists()
    done = launch(2, [*ARGS, "--epochs", "1", "--name", name, "--resume", "auto"],
                  cwd=folder).check()
    assert "resuming from" in done.stdout and not (run / "lock.json").exists()


HOLD = "import sys, time; from hpcgcn.train.lock import RunLock\n" \
       "with RunLock(sys.argv[1]):\n    print('held', flush=True)\n    time.sleep(600)"


def test_a_stopped_holder_still_holds(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE,
                              text=True, env=rank_environment())
    try:
        assert holder.stdout.readline() == "held\n"
        holder.send_signal(signal.SIGSTOP)
        with pytest.raises(FileError,
                           match=f"process {holder.pid} on host"), RunLock(str(tmp_path)):
            pass
    finally:
        holder.kill()
        holder.wait()
    with RunLock(str(tmp_path)):
        assert (tmp_path / "lock.json").exists()
    assert list(tmp_path.iterdir()) == []


def foreign_lock(folder, age: float) -> str:
    """A lock that a process of another machine wrote, and touched some seconds ago."""
    path = folder / "lock.json"
    path.write_text(json.dumps({"host": "faraway", "process": 1, "machine": "another",
                                "since": "2020-01-01T00:00:00+00:00"}))
    os.utime(path, (time.time() - age, time.time() - age))
    return str(path)


def test_a_lock_that_another_host_left_long_ago_is_taken(tmp_path):
    foreign_lock(tmp_path, 2 * locks.STALE_SECONDS)
    with RunLock(str(tmp_path)):
        held = json.loads((tmp_path / "lock.json").read_text())
        assert held["host"] == socket.gethostname() and held["process"] == os.getpid()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_another_host_touches_is_respected(tmp_path):
    path, over = foreign_lock(tmp_path, 2), threading.Event()

    def touch():
        while not over.wait(0.2):
            os.utime(path)
    before, thread = contents(tmp_path), threading.Thread(target=touch)
    thread.start()
    try:
        with pytest.raises(FileError, match="process 1 on host faraway, since 2020"):
            with RunLock(str(tmp_path)):
                pass
    finally:
        over.set()
        thread.join()
    assert contents(tmp_path) == before


def test_a_lock_of_another_host_that_nobody_touches_is_taken_in_the_end(tmp_path):
    foreign_lock(tmp_path, locks.STALE_SECONDS - 2)
    with RunLock(str(tmp_path)):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\0" * 5000])
def test_a_damaged_lock_of_nobody_is_taken(tmp_path, text):
    (tmp_path / "lock.json").write_bytes(text)
    with RunLock(str(tmp_path)):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path):
    (tmp_path / "victim").write_text("mine\n")
    (tmp_path / "lock.json").symlink_to("victim")
    with pytest.raises(FileError), RunLock(str(tmp_path)):
        pass
    assert (tmp_path / "victim").read_text() == "mine\n"


def test_a_holder_whose_lock_was_taken_stops(tmp_path):
    with RunLock(str(tmp_path)) as held:
        held.check()
        foreign_lock(tmp_path, 0)
        with pytest.raises(FileError, match="taken over"):
            held.check()
    assert (tmp_path / "lock.json").exists(), "it is not ours to remove"
