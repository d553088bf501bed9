"""A table of all runs of a folder."""

from __future__ import annotations

import os

from hpcgcn.errors import FileError
from hpcgcn.files.marker import has_marker
from hpcgcn.report.runs import Run, read_run


def runs_in(folder: str) -> list[Run]:
    """The runs in a folder, in the order of their names."""
    if not os.path.isdir(folder):
        raise FileError(f"{folder} is no folder: give the one that holds the folders of runs "
                        "(--output of `hpcgcn train`)")
    runs = []
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if has_marker(path) or os.path.isfile(os.path.join(path, "metrics.csv")):
            try:
                runs.append(read_run(path))
            except FileError:                    # no epoch yet, or damaged: its line says so
                runs.append(Run(path, name, {"epoch": []}, {}, None, ["no metrics"]))
    return runs


def facts(run: Run) -> dict:
    """What a line of the table tells of a run."""
    best, n = run.best(), max(run.n_epochs, 1)
    seconds = sum(value or 0.0 for value in run.column("seconds"))
    sent = sum(value or 0.0 for value in run.column("bytes_sent"))
    return {"name": os.path.basename(os.path.normpath(run.path)), "state": _state(run),
            "model": run.config.get("model"), "method": run.config.get("method"),
            "seed": run.config.get("seed"), "ranks": run.fact("ranks"), "epochs": run.n_epochs,
            "best_epoch": int(best[0]) if best else None, "val": best[1] if best else None,
            "test": best[2] if best else None, "seconds_per_epoch": seconds / n,
            "bytes_per_epoch": sent / n}


def _state(run: Run) -> str:
    if run.summary is None:
        return "not ended"
    return "stopped early" if run.summary.get("stopped_early") is True else "finished"
