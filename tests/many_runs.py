"""Many whole runs in one MPI job, since starting a job costs more than a short run: a program, and
the call that starts it.

    results = run_many(3, [job("a", "g.h5", method="pipegcn"), ...], folder)
    results["a"]["losses"]

Every run goes through `train_model`, as the command line does; what a user would read in its folder
comes back.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
import sys

SHORT = {"threads": 1, "quiet": True, "epochs": 12, "hidden": 16, "eval_every": 0,
         "checkpoint_every": 0, "layers": 3}


def job(label: str, source, *, forget_after: int | None = None, **settings) -> dict:
    """One run.

    `forget_after`: first throw away all checkpoints after that epoch, as if the job had died before
    them.
    """
    return {"label": label, "source": str(source), "forget_after": forget_after,
            "settings": SHORT | {"name": label} | settings}


def run_many(n_ranks: int, jobs: list[dict], folder, timeout: float = 540) -> dict[str, dict]:
    """Run the jobs on n ranks, one after another, in `folder`; {label: what it left}.

    A later job may resume an earlier one.
    """
    from launch import launch
    listing = os.path.join(folder, f"jobs-{n_ranks}.json")
    answer = os.path.join(folder, f"answer-{n_ranks}.json")
    with open(listing, "w") as file:
        json.dump(jobs, file)
    launch(n_ranks, [sys.executable, __file__, listing, answer], cwd=folder,
           timeout=timeout).check()
    with open(answer) as file:
        return json.load(file)


def forget(folder: str, epoch: int):
    """Remove what a run wrote after an epoch, and that it ended."""
    checkpoints = os.path.join(folder, "checkpoints")
    for name in os.listdir(checkpoints):
        if int(name.removeprefix("epoch-")) > epoch:
            shutil.rmtree(os.path.join(checkpoints, name))
    os.remove(os.path.join(folder, "summary.json"))


def left_behind(folder: str) -> dict:
    """Metrics as text, and a digest of the newest parameters."""
    import h5py
    with open(os.path.join(folder, "metrics.csv"), newline="") as file:
        rows = list(csv.DictReader(file))
    found = {"rows": rows, "losses": [float(row["loss"]) for row in rows]}
    newest = max(os.listdir(os.path.join(folder, "checkpoints")), default=None)
    if newest:
        with h5py.File(os.path.join(folder, "checkpoints", newest, "model.h5")) as file:
            found["digest"] = hashlib.sha256(
                b"".join(file[k][...].tobytes() for k in ("parameters", "m", "v"))).hexdigest()
    with open(os.path.join(folder, "summary.json")) as file:
        found["summary"] = json.load(file)
    return found


def one_run(comm, task: dict) -> dict:
    """Do one job on all ranks; a refusal is an answer too."""
    from hpcgcn.config import make_config
    from hpcgcn.errors import HpcgcnError
    from hpcgcn.train.run import train_model
    try:
        config = make_config(task["settings"])
        if task["forget_after"] is not None and comm.rank == 0:
            forget(os.path.join(config.output, config.name), task["forget_after"])
        comm.Barrier()
        result = train_model(task["source"], config, comm)
    except HpcgcnError as error:
        return {"error": type(error).__name__, "message": str(error)}
    return {"code": result.exit_code} | (left_behind(result.folder) if comm.rank == 0 else {})


def main(listing: str, answer: str):
    from mpi4py import MPI
    comm = MPI.COMM_WORLD
    with open(listing) as file:
        jobs = json.load(file)
    answers = {}
    try:
        for task in jobs:
            answers[task["label"]] = one_run(comm, task)
    except BaseException:  # noqa: BLE001
        import traceback
        print(f"rank {comm.rank}, job {task}:\n{traceback.format_exc()}", file=sys.stderr,
              flush=True)
        comm.Abort(1)
    if comm.rank == 0:
        with open(answer, "w") as file:
            json.dump(answers, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
