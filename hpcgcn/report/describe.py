"""What the folder of a run holds, as plain facts; `hpcgcn info` prints them."""

from __future__ import annotations

import os

from hpcgcn.config import FIELDS
from hpcgcn.report.runs import Run, read_run
from hpcgcn.train.checkpoint import checkpoint_folders, newest


def describe_run(path: str) -> dict:
    """How far a run is, its best scores, checkpoints and settings; FileError if it is no run."""
    run = read_run(path)
    saved = os.path.join(path, "checkpoints")
    return {"path": path, "kind": "run", "state": _state(run), "epochs": run.n_epochs,
            **_scores(run),
            "ranks": run.fact("ranks"), "nodes": run.fact("nodes"),
            "checkpoints": [os.path.basename(folder) for _, folder in checkpoint_folders(saved)],
            "newest_sound_checkpoint": newest(saved),
            "settings": {key: value for key, value in run.config.items()
                         if key in FIELDS and value != FIELDS[key].default},
            "notes": run.notes}


def _state(run: Run) -> str:
    if run.summary is None:
        return "not ended"
    return "stopped early" if run.summary.get("stopped_early") is True else "finished"


def _scores(run: Run) -> dict:
    losses, best = run.column("loss"), run.best()
    return {"loss": losses[-1] if losses else None,
            **({"best_epoch": best[0], "val": best[1], "test": best[2]} if best else {})}
