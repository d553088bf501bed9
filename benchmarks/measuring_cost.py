"""What measuring the errors of exchanged rows costs: epochs with and without it, in turn.

    python benchmarks/measuring_cost.py      2 ranks, the network benchmark's graph; about 3 minutes

Writes benchmarks/results/measuring-cost.md. For a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]

METHODS = ("pipegcn", "sylvie-a")
MODEL = {"model": "sage", "layers": 3, "hidden": 128, "eval_every": 0, "checkpoint_every": 0,
         "threads": 1, "quiet": True, "output": "runs", "overwrite": True}
WARM_UP = 3                          # epochs that do not count


def job(source: str, output: str, epochs: int, rounds: int):
    """On every rank: runs with and without measuring in turn; rank 0 writes seconds per epoch."""
    from mpi4py import MPI

    from hpcgcn import Config, train_model
    comm, found = MPI.COMM_WORLD, {}
    for _ in range(rounds):
        for method in METHODS:
            for measure in ("none", "auto"):
                reports: list = []
                # A bound would be measured for in any case.
                train_model(source, Config(**MODEL, method=method, measure_error=measure,
                                           stale_error="inf", name=f"{method}-{measure}",
                                           epochs=epochs + WARM_UP),
                            comm, callback=reports.append)
                seconds = sorted(report.seconds for report in reports[WARM_UP:])
                found.setdefault(f"{method} {measure}", []).append(seconds[len(seconds) // 2])
    if comm.rank == 0:
        pathlib.Path(output).write_text(json.dumps(found))


def main():
    """Start the job, write the table."""
    if sys.argv[1:2] == ["--job"]:
        return job(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--nodes", type=int, default=40_000)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    from common import markdown_table, milliseconds, spread, write_results
    from launch import command, rank_environment
    from oversubscribed import patient_environment
    with tempfile.TemporaryDirectory() as folder:
        graph, parts, answer = (os.path.join(folder, name) for name in ("g.h5", "p.h5", "a.json"))
        for words in (["generate", "sbm", "-o", graph, "--nodes", args.nodes, "--degree", 50,
                       "--features", 128, "--classes", 16, "--homophily", 0.7,
                       "--feature-noise", 2],
                      ["partition", graph, "-n", args.ranks, "--method", "random", "-o", parts]):
            subprocess.run([sys.executable, "-m", "hpcgcn", *map(str, words)], check=True,
                           stdout=subprocess.DEVNULL)
        environment = rank_environment(patient_environment(args.ranks))
        subprocess.run(command(args.ranks, [sys.executable, __file__, "--job", parts, answer,
                                            str(args.epochs), str(args.rounds)]),
                       check=True, cwd=folder, env=environment)
        with open(answer) as file:
            found = {name: spread(seconds) for name, seconds in json.load(file).items()}
    rows = []
    for method in METHODS:
        plain, measured = found[f"{method} none"], found[f"{method} auto"]
        rows.append([method, milliseconds(plain), milliseconds(measured),
                     f"{100 * (measured['median'] / plain['median'] - 1):+.1f} %"])
    header = ["method", "ms/epoch without", "with", "difference of medians"]
    page = write_results("measuring-cost", "The cost of measuring errors of exchanged rows",
                         " ".join(["python benchmarks/measuring_cost.py", *sys.argv[1:]]),
                         [f"{args.nodes:,} nodes of degree 50 cut at random, 3-layer GraphSAGE 128 "
                          f"wide, {args.ranks} ranks; median epoch of each run, median and spread "
                          f"over {args.rounds} runs.", markdown_table(header, rows)],
                         {"seconds": found})
    print(f"written to {page}")


if __name__ == "__main__":
    main()
