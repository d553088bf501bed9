"""A short training job for benchmarks/faults.py: started on lab hosts or in shared memory, watched,
and checked afterwards."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
LAB = ROOT / "jobs" / "lab" / "hosts"
EPOCHS, CHECKPOINT_EVERY = 60, 5
# jobs share two cores: with less, a rank that waits for its turn is taken for stuck
STALL_SECONDS = 6
TRAIN = ["--model", "sage", "--layers", "4", "--hidden", "32", "--dropout", "0.5", "--epochs",
         EPOCHS, "--eval-every", "30", "--checkpoint-every", CHECKPOINT_EVERY, "--threads", "1",
         "--stall-timeout", STALL_SECONDS, "--resume", "auto", "--name", "run"]
# How many blocks are fastest is measured at start: here it must be the same in every run.
OWN_SETTINGS = {"mixgcn-moa": ["--feature-blocks", "4"]}
RANK_VARIABLES = (b"OMPI_COMM_WORLD_RANK", b"PMI_RANK")
MARK = "HPCGCN_FAULTS_JOB"               # in the environment of all processes of a job
POLL_SECONDS = 0.002                     # for files
LOOK_SECONDS = 0.05                      # for processes: all of /proc is read
# A job sees its own folders as the places for temporary files and for shared memory.
PRIVATE = 'mount --bind "$1" /dev/shm && shift && exec "$@"'
START_SECONDS = 120  # a job that has not come to its moment by then does not get there


def hpcgcn(*args) -> list[str]:
    return [sys.executable, "-m", "hpcgcn", *map(str, args)]


def launcher() -> list[str]:
    """MPIEXEC, or the mpiexec beside this Python, or the one on the path."""
    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    return shlex.split(os.environ.get("MPIEXEC", "")) or [beside if os.path.exists(beside)
                                                          else "mpiexec"]


@functools.cache
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

    def __init__(self, folder: pathlib.Path, source: pathlib.Path, n_ranks: int, on_hosts: bool,
                 method: str, around=()):
        """around: what stands before the command on every rank."""
        self.folder, self.on_hosts = folder, on_hosts
        self.run_folder = folder / "disk" / "run"
        self.said, self.mark = "", f"{folder}-{time.monotonic_ns()}"
        train = hpcgcn("train", source, *TRAIN, "--method", method, *OWN_SETTINGS.get(method, []),
                       "--output", folder / "disk")
        start = [str(LAB), "--hosts", str(n_ranks), "--"] if on_hosts else [
            *launcher(), *([] if is_hydra() else ["--oversubscribe"]), "-n", str(n_ranks)]
        for name in ("disk", "tmp"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self.shared_memory = make_shared_memory(self.mark)
        private = ["unshare", "--mount", "sh", "-c", PRIVATE, "private", str(self.shared_memory)]
        env = environment() | {"TMPDIR": str(folder / "tmp"), MARK: self.mark}
        self.output = folder / f"output-{len(list(folder.glob('output-*')))}"
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen([*private, *start, *map(str, around), *train],
                                            cwd=folder, env=env, stdout=output, stderr=output,
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
                if (rank is not None
                    and b"hpcgcn" in (process / "cmdline").read_bytes().split(b"\0")):
                    found[rank] = int(process.name)
        return found

    def _processes(self):
        """All processes of this job, the launcher's among them."""
        mark = f"{MARK}={self.mark}".encode()
        for process in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if (process.name.isdigit()
                    and mark in (process / "environ").read_bytes().split(b"\0")):
                    yield process

    @contextlib.contextmanager
    def frozen(self):
        """A block in which the job stands still, for what takes a moment to prepare."""
        ranks = self.ranks().values()
        for process in ranks:
            os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in ranks:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGCONT)

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

    def wait_until(self, condition, pause: float = POLL_SECONDS,
                   seconds: float = START_SECONDS) -> bool:
        """Did the condition come true before the job ended?"""
        limit = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < limit:
            if condition():
                return True
            time.sleep(pause)
        return False

    def wait_ranks(self, n_ranks: int) -> bool:
        """Did all ranks start before the job ended?"""
        return self.wait_until(lambda: len(self.ranks()) == n_ranks, LOOK_SECONDS)

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

    def left_over(self, seconds: float = 15) -> list[str]:
        """What outlives the launcher: processes, after this long, and temporary files; all of it is
        removed."""
        limit = time.monotonic() + seconds
        while (left := [int(process.name)
                        for process in self._processes()]) and time.monotonic() < limit:
            time.sleep(LOOK_SECONDS)
        for number in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        found = [f"process {number} is left" for number in left]
        for place, folder in (("the temporary folder", self.folder / "tmp"),
                              ("shared memory", self.shared_memory)):
            names = sorted(str(path.relative_to(folder))
                           for path in folder.rglob("*") if not path.is_dir())
            found += [f"left in {place}: {', '.join(names[:5])}"] if names else []
            for path in folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.shared_memory.rmdir()
        return found


def make_shared_memory(mark: str) -> pathlib.Path:
    """A folder in memory for one job."""
    folder = pathlib.Path("/dev/shm") / hashlib.sha256(mark.encode()).hexdigest()[:16]
    folder.mkdir()
    return folder


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


def choices(run_folder: pathlib.Path) -> str:
    """What a run chose by measuring, as text; "" if it chose nothing."""
    with contextlib.suppress(OSError):
        return (run_folder / "choices.json").read_text()
    return ""


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
