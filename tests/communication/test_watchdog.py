"""The watchdog's judgement, with a second rank that is played: silent, stuck, or getting on."""

import os
import subprocess
import sys
import threading
import time

import pytest

from hpcgcn.mpi import heartbeat_folder, watchdog
from hpcgcn.mpi.progress import Heartbeat
from hpcgcn.mpi.watchdog import Watchdog


class TwoRanks:
    """Rank 0 of two; rank 1 is on host h2."""

    rank, size = 0, 2

    def __init__(self):
        self.aborted = threading.Event()

    def allgather(self, mine):
        return [mine, ("h2", "")]

    def Abort(self, code):
        self.aborted.set()


@pytest.fixture
def comm(monkeypatch):
    for name, value in (("BEAT_SECONDS", 0.02), ("LEAST_SILENCE", 1.0), ("MOST_SILENCE", 1.0)):
        monkeypatch.setattr(watchdog, name, value)
    monkeypatch.setattr(watchdog.signal, "alarm", lambda seconds: None)
    return TwoRanks()


class Other:
    """Rank 1's heartbeat."""

    def __init__(self, watched: Watchdog):
        self.path, self.end = os.path.join(watched.folder, "rank-1"), threading.Event()
        self.thread = threading.Thread(target=self.beat)

    def beat(self):
        count = 0
        while not self.end.wait(0.02):
            count += 1
            self.write(count)

    def write(self, count: int):
        """In place, as ranks do: a file that is made anew is empty for a moment."""
        with open(self.path, "r+" if os.path.exists(self.path) else "w") as file:
            file.write(f"{count:09d} epoch 7")

    def __enter__(self):
        self.write(0)
        self.thread.start()

    def __exit__(self, *exc):
        self.end.set()
        self.thread.join()
        os.remove(self.path)


def test_a_silent_rank_ends_the_job_at_any_time(comm, tmp_path, caplog):
    with Watchdog(comm, str(tmp_path), 0.2, Heartbeat()):
        assert comm.aborted.wait(20)
    said = caplog.text
    assert "rank 1 on host h2" in said and "no sign of life" in said


def test_ranks_that_are_alive_have_more_patience_outside_of_epochs(comm, tmp_path, caplog):
    with Watchdog(comm, str(tmp_path), 0.3, Heartbeat()) as watched, Other(watched):
        assert not comm.aborted.wait(2.5)           # 8 limits
        with watched.impatient():
            assert comm.aborted.wait(20)
    said = caplog.text
    assert "all ranks are alive" in said and "rank 1 on host h2: epoch 7" in said


def test_patience_ends_too(comm, tmp_path):
    with Watchdog(comm, str(tmp_path), 0.05, Heartbeat()) as watched, Other(watched):
        assert comm.aborted.wait(20)


def test_heartbeat_keeps_the_job_alive(comm, tmp_path):
    with Watchdog(comm, str(tmp_path), 0.3, Heartbeat()) as watched, watched.impatient():
        limit = time.monotonic() + 3
        while time.monotonic() < limit:
            watched.heartbeat.beat()
            assert not comm.aborted.wait(0.01)


def test_nothing_is_left_behind_and_nothing_else_removed(comm, tmp_path):
    with Watchdog(comm, str(tmp_path / "new"), 5, Heartbeat()):
        assert len(list((tmp_path / "new").iterdir())) == 1
    assert not (tmp_path / "new").exists()
    (tmp_path / "old").mkdir()
    with Watchdog(comm, str(tmp_path / "old"), 5, Heartbeat()):
        pass
    assert list((tmp_path / "old").iterdir()) == []


def test_folders_of_jobs_that_were_killed_are_removed_in_time(comm, tmp_path):
    for name, age in (("dead", 7200), ("living", 0)):
        folder = tmp_path / f"{heartbeat_folder.PREFIX}{name}"
        folder.mkdir()
        (folder / "rank-0").write_text("1 epoch 3")
        for path in (folder / "rank-0", folder):
            os.utime(path, (time.time() - age,) * 2)
    with Watchdog(comm, str(tmp_path), 5, Heartbeat()):
        pass
    assert [path.name for path in tmp_path.iterdir()] == [f"{heartbeat_folder.PREFIX}living"]


def test_the_folder_of_a_job_of_this_machine_is_removed_at_once_if_its_job_is_dead(tmp_path):
    living, sign = heartbeat_folder.make_folder(str(tmp_path))
    code = ("import sys; from hpcgcn.mpi.heartbeat_folder import make_folder; "
            "print(make_folder(sys.argv[1])[0])")
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True,
                          check=True)
    dead = done.stdout.strip()
    assert os.path.isdir(dead)
    with open(os.path.join(dead, "notes"), "w") as file:
        file.write("not of the job")
    third, other_sign = heartbeat_folder.make_folder(str(tmp_path))
    assert os.listdir(dead) == ["notes"], "only what a job writes is removed"
    os.remove(os.path.join(dead, "notes"))
    fourth, last_sign = heartbeat_folder.make_folder(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == sorted(os.path.basename(p)
                                                  for p in (dead, living, third, fourth))
    for file in (sign, other_sign, last_sign):
        os.close(file)


def test_no_place_for_heartbeats_is_no_error_of_its_own(comm, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with Watchdog(comm, str(tmp_path / "file"), 5, Heartbeat()) as watched:
        assert watched.folder == ""
