"""A short training job for benchmarks/faults.py: started on lab hosts or in shared memory, watched,
and checked afterwards."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import shlex
import signal
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
LAB = ROOT / "jobs" / "lab" / "hosts"
EPOCHS, CHECKPOINT_EVERY = 120, 10
STALL_SECONDS = 3
TRAIN = ["--model", "sage", "--layers", "3", "--hidden", "64", "--dropout", "0.5", "--epochs",
         EPOCHS, "--eval-every", "20", "--checkpoint-every", CHECKPOINT_EVERY, "--threads", "1",
         "--stall-timeout", STALL_SECONDS, "--resume", "auto", "--name", "run"]
RANK_VARIABLES = (b"OMPI_COMM_WORLD_RANK", b"PMI_RANK")
POLL_SECONDS = 0.002
START_SECONDS = 120  # a job that has not come to its moment by then does not get there


def hpcgcn(*args) -> list[str]:
    return [sys.executable, "-m", "hpcgcn", *map(str, args)]


def launcher() -> list[str]:
    """MPIEXEC, or the mpiexec beside this Python, or the one on the path."""
    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    return shlex.split(os.environ.get("MPIEXEC", "")) or [beside if os.path.exists(beside)
                                                          else "mpiexec"]


def is_hydra() -> bool:
    """Does the launcher belong to MPICH or one of its kin?"""
    return "HYDRA" in subprocess.run([*launcher(), "--version"], capture_output=True,
                                     text=True).stdout


def environment() -> dict[str, str]:
    found = {**os.environ, "MPIEXEC": shlex.join(launcher()), "OMPI_ALLOW_RUN_AS_ROOT": "1",
             "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1",
             "OPENBLAS_NUM_THREADS": "1"}
    found["PATH"] = (os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", "")
                     + ":/usr/sbin:/sbin")
    return found


class Job:
    """One start of the command.

    What it writes goes to `folder`, its results to `folder`/disk/run.
    """

    def __init__(self, folder: pathlib.Path, part_file: pathlib.Path, n_ranks: int, on_hosts: bool,
                 method: str, around=()):
        """around: what stands before the command on every rank."""
        self.folder, self.on_hosts = folder, on_hosts
        self.run_folder = folder / "disk" / "run"
        self.said = ""
        train = hpcgcn("train", part_file, *TRAIN, "--method", method, "--output", folder / "disk")
        start = [str(LAB), "--hosts", str(n_ranks), "--"] if on_hosts else [
            *launcher(), *([] if is_hydra() else ["--oversubscribe"]), "-n", str(n_ranks)]
        (folder / "disk").mkdir(parents=True, exist_ok=True)
        self.output = folder / f"output-{len(list(folder.glob('output-*')))}"
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen([*start, *map(str, around), *train], cwd=folder,
                                            env=environment(), stdout=output, stderr=output,
                                            stdin=subprocess.DEVNULL, start_new_session=True)

    # -- watching ----------------------------------------------------------------------------------
    def ranks(self) -> dict[int, int]:
        """{rank: process id} of the ranks that run, found by what their launcher told them."""
        found = {}
        for process in self._processes():
            with contextlib.suppress(OSError, ValueError):
                variables = dict(line.partition(b"=")[::2]
                                 for line in (process / "environ").read_bytes().split(b"\0"))
                rank = next((int(variables[name]) for name in RANK_VARIABLES if name in variables),
                            None)
                if rank is not None:
                    found[rank] = int(process.name)
        return found

    def _processes(self):
        """All processes whose command line names this job's folder."""
        mark = str(self.folder / "disk").encode()
        for process in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if (process.name.isdigit()
                    and mark in (process / "cmdline").read_bytes().split(b"\0")):
                    yield process

    def lab_process(self) -> int:
        """The first process inside the lab's namespaces."""
        return int(pathlib.Path(
            f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()[0])

    def epochs_done(self) -> int:
        with contextlib.suppress(OSError):
            return max((self.run_folder / "metrics.csv").read_bytes().count(b"\n") - 1, 0)
        return 0

    def is_writing(self) -> bool:
        """Is a checkpoint being written?"""
        with contextlib.suppress(OSError):
            return any(name.startswith(".writing-")
                       for name in os.listdir(self.run_folder / "checkpoints"))
        return False

    def wait_until(self, condition, seconds: float = START_SECONDS) -> bool:
        """Did the condition come true before the job ended?"""
        limit = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < limit:
            if condition():
                return True
            time.sleep(POLL_SECONDS)
        return False

    def wait_end(self, seconds: float) -> int | None:
        """The exit code; None if the job had to be ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        code = self.process.poll()
        if code is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.said = self.output.read_text(errors="replace")
        return code

    def left_over(self, seconds: float = 5) -> list[int]:
        """Ranks that outlive the launcher by this long; they are ended."""
        limit = time.monotonic() + seconds
        while (left := [int(process.name)
                        for process in self._processes()]) and time.monotonic() < limit:
            time.sleep(0.05)
        for number in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        return left


def host_of(rank: int, on_hosts: bool) -> str:
    return f"h{rank + 1}" if on_hosts else socket.gethostname()


# -- what is left behind ---------------------------------------------------------------------------

def broken_checkpoints(run_folder: pathlib.Path) -> list[str]:
    """What is wrong with the checkpoints of a run: every file is opened and every array read."""
    import h5py

    from hpcgcn.errors import HpcgcnError
    from hpcgcn.train import checkpoint
    problems = []
    for epochs, path in checkpoint.checkpoint_folders(str(run_folder / "checkpoints")):
        try:
            snapshot = checkpoint.load(path)
            if (snapshot.epoch != epochs
                or not len(snapshot.parameters) == len(snapshot.m) == len(snapshot.v)):
                problems.append(f"{path}: sizes or epoch do not fit")
            exchanges = [name for name in os.listdir(path) if name.startswith("exchange-")]
            if exchanges and len(exchanges) != snapshot.n_ranks:
                problems.append(f"{path}: {len(exchanges)} exchange files of {snapshot.n_ranks} "
                                "ranks")
            for name in exchanges:
                with h5py.File(os.path.join(path, name)) as file:
                    file.visititems(lambda _, item: item[...] if isinstance(item, h5py.Dataset)
                                    else None)
        except (HpcgcnError, OSError, RuntimeError) as error:
            problems.append(f"{path}: {error}")
    return problems


def n_checkpoints(run_folder: pathlib.Path) -> int:
    from hpcgcn.train import checkpoint
    return len(checkpoint.checkpoint_folders(str(run_folder / "checkpoints")))


def digest(run_folder: pathlib.Path) -> str:
    """Of the parameters and moments at the end of a run; "" if it has no checkpoint."""
    from hpcgcn.train import checkpoint
    found = checkpoint.checkpoint_folders(str(run_folder / "checkpoints"))
    if not found:
        return ""
    epochs, path = found[-1]
    snapshot = checkpoint.load(path)
    arrays = (snapshot.parameters, snapshot.m, snapshot.v)
    return f"{epochs} " + hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
