"""Many training runs in one MPI job, for benchmarks/mixgcn.py: `run_jobs` starts it, this file is
also what every rank runs."""

from __future__ import annotations

import csv
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

SHARED = {"quiet": True, "threads": 1, "overwrite": True, "checkpoint_every": 0, "eval_every": 0}


def run_jobs(n_ranks: int, jobs: list[dict], folder: str, timing: bool = True) -> list[dict]:
    """Train every {label, graph, settings} on n ranks, one after the other; their summaries, in
    order.

    Where ranks outnumber cores, or time does not matter, they sleep while they wait (idle_sleep.c):
    the scheduler does not always heed a yield.
    """
    from methods import idle_sleep
    listing, answer = os.path.join(folder, "jobs.json"), os.path.join(folder, "answers.json")
    with open(listing, "w") as file:
        json.dump(jobs, file)
    environment = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1",
                       PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe")
    if os.geteuid() == 0:
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if n_ranks > (os.cpu_count() or 1) or not timing:
        environment |= idle_sleep(folder)
    command = os.environ.get("MPIEXEC",
                             os.path.join(os.path.dirname(sys.executable), "mpiexec")).split()
    subprocess.run([*command, "-n", str(n_ranks), sys.executable, os.path.abspath(__file__),
                    listing, answer, folder], check=True, env=environment)
    with open(answer) as file:
        return json.load(file)


def work(listing: str, answer: str, folder: str):
    """What every rank does."""
    from hpcgcn.config import make_config
    from hpcgcn.mpi.world import on_root, world
    from hpcgcn.train.run import train_model
    comm = world()
    answers = []
    for job in on_root(comm, lambda: json.load(open(listing))):
        config = make_config(SHARED | {"output": os.path.join(folder, "runs"), "name": "run"}
                             | job["settings"])
        result = train_model(job["graph"], config, comm)
        if comm.rank == 0:
            answers.append(job | {"summary": result.summary,
                                  "epoch_seconds": typical_epoch(result.folder)})
            print(f"{comm.size} ranks, {job['label']}: {1000 * answers[-1]['epoch_seconds']:.1f} "
                  "ms/epoch", flush=True)
    if comm.rank == 0:
        with open(answer, "w") as file:
            json.dump(answers, file)


def typical_epoch(folder: str) -> float:
    """The median of a run's epochs, the first two left out."""
    with open(os.path.join(folder, "metrics.csv"), newline="") as file:
        seconds = [float(row["seconds"]) for row in csv.DictReader(file)]
    return statistics.median(seconds[2:] or seconds)


if __name__ == "__main__":
    work(*sys.argv[1:])
