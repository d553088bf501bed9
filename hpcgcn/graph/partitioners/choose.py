"""Which partitioner divides a graph: the one asked for, or the best that fits the memory."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import numpy as np

from hpcgcn.errors import BackendError, ConfigError
from hpcgcn.graph.partitioners import PARTITIONERS
from hpcgcn.graph.partitioners.base import NODES_PER_PART, Forecast, Task
from hpcgcn.graph.partitioners.even_out import without_empty_parts
from hpcgcn.graph.partitioners.halo import count_halo
from hpcgcn.graph.partitioners.simple import Block

log = logging.getLogger(__name__)

# In the order of their halo rows, measured (benchmarks/partitioners.py).
BEST_FIRST = ("kaminpar", "metis", "labels", "streaming")
# Up to so many entries several are tried; METIS takes ten times as long for volume.
CHEAP_ENTRIES = 300_000


@dataclass(frozen=True)
class Chosen:
    """Parts, and which partitioner made them of what, and why that one."""

    parts: np.ndarray                # (n_nodes,) int32; (0,) on other ranks than 0
    method: str
    objective: str
    why: str


def forecasts(task: Task) -> dict[str, Forecast]:
    """What each partitioner would take."""
    return {name: partitioner.forecast(task.size) for name, partitioner in PARTITIONERS.items()}


def forecast_lines(task: Task, method: str) -> list[tuple[str, str, str, str, float]]:
    """(name, memory, seconds, note, seconds as a number) of each partitioner that is of use."""
    lines = []
    fitting = _fitting(task)
    chosen = method if method != "auto" else (fitting or [""])[0]
    for name, forecast in forecasts(task).items():
        missing = PARTITIONERS[name].missing()
        note = ("not installed" if missing else "chosen" if name == chosen
                else "does not fit" if forecast.n_bytes > task.memory
                else "needs ranks" if PARTITIONERS[name].on_ranks and task.ranks.size == 1 else "")
        lines.append((name, gib(forecast.n_bytes), _seconds(forecast.seconds), note,
                      forecast.seconds))
    return lines


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.2g}"


def choose_parts(task: Task, method: str = "auto", force: bool = False) -> Chosen:
    """Divide a graph; no part is empty. Collective over the task's ranks: others than rank 0 get
    no parts.

    method: `auto` is the best of those that fit the memory; force: also one that does not.
    """
    chosen = _chosen(task, method, force)
    if len(chosen.parts):
        chosen = replace(chosen, parts=without_empty_parts(chosen.parts, task.n_parts))
    return chosen


def _chosen(task: Task, method: str, force: bool) -> Chosen:
    if task.n_parts == 1:
        return Chosen(np.zeros(task.n_nodes, np.int32), method, task.objective, "one part")
    plain = method != "auto" and not PARTITIONERS[method].reads_edges
    few = len(task.indices) == 0 or task.n_nodes < NODES_PER_PART * task.n_parts
    if few and not plain:
        return Chosen(Block().parts(task), "block", "none", "there are few nodes or no edges")
    if method == "auto":
        return _automatic(task)
    _check_fits(task, method, force)
    if plain:
        return Chosen(PARTITIONERS[method].parts(task), method, "none", "asked for")
    objectives = [objective for objective in PARTITIONERS[method].objectives
                  if task.objective in ("auto", objective)] or ["cut"]
    tries = [(method, objective) for objective in objectives]
    return _best_of(task, tries if _cheap(task) else tries[:1], "asked for")


def _fitting(task: Task) -> list[str]:
    """Those that can be used here and fit, the best first."""
    return [name for name in BEST_FIRST if not PARTITIONERS[name].missing()
            and (task.ranks.size > 1 or not PARTITIONERS[name].on_ranks)
            and PARTITIONERS[name].forecast(task.size).n_bytes <= task.memory]


def _automatic(task: Task) -> Chosen:
    """The best of those that fit."""
    fitting = _fitting(task)
    if not fitting:
        raise ConfigError(_too_large(task, "no partitioner fits"))
    if task.objective == "volume" and "metis" in fitting:
        return _best_of(task, [("metis", "volume")], "the one that minimises volume")
    tries = [(name, objective) for name in fitting if name in ("metis", "kaminpar")
             for objective in PARTITIONERS[name].objectives]
    if _cheap(task) and task.objective == "auto" and len(tries) > 1:
        return _best_of(task, tries, "the fewest halo rows of those that were tried")
    why = "the best that fits the memory"
    better = [name for name in BEST_FIRST[:BEST_FIRST.index(fitting[0])]
              if not PARTITIONERS[name].missing() and not PARTITIONERS[name].on_ranks]
    if better:
        needed = PARTITIONERS[better[0]].forecast(task.size).n_bytes
        why += f" ({better[0]} would take {gib(needed)} of {gib(task.memory)})"
    for name in fitting[:-1]:
        try:
            return _best_of(task, [(name, "cut")], why)
        except BackendError as error:
            log.warning("%s", error)
            why = f"{name} failed"
    return _best_of(task, [(fitting[-1], "cut")], why)


def _cheap(task: Task) -> bool:
    return len(task.indices) <= CHEAP_ENTRIES and task.ranks.size == 1


def _best_of(task: Task, tries: list[tuple[str, str]], why: str) -> Chosen:
    """The parts with the fewest halo rows; of equal ones, the first."""
    best, fewest = None, None
    if len(tries) > 1:
        task = task.in_memory()
    for method, objective in tries:
        try:
            parts = _parts(replace(task, objective=objective), method)
        except BackendError as error:
            if (method, objective) == tries[-1] and best is None:
                raise
            log.warning("%s", error)
            continue
        rows = count_halo(task.indptr, task.indices, parts, task.n_parts) if len(tries) > 1 else 0
        if fewest is None or rows < fewest:
            best, fewest = Chosen(parts, method, objective, why), rows
    assert best is not None
    return best


def _parts(task: Task, method: str) -> np.ndarray:
    """What a partitioner makes, on rank 0; it fails on all ranks if it fails on one."""
    partitioner, parts, failed = PARTITIONERS[method], np.zeros(0, np.int32), None
    if partitioner.on_ranks or task.ranks.rank == 0:
        try:
            parts = partitioner.parts(task)
        except BackendError as error:
            failed = error
    if task.ranks.sum(np.array([failed is not None], np.int64))[0]:
        raise failed or BackendError(f"{method} failed on another rank")
    return parts


def _check_fits(task: Task, method: str, force: bool):
    """Refuse what cannot be used, or would not fit."""
    missing = PARTITIONERS[method].missing()
    if missing:
        raise ConfigError(f"method = '{method}': {missing}; or choose another method")
    needed = PARTITIONERS[method].forecast(task.size).n_bytes
    if needed > task.memory and not force:
        raise ConfigError(_too_large(task, f"method = '{method}' would take about "
                                           f"{gib(needed)}"))


def _too_large(task: Task, what: str) -> str:
    names = _fitting(task) or [name for name, partitioner in PARTITIONERS.items()
                               if not partitioner.reads_edges]
    others = [f"{name} ({gib(PARTITIONERS[name].forecast(task.size).n_bytes)})" for name in names]
    least = gib(PARTITIONERS["streaming"].forecast(task.size).n_bytes)
    return (f"{what}, and {gib(task.memory)} may be used: choose --method {' or '.join(others)}, "
            f"raise --memory (streaming takes {least}), or try it with --force")


def gib(n_bytes: float) -> str:
    """Bytes for people."""
    return f"{n_bytes / 2 ** 30:.1f} GiB" if n_bytes >= 2 ** 30 else f"{n_bytes / 2 ** 20:.0f} MiB"
