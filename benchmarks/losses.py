"""Losses of many short runs to the last bit: shows that a change of the code changes no result.

    python benchmarks/losses.py record before.json       two to four minutes on two cores
    python benchmarks/losses.py compare before.json after.json

`record` trains with the hpcgcn that Python finds (PYTHONPATH chooses another), through the command
line alone. `compare` lists the runs whose losses, scores or bytes sent differ, with exit code 1.
Both records belong to one machine: kernels for another processor sum in another order.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time

import numpy as np

COMMON = ("--epochs 7 --hidden 16 --seed 3 --threads 1 --eval-every 3 --checkpoint-every 0 "
          "--stall-timeout 100 --quiet")
STOP_AFTER = 4                       # epochs of a run that is then resumed
TIMEOUT = 120                        # seconds of a command
MEMORY_GROWTH = 1.1                  # peak memory that grows by more is listed

# Each line is a run: ranks, graph, flags. Nothing may depend on a measurement at start: transposes
# get their blocks, and a pipeline has as many stages as its model can be cut into. Where it has
# fewer, it is ResGCN with fp32 messages, whose losses and bytes are the same for every division.
RUNS = """
1 sbm --model gcn
1 sbm --model sage --precision bf16 --hidden 33
1 rmat --model gcnii --layers 5
1 rmat --model resgcn --layers 4 --self-loops no
1 sbm --model sage --backend reference --dtype float64
1 sparse --model gcn --norm yes
1 sparse --model gcnii --backend reference --alpha 0.3 --lambda 1
1 multilabel --model sage --linear-layers 1 --norm no
1 directed --model gcn --precompute no --hidden 33
1 sbm --model sage --inductive
1 sparse --model resgcn --inductive --backend reference

2 sbm --model gcn --method vanilla --partition-objective cut
3 rmat --model sage --method overlap
4 directed --model resgcn --method overlap --partition-method random
4 sbm-parts --model gcn
2 sparse --model gcnii --backend reference --dtype float64
2 sbm --model sage --precision bf16
4 multilabel --model sage --linear-layers 2 --norm no --layers 4
3 sparse --model gcn --inductive
2 sparse --model sage --precompute yes --lr-schedule cosine --warmup 2 --clip 0.5
3 sbm --model gcnii --weight-decay 0.01 --weight-decay-conv 0.001

3 rmat --model sage --method pipegcn
2 directed --model gcn --method pipegcn-f
4 sbm --model sage --method pipegcn-g --smooth-correction
2 rmat --model gcnii --method pipegcn-gf --first-epoch sync --refresh-every 3
3 multilabel --model gcn --method pipegcn --inductive --resume must
2 sbm --model resgcn --staleness-features 1 --smooth-features 0.5 --backend reference

3 sbm --model gcn --method sylvie-s
2 rmat --model sage --method sylvie-a --refresh-every 3
2 directed --model gcn --method sylvie-a --backend reference
4 sbm --model gcn --method varco
3 sbm --model sage --method bns
2 rmat --model gcn --codec nodes --rate step:2@0,20@3 --inductive
2 sbm --model sage --codec bits --rate 4 --error-feedback --resume must
3 multilabel --model gcn --method pipegcn --codec 2bit --residual --rounding nearest
3 sparse --model gcn --codec subset --rate plateau:16:1:1 --rescale
2 sbm --model resgcn --codec bits --rate cosine:16:1 --code-parameters fp32 --no-compress-last
2 rmat --model sage --codec bits --byte-budget 60KB
3 sbm --model gcnii --codec fp16
4 rmat --model sage --codec bf16 --precision bf16

2 sbm --model sage --method mixgcn --feature-blocks 4
3 directed --model gcnii --method mixgcn --feature-blocks 1 --blocking
4 sparse --model gcn --method mixgcn-moa --feature-blocks 4
3 rmat --method mixgcn --feature-blocks 4 --sparse-ranks 1 --codec 8bit --sparse-backend reference
2 multilabel --model gcn --method pipegcn --parallel features --feature-blocks 2 --inductive

3 sbm --model gcn --method gnnpipe --history-hold 2 --codec bf16
3 rmat --model gcnii --layers 2 --method gnnpipe --history-gradients stale --history-hold 3
2 directed --model resgcn --layers 4 --method gnnpipe --history none
2 multilabel --model sage --layers 2 --method gnnpipe --inductive --no-shuffle-chunks
1 sbm --model gcnii --layers 5 --method gnnpipe --chunks 3 --no-recompute
4 sbm --model resgcn --layers 4 --method gnnpipe --ways 2 --resume must
4 sparse --model gcnii --layers 1 --method gnnpipe-hybrid --staleness-features 1 --codec 4bit
2 sbm --model sage --method gnnpipe --ways 2 --history none --backend reference

