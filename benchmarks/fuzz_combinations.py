"""Randomised short runs over everything that can be combined: each trains, or is refused with the
reason.

    python benchmarks/fuzz_combinations.py  500 runs on 2, 3 and 4 ranks; minutes on two cores
    python benchmarks/fuzz_combinations.py -n 50 --seed 7

A run that hangs, raises, diverges, or ends differently on different ranks is reported with its
settings, and the exit code is 1. Many runs share one MPI job; half of the jobs cut messages into
tiny pieces, so that all of the holding back and handing over of long messages is met by short ones.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter

RUNS_A_JOB = 40
MODELS = ("gcn", "sage", "gcnii", "resgcn")
RATES = {
    "bits": ("auto", "1", "4", "32", "step:1@0,2@1,4@2,16@3", "linear:1:32:2", "cosine:16:1",
             "plateau:1:32:1", "linear:64:1"),
    "subset": ("auto", "2", "1", "7.5", "linear:128:1:5", "cosine:8:1", "plateau:64:1:1",
               "step:9@0,1@2", "0.5", "step:4@0,0.2@1,4@2"),
    "adaptive": ("auto", "1", "3", "8", "linear:1:8:2", "0.5", "16"),
    "nodes": ("auto", "3", "1", "linear:50:1:3", "step:2@0,20@2", "plateau:100:2:1"),
}
# setting: (chance that a run sets it, values)
OVERRIDES = {
    "codec": (0.5,
              ("fp32", "fp16", "bf16", "bits", "8bit", "4bit", "2bit", "1bit", "subset", "nodes",
               "adaptive", "adaptive,last=fp32",
               "4bit,last=fp32", "fp32,wide=bf16", "bits,features=8bit",
               "8bit,gradients.1=subset")),
    "rounding": (0.3, ("stochastic", "nearest")), "code_parameters": (0.2, ("bf16", "fp32")),
    "rescale": (0.15, (True,)),
    "staleness": (0.4, ("0", "1", "1,narrow=0", "features=1", "1,gradients.last=0", "1,wide=0")),
    "refresh_every": (0.25, ("0", "1", "2", "3", "2,last=3")),
    "first_epoch": (0.2, ("zeros", "sync")),
    "smoothing": (0.2, ("0", "0.5", "features=0.95", "0.9,last=0", "gradients=0.5")),
    "smooth_correction": (0.15, (True,)), "error_feedback": (0.2, (True,)),
    "residual": (0.2, (True,)), "change_threshold": (0.1, (0.01, 0.5)),
    "byte_budget": (0.1, ("20KB", "300KB", "10MB")),
    "blocking": (0.2, (True, False)), "inductive": (0.3, (True,)), "norm": (0.3, ("yes", "no")),
    "linear_layers": (0.15, (1, 2)), "self_loops": (0.15, ("yes", "no")),
    "precompute": (0.3, ("yes", "no")), "hidden": (0.6, (1, 5, 16, 33)),
    "layers": (0.6, (1, 2, 3, 5)), "dropout": (0.5, (0.0, 0.3, 0.9)),
    "precision": (0.15, ("bf16",)), "backend": (0.5, ("reference",)), "dtype": (0.1, ("float64",)),
    "clip": (0.15, (0.1,)), "parallel": (0.2, ("partition", "single", "features")),
    "feature_blocks": (0.1, (0, 1, 3)), "sparse_ranks": (0.1, (1, 2)),
    "lr_schedule": (0.1, ("cosine",)),
    "weight_decay": (0.1, (0.01,)), "eval_every": (0.4, (1, 2)), "checkpoint_every": (0.3, (1, 2)),
}


# -- what is tried ---------------------------------------------------------------------------------

def make_graphs(folder: str) -> list[str]:
    """Small graphs of every kind."""
    import numpy as np

    from hpcgcn.graph.csr import csr_from_edges
    from hpcgcn.graph.data import Graph, SparseRows
    from hpcgcn.graph.store import write_graph
    paths = []
    for kind, n_nodes, n_edges in (("plain", 90, 300), ("sparse", 70, 150), ("directed", 80, 250),
                                   ("multilabel", 60, 200), ("dense", 40, 600), ("loose", 50, 12)):
        rng = np.random.default_rng(len(paths))
        ends = rng.integers(0, n_nodes, (2, n_edges))
        ends = ends[:, ends[0] != ends[1]]
        indptr, indices = csr_from_edges(n_nodes, *ends, undirected=kind != "directed")
        features = rng.standard_normal((n_nodes, 9)).astype(np.float32)
        if kind == "sparse":
            rows, columns = np.nonzero(rng.random((n_nodes, 9)) < 0.2)
            starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n_nodes))]).astype(
                np.int64)
            features = SparseRows(starts, columns.astype(np.int32), None, 9)
        labels = rng.integers(0, 3, n_nodes).astype(np.int32)
        if kind == "multilabel":
            labels = rng.integers(0, 2, (n_nodes, 3)).astype(np.uint8)
        split = rng.integers(1, 4, (1, n_nodes)).astype(np.uint8)
        paths.append(os.path.join(folder, f"{kind}.h5"))
        write_graph(paths[-1],
                    Graph(indptr, indices, features, labels, split, 3, kind == "directed"))
    return paths


def draw_run(rng: random.Random, graphs: list[str], number: int) -> dict:
    """One random combination."""
    from hpcgcn.config import FIELDS
    from hpcgcn.exchange.presets import PRESETS
    settings = {"model": rng.choice(MODELS), "method": rng.choice(list(PRESETS)),
                "epochs": rng.randint(1, 6), "lr": 0.01, "hidden": 8, "layers": 2, "seed": number,
                "partition_method": rng.choice(("metis", "random")), "eval_every": 0,
                "checkpoint_every": 0, "threads": 1, "quiet": True, "name": f"fuzz-{number}"}
    for name, (chance, values) in OVERRIDES.items():
        if name in FIELDS and rng.random() < chance:
            settings[name] = rng.choice(values)
    if settings.get("dtype") == "float64":
        settings["backend"] = "reference"
    codec = settings.get("codec", PRESETS[settings["method"]].settings.get("codec", "fp32"))
    if codec in RATES and rng.random() < 0.8:
        settings["rate"] = rng.choice(RATES[codec])
    if rng.random() < 0.85:              # the others show that refusals work
        settings = fixed(rng, settings)
    return {"number": number, "graph": rng.choice(graphs), "settings": settings,
            "resume": rng.random() < 0.2}


def fixed(rng: random.Random, settings: dict) -> dict:
    """Without the settings that do not go with the others: drops some until nothing is refused."""
    from hpcgcn.config import make_config
    from hpcgcn.errors import ConfigError
    settings = dict(settings)
    if settings["model"] in ("gcnii", "resgcn") or settings.get("linear_layers",
                                                                0) >= settings["layers"]:
        settings.pop("linear_layers", None)
    if settings.get("parallel") == "single":
        del settings["parallel"]
    while True:
        try:
            make_config(settings)
            return settings
        except ConfigError:
            given = [name for name in (*OVERRIDES, "rate") if name in settings]
            del settings[rng.choice([name for name in given
                                     if name not in ("hidden", "layers", "backend")])]


# -- on the ranks ----------------------------------------------------------------------------------

def one_run(comm, run: dict) -> str:
    """trained, refused, or what went wrong; the same on all ranks."""
    from hpcgcn.config import make_config
    from hpcgcn.errors import ConfigError, HpcgcnError
    from hpcgcn.train.run import train_model
    try:
        train_model(run["graph"], make_config(run["settings"]), comm)
        if run["resume"]:
            again = run["settings"] | {"epochs": run["settings"]["epochs"] + 2, "resume": "auto"}
            train_model(run["graph"], make_config(again), comm)
    except ConfigError as error:
        return f"refused: {error}"
    except HpcgcnError as error:
        return f"{type(error).__name__}: {error}"
    return "trained"


def small_pieces():
    """Cut messages into pieces of a few rows, and hand over few at a time."""
    from hpcgcn.mpi import progress
    progress.PIECE_BYTES, progress.LEAST_WINDOW, progress.MOST_WINDOW = 64, 128, 512


def work(listing: str, answers: str, pieces: str):
    """A job: all runs of a list, one line of answer each, so that the launcher sees where it is."""
    from mpi4py import MPI
    comm = MPI.COMM_WORLD
    if pieces == "small":
        small_pieces()
    with open(listing) as file:
        runs = json.load(file)
    with open(answers, "a") if comm.rank == 0 else open(os.devnull, "w") as file:
        for run in runs:
            try:
                outcome = one_run(comm, run)
            except BaseException:  # noqa: BLE001
                import traceback
                print(f"rank {comm.rank}: {traceback.format_exc()}", file=sys.stderr, flush=True)
                comm.Abort(1)
            said = set(comm.gather(outcome) or [outcome])
            outcome = outcome if len(said) == 1 else f"ranks differ: {said}"
            file.write(json.dumps({"number": run["number"], "outcome": outcome}) + "\n")
            file.flush()


# -- the launcher ----------------------------------------------------------------------------------

def mpi_command(n_ranks: int) -> list[str]:
    """How a job is started here."""
    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    found = beside if os.path.exists(beside) else shutil.which("mpiexec") or "mpiexec"
    launcher = shlex.split(os.environ.get("MPIEXEC", "")) or [found]
    version = subprocess.run([*launcher, "--version"], capture_output=True, text=True,
                             timeout=60).stdout
    return [*launcher, *(["--oversubscribe"] if "Open MPI" in version else []), "-n", str(n_ranks)]


def environment() -> dict[str, str]:
    env = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    if os.geteuid() == 0:
        env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return env


def end(process: subprocess.Popen):
    """End a job, politely at first: the launcher takes its ranks with it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                continue


