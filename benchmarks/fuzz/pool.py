"""Workers that try cases: forked after all imports, killed when a case takes too long, forked anew
when they die."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Iterable, Iterator
from multiprocessing.connection import wait

from fuzz import sandbox
from fuzz.cases import NOT_MADE, Outcome, run_case

SECONDS = 10.0  # that a case may take, without the time for which a busy machine lets it wait
MOST_SECONDS = 600.0  # with that time
LOOK_SECONDS = 0.5  # between two looks at a case that takes long
CASES_A_WORKER = 500  # after which a worker is replaced: what leaks stays small
_FORK = multiprocessing.get_context("fork")


def load_modules():
    """Import all that cases use, so that workers need not."""
    import importlib

    for name in ("torch", "torch_geometric.data", "scipy.sparse", "safetensors.numpy", "h5py",
                 "mpi4py", "pymetis"):
        try:
            importlib.import_module(name)
        except ImportError:
            pass
    import mpi4py

    mpi4py.rc.initialize = mpi4py.rc.finalize = False
    for name in ("cli.import_", "cli.info", "cli.train", "cli.predict", "cli.evaluate",
                 "cli.weights", "cli.partition", "cli.report", "train.run", "train.inference",
                 "weights.files", "formats.finish", "info.describe", "report.page"):
        importlib.import_module(f"hpcgcn.{name}")
    from hpcgcn.formats.table import load_readers

    load_readers()
    gc.freeze()  # runs collect garbage; these modules need not be looked through each time


def bare_ranks():
    """Start MPI, and have commands run without the net that turns a foreign exception into the end
    of all ranks."""
    from mpi4py import MPI

    from hpcgcn.mpi import world

    if not MPI.Is_initialized():
        MPI.Init_thread()

    def run_ranks(function, *arguments, **_):
        return function(world.world(), *arguments)

    world.run_ranks = run_ranks


def in_child(folder: str, function, *arguments):
    """Call a function in a process of its own, which may start MPI; temporary files are in
    `folder`."""

    def body():
        sandbox.keep_temporary_files_in(folder)
        bare_ranks()
        function(*arguments)

    child = _FORK.Process(target=body)
    child.start()
    child.join()
    if child.exitcode:
        raise RuntimeError(f"{function.__name__} failed with the exit code {child.exitcode}")


class Worker:
    """A process that tries one case after the other."""

    def __init__(self, sound: str, folder: str, seed: int):
        self.arguments, self.folder = (sound, folder, seed), folder
        self.case = self.process = None
        self._start()

    def _start(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        self.pipe, theirs = _FORK.Pipe()
        self.process = _FORK.Process(target=_serve, args=(theirs, *self.arguments), daemon=True)
        self.process.start()
        theirs.close()
        self.done = 0
        self.pipe.recv()  # it is ready

    def begin(self, case: tuple[str, int]):
        """Have it try a case."""
        if self.done >= CASES_A_WORKER:
            self.stop()
            self._start()
        self.case, self.began, self.waits = case, time.monotonic(), {}
        self.waited_before = sandbox.seconds_waited(self.process.pid)
        self.pipe.send(case)

    def is_late(self) -> bool:
        """Has its case taken too long? The time for which it waited for a core does not count:
        asked often, it knows that of processes that have ended, too."""
        elapsed = time.monotonic() - self.began
        if elapsed < LOOK_SECONDS:
            return False
        for process in sandbox.tree(self.process.pid):
            self.waits[process] = sandbox.seconds_waited(process)
        waited = sum(self.waits.values()) - self.waited_before
        return elapsed - waited > SECONDS or elapsed > MOST_SECONDS

    def finish(self) -> Outcome:
        """The outcome of its case, which has ended one way or the other."""
        case, self.case = self.case, None
        self.done += 1
        try:
            return Outcome(**self.pipe.recv())
        except (EOFError, OSError):
            self.process.join()
            code, changes = self.process.exitcode, self._changes()
            self._start()
            return Outcome(*case, "broken" if changes == NOT_MADE else "death",
                           where=f"signal {-code}" if code < 0 else f"exit code {code}",
                           changes=changes)

    def kill(self) -> Outcome:
        """End it, because its case takes too long."""
        case, self.case, changes = self.case, None, self._changes()
        self.stop()
        self._start()
        return Outcome(*case, "time", where=f"over {SECONDS:.0f} s", changes=changes,
                       seconds=SECONDS)

    def _changes(self) -> str:
        """What was done to the input of its case."""
        try:
            with open(os.path.join(self.folder, "changes")) as file:
                return file.read()
        except OSError:
            return ""

    def stop(self):
        """End the process, and those that it started."""
        for process in reversed(sandbox.tree(self.process.pid)):
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        self.process.join()
        self.pipe.close()


def _serve(pipe, sound: str, folder: str, seed: int):
    outside = sandbox.confine(folder)
    bare_ranks()
    pipe.send("ready")
    while True:
        kind, number = pipe.recv()
        pipe.send(run_case(sound, folder, seed, kind, number, outside).plain())


def run_cases(
    cases: Iterable[tuple[str, int]], sound: str, folder: str, seed: int, n_workers: int
) -> Iterator[Outcome]:
    """Outcomes as they come. A case that takes too long or too much memory is tried once more:
    the machine may have been busy."""
    cases, again = iter(cases), []
    workers = [Worker(sound, os.path.join(folder, f"worker-{k}"), seed) for k in range(n_workers)]
    suspects: set = set()
    try:
        idle = list(workers)
        while True:
            while idle and (case := again.pop() if again else next(cases, None)) is not None:
                worker = idle.pop()
                worker.begin(case)
            busy = [worker for worker in workers if worker.case]
            if not busy:
                return
            for worker in _ended(busy):
                outcome = worker.finish() if worker.pipe.poll() else worker.kill()
                idle.append(worker)
                case = (outcome.kind, outcome.number)
                if outcome.outcome in ("time", "memory") and case not in suspects:
                    suspects.add(case)
                    again.append(case)
                else:
                    yield outcome
    finally:
        for worker in workers:
            worker.stop()


def _ended(busy: list[Worker]) -> list[Worker]:
    """Workers whose case is done, or too late."""
    ready = wait([worker.pipe for worker in busy], LOOK_SECONDS)
    return [worker for worker in busy if worker.pipe in ready or worker.is_late()]