1 sbm --model gcnii --backend cuda
2 rmat --model sage --backend cuda --method sylvie-a --refresh-every 3
2 sparse --model gcn --backend cuda --method pipegcn-gf
2 directed --model resgcn --layers 1 --backend cuda --method gnnpipe
2 multilabel --model sage --backend cuda --method mixgcn --feature-blocks 4
2 sbm --model gcn --backend cuda --mpi cuda-aware --codec 4bit --error-feedback
"""


# -- graphs ---------------------------------------------------------------------------------------

def make_graphs(folder: str):
    """One small graph of every kind, in files named after their kind."""
    hpcgcn(folder, "generate sbm --nodes 600 --degree 12 --features 24 --classes 5 -o sbm.h5")
    hpcgcn(folder, "generate rmat --nodes 500 --degree 8 --features 17 --fp16 -o rmat.h5")
    hpcgcn(folder, "partition sbm.h5 -n 4 --balance edges --reorder rcm -o sbm-parts.h5")
    for seed, kind in enumerate(("sparse", "directed", "multilabel")):
        np.savez(os.path.join(folder, f"{kind}.npz"), **random_graph(kind, seed))
        hpcgcn(folder, f"import npz {kind}.npz -o {kind}.h5")


def random_graph(kind: str, seed: int, n_nodes: int = 400, n_classes: int = 4) -> dict:
    """Arrays of a graph with random edges, features around a mean per class, and a random split."""
    rng = np.random.default_rng(seed)
    matrix = rng.random((n_nodes, n_nodes)) < 0.01
    np.fill_diagonal(matrix, False)
    if kind != "directed":
        matrix |= matrix.T
    y = rng.integers(0, n_classes, n_nodes)
    x = rng.standard_normal((n_nodes, 9)).astype(np.float32)
    x[np.arange(n_nodes), y] += 2
    if kind == "multilabel":
        y = (x[:, :n_classes] > 0.5).astype(np.uint8)
    split = rng.integers(0, 3, n_nodes)
    masks = {name: split == code for code, name in enumerate(("train", "val", "test"))}
    features = sparse_arrays(rng, n_nodes, 60) if kind == "sparse" else {"x": x}
    return {"indptr": row_starts(matrix), "indices": np.nonzero(matrix)[1], "y": y,
            **features, **masks}


def sparse_arrays(rng: np.random.Generator, n_nodes: int, n_columns: int) -> dict:
    """Features of which one in ten is not zero."""
    filled = rng.random((n_nodes, n_columns)) < 0.1
    return {"x_indptr": row_starts(filled), "x_indices": np.nonzero(filled)[1],
            "x_data": rng.random(filled.sum(), np.float32), "x_shape": np.array(filled.shape)}


def row_starts(filled: np.ndarray) -> np.ndarray:
    """The index at which each row of a CSR matrix begins."""
    return np.concatenate([[0], np.cumsum(filled.sum(axis=1))])


# -- runs -----------------------------------------------------------------------------------------

def hpcgcn(folder: str, flags: str, launcher: tuple[str, ...] = ()):
    """Run a command of hpcgcn in a folder."""
    command = [*launcher, sys.executable, "-m", "hpcgcn", *shlex.split(flags)]
    done = subprocess.run(command, cwd=folder, env=environment(flags), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=TIMEOUT)
    if done.returncode:
        raise RuntimeError(f"hpcgcn {flags}: exit code {done.returncode}\n{done.stderr}")


def environment(flags: str) -> dict[str, str]:
    """Ranks may outnumber cores, BLAS has one thread, and CUDA kernels are emulated on the CPU."""
    found = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
                          "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    if os.geteuid() == 0:
        found |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if "--backend cuda" in flags:
        found |= {"HPCGCN_CUDA_STAND_IN": "1", "HPCGCN_CUDA_STAND_IN_MPI": "aware"}
    return found


def train(folder: str, run: str, name: str) -> dict:
    """Do one run, in two parts where it is to be resumed, and read what it left."""
    n_ranks, graph, flags = run.split(maxsplit=2)
    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    launcher = (*shlex.split(os.environ.get("MPIEXEC", beside)), "-n", n_ranks)
    command = f"train {graph}.h5 --name {name} {COMMON} {flags}"
    found = {"command": f"mpiexec -n {n_ranks} hpcgcn {command}"}
    try:
        if "--resume" in flags:
            hpcgcn(folder, f"{command} --resume never --epochs {STOP_AFTER}", launcher)
        hpcgcn(folder, command, launcher)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return found | {"error": str(error)}
    return found | results(os.path.join(folder, "runs", name))


def results(folder: str) -> dict:
    """Losses of all epochs and scores as hexadecimal floats; bytes sent and peak memory."""
    with open(os.path.join(folder, "metrics.csv"), newline="") as file:
        losses = [float(row["loss"]).hex() for row in csv.DictReader(file)]
    with open(os.path.join(folder, "summary.json")) as file:
        summary = json.load(file)
    return {"losses": losses, "scores": {k: v.hex() for k, v in sorted(summary["final"].items())},
            "bytes_sent": summary["bytes_sent"], "isa": summary.get("isa"),
            "peak_memory_bytes": summary["peak_memory_bytes"]["all_ranks"]}


def record(path: str, only: str) -> int:
    """Do all runs whose line contains `only`, and write what they gave."""
    runs = [line for line in RUNS.splitlines() if line and only in line]
    found, began = {}, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        make_graphs(folder)
        for number, run in enumerate(runs, 1):
            found[run] = train(folder, run, f"run-{number}")
            print(f"{number}/{len(runs)} {run}: {found[run].get('error', 'done')}", flush=True)
    code = os.path.dirname(importlib.util.find_spec("hpcgcn").origin)
    isa = next((result["isa"] for result in found.values() if result.get("isa")), None)
    with open(path, "w") as file:
        json.dump({"code": code, "isa": isa, "runs": found}, file, indent=1)
    failed = sum("error" in result for result in found.values())
    print(f"{path}: {len(runs)} runs of {code}, {failed} failed, {time.monotonic() - began:.0f} s")
    return 1 if failed or not runs else 0


# -- comparison -----------------------------------------------------------------------------------

def difference(before: dict | None, after: dict | None) -> str:
    """What differs first between two results of a run; "" if nothing does."""
    for result, when, other in ((before, "before", "after"), (after, "after", "before")):
        if result is None:
            return f"only {other}"
        if "error" in result:
            return f"failed {when}: {result['error']}"
    before_numbers, after_numbers = numbers(before), numbers(after)
    for name in before_numbers | after_numbers:
        old, new = before_numbers.get(name), after_numbers.get(name)
        if None in (old, new):
            return f"{name}: only {'after' if old is None else 'before'}"
        if old != new:
            change = abs(new - old) / (abs(old) or 1)
            return f"{name}: {old!r} before, {new!r} after, relative difference {change:.1e}"
    return ""


def numbers(result: dict) -> dict[str, float]:
    """All that has to be equal, by name; losses come first, in the order of epochs."""
    losses = {f"loss of epoch {epoch}": loss for epoch, loss in enumerate(result["losses"])}
    scores = {f"{name} score": score for name, score in result["scores"].items()}
    found = {name: float.fromhex(text) for name, text in (losses | scores).items()}
    return found | {"bytes sent": result["bytes_sent"]}


def compare(before_path: str, after_path: str) -> int:
    """Print how many runs are bit-identical, what differs in the others, and the peak memory."""
    records = []
    for path, when in ((before_path, "before"), (after_path, "after")):
        with open(path) as file:
            records.append(json.load(file))
        print(f"{when}: {records[-1]['code']}, kernels {records[-1]['isa']}")
    before, after = (record["runs"] for record in records)
    differences = {run: difference(before.get(run), after.get(run)) for run in before | after}
    differing = {run: text for run, text in differences.items() if text}
    print(f"{len(differences)} runs: {len(differences) - len(differing)} bit-identical, "
          f"{len(differing)} differ")
    for run, text in differing.items():
        print(f"  {run}\n    {text}")
    compare_memory(before, after)
    return 1 if differing or not differences else 0


def compare_memory(before: dict, after: dict):
    """Print the sum of all peaks, and the runs whose peak has grown; no part of the exit code."""
    peaks = {run: tuple(record[run]["peak_memory_bytes"] / 2 ** 20 for record in (before, after))
             for run in before if "losses" in before[run] and "losses" in after.get(run, {})}
    old, new = (sum(pair[k] for pair in peaks.values()) for k in (0, 1))
    print(f"sum of the peak memory of all runs: {old:.0f} MiB before, {new:.0f} MiB after")
    for run, (old, new) in peaks.items():
        if new > MEMORY_GROWTH * old:
            print(f"  {run}: {old:.0f} MiB before, {new:.0f} MiB after")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    recorder = commands.add_parser("record", help="train, and write what every run gave")
    recorder.add_argument("file", metavar="FILE.json")
    recorder.add_argument("--only", default="", metavar="TEXT", help="runs that contain this text")
    comparer = commands.add_parser("compare", help="two records of the same runs")
    comparer.add_argument("before", metavar="BEFORE.json")
    comparer.add_argument("after", metavar="AFTER.json")
    args = parser.parse_args()
    if args.command == "record":
        return record(args.file, args.only)
    return compare(args.before, args.after)


if __name__ == "__main__":
    sys.exit(main())