def answered(path: str) -> dict[int, str]:
    """{number: outcome} so far; a line that is being written does not count yet."""
    if not os.path.exists(path):
        return {}
    with open(path) as file:
        return {line["number"]: line["outcome"]
                for line in map(json.loads, (t for t in file if t.endswith("\n")))}


def run_job(n_ranks: int, runs: list[dict], folder: str, patience: float,
            pieces: str) -> dict[int, str]:
    """Outcomes of the runs; a hang or a crash costs one run, and the others go on in another
    job."""
    outcomes, left, attempt = {}, list(runs), 0
    while left:
        attempt += 1
        stem = os.path.join(folder, f"job-{n_ranks}-{left[0]['number']}-{attempt}")
        listing, answers = f"{stem}.json", f"{stem}.answers"
        with open(listing, "w") as file:
            json.dump(left, file)
        program = [sys.executable, os.path.abspath(__file__), "--job", listing, answers, pieces]
        reason = _watch([*mpi_command(n_ranks), *program], answers, f"{stem}.stderr", folder,
                        patience)
        outcomes |= answered(answers)
        left = [run for run in left if run["number"] not in outcomes]
        if left:
            outcomes[left[0]["number"]] = reason
            left = left[1:]
    return outcomes


def _watch(command: list[str], answers: str, errors: str, folder: str, patience: float) -> str:
    """Wait for a job while answers keep coming; why it ended before its list did."""
    with open(errors, "w") as stderr:
        process = subprocess.Popen(command, cwd=folder, env=environment(),
                                   stdout=subprocess.DEVNULL, stderr=stderr,
                                   stdin=subprocess.DEVNULL, start_new_session=True)
        seen, last_news, hung = 0, time.monotonic(), False
        try:
            while process.poll() is None and not hung:
                time.sleep(0.2)
                if len(answered(answers)) > seen:
                    seen, last_news = len(answered(answers)), time.monotonic()
                hung = time.monotonic() - last_news > patience
        finally:
            end(process)
    with open(errors) as file:
        text = file.read()
    return (f"hang: no answer for {patience:g} s" if hung
            else f"crash: exit code {process.returncode}\n{text[-2500:]}")


