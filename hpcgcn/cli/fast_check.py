"""hpcgcn train --fast-check: one epoch of everything that a run does, in a folder that is removed
again."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from hpcgcn.config import Config
from hpcgcn.errors import HpcgcnError
from hpcgcn.logs import progress
from hpcgcn.mpi.world import on_root


def fast_check(comm, graph: str, config: Config) -> int:
    """Train an epoch, resume for another, evaluate, predict, export and report; says what works and
    how long it took. Collective; returns the exit code."""
    began = time.perf_counter()
    with contextlib.ExitStack() as stack:
        folder = on_root(comm, lambda: stack.enter_context(_folder(config.output)))
        for name, step in _steps(comm, graph, config, folder):
            _tell(comm, name, step)
    if comm.rank == 0:
        progress.info("%s", f"everything works on {comm.size} rank{'s' if comm.size > 1 else ''}: "
                            f"{time.perf_counter() - began:.1f} s; no results were kept")
    return 0


@contextlib.contextmanager
def _folder(output: str) -> Iterator[str]:
    """A temporary folder where results would go: all ranks see it, and it has the room."""
    from hpcgcn.files.atomic import explained
    from hpcgcn.files.tidy import temporary_folder
    place = os.path.abspath(output)
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    with explained(place):
        made = temporary_folder(place)
        folder = made.__enter__()
    try:
        yield folder
    finally:
        made.__exit__(None, None, None)


def _steps(comm, graph: str, config: Config,
           folder: str) -> Iterator[tuple[str, Callable[[], str]]]:
    """(name, what it does; it returns what there is to say), in order. Each needs those before."""
    from hpcgcn.train.inference import open_model, predict
    from hpcgcn.train.run import train_model
    run = os.path.join(folder, "check")
    short: dict[str, Any] = {"output": folder, "name": "check", "eval_every": 1, "quiet": True,
                             "checkpoint_every": 1, "overwrite": False, "time_limit": 0.0}

    def train() -> str:
        once = config.replace(**short, epochs=1, resume="never")
        result = train_model(graph, once, comm)
        return f"1 epoch, evaluation, a checkpoint; {_scores(result.summary['final'])}"

    def resume() -> str:
        result = train_model(graph, config.replace(**short, epochs=2, resume="must"), comm)
        return f"went on to epoch {result.summary['epochs']}"

    def evaluate() -> str:
        model = open_model(run, graph, "best", {}, comm)
        scored = model.scores()
        model.close()
        return _scores(scored)

    def predicted() -> str:
        model = open_model(run, graph, "best", {}, comm)
        predict(model, os.path.join(folder, "classes.h5"), "classes", 1, "", graph, False)
        model.close()
        return f"classes of {model.part.n_nodes:,} nodes"

    yield "train", train
    yield "resume", resume
    yield "evaluate", evaluate
    yield "predict", predicted
    yield "report", lambda: on_root(comm, _report, run, os.path.join(folder, "report.html"))


def _report(run: str, path: str) -> str:
    from hpcgcn.report.page import write_page
    from hpcgcn.report.runs import read_runs
    write_page(path, read_runs([run], []), "", False)
    return f"a page of {os.path.getsize(path) / 1024:.0f} KiB"


def _scores(scored: dict) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in scored.items()
                     if value is not None and value == value)


def _tell(comm, name: str, step: Callable[[], str]):
    """Run a step in silence, and say how it went."""
    began, before = time.perf_counter(), progress.disabled
    progress.disabled = True
    try:
        words = step()
    except HpcgcnError:
        progress.disabled = before
        if comm.rank == 0:
            progress.info("%s", f"{name:<9} FAILED")
        raise
    finally:
        progress.disabled = before
    if comm.rank == 0:
        progress.info("%s", f"{name:<9} works  {time.perf_counter() - began:6.2f} s  {words}")