def fuzz(n: int, seed: int, patience: float, folder: str,
         say=print) -> tuple[Counter, list[tuple[dict, str]]]:
    """(how many of each outcome, what went wrong)."""
    rng, graphs = random.Random(seed), make_graphs(folder)
    counts, problems, refusals = Counter(), [], Counter()
    runs = [draw_run(rng, graphs, number) for number in range(n)]
    size = min(RUNS_A_JOB, -(-n // 3))
    jobs = [(2 + k % 3, runs[at:at + size], ("small", "whole")[(k + k // 3) % 2])
            for k, at in enumerate(range(0, n, size))]
    for done, (n_ranks, batch, pieces) in enumerate(jobs, 1):
        began = time.monotonic()
        outcomes = run_job(n_ranks, batch, folder, patience, pieces)
        for run in batch:
            outcome = outcomes[run["number"]]
            kind = outcome.partition(":")[0]
            counts[kind] += 1
            if kind == "refused":
                refusals[outcome.partition(": ")[2][:60]] += 1
            elif kind != "trained":
                problems.append((run | {"ranks": n_ranks, "pieces": pieces}, outcome))
                say(f"PROBLEM on {n_ranks} ranks: {json.dumps(run)}\n{outcome}")
        seconds = time.monotonic() - began
        say(f"job {done}/{len(jobs)}: {len(batch)} runs on {n_ranks} ranks, {seconds:.0f} s; so "
            f"far {dict(counts)}")
    for reason, times in refusals.most_common():
        say(f"  refused {times:>3} x {reason}")
    return counts, problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, default=500, help="runs [500]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--patience", type=float, default=120,
                        help="seconds without an answer that count as a hang [120]")
    parser.add_argument("--job", nargs=3, metavar=("LISTING", "ANSWERS", "PIECES"),
                        help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        work(*args.job)
        return 0
    if not (args.n > 0 and math.isfinite(args.patience)):
        parser.error("-n and --patience are positive numbers")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        counts, problems = fuzz(args.n, args.seed, args.patience, folder)
    print(f"{args.n} runs in {time.monotonic() - began:.0f} s: {counts['trained']} trained, "
          f"{counts['refused']} refused with the reason, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
