"""What a trace costs: epochs of one run, traced and not traced in turn.

    python benchmarks/trace_cost.py      2 ranks, the network benchmark's graph; about 2 minutes

Writes benchmarks/results/trace-cost.md. Recording is switched on and off from epoch to epoch within
a run, so that both have the same messages, memory and neighbours on the machine.
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

METHODS = ("overlap", "pipegcn", "gnnpipe")
MODEL = {"model": "gcnii", "layers": 4, "hidden": 128, "eval_every": 0, "checkpoint_every": 0,
         "threads": 1, "quiet": True, "output": "runs", "overwrite": True}
WARM_UP = 4                          # epochs that do not count


class EverySecond:
    """A window of every second epoch."""

    def __contains__(self, epoch: int) -> bool:
        return epoch % 2 == 0


def job(source: str, output: str, epochs: int):
    """On every rank: rank 0 writes the seconds of epochs with and without recording."""
    from mpi4py import MPI

    from hpcgcn import Config, train_model
    from hpcgcn.timeline.read import read_timeline
    from hpcgcn.trace.recorder import Trace
    plain = Trace.__init__

    def alternating(self, *args, **kwargs):
        plain(self, *args, **kwargs)
        self.window = EverySecond()
    Trace.__init__ = alternating
    comm, measured = MPI.COMM_WORLD, {}
    for method in METHODS:
        reports: list = []
        result = train_model(source, Config(**MODEL, method=method, name=method, trace="last:4",
                                            epochs=epochs + WARM_UP),
                             comm, callback=reports.append)
        if comm.rank == 0:
            kept = reports[WARM_UP:]
            timeline = read_timeline(result.folder)
            n_epochs = len(timeline.ranks[0].epochs())
            measured[method] = {
                "with": [r.seconds for r in kept if r.epoch % 2 == 0],
                "without": [r.seconds for r in kept if r.epoch % 2],
                "spans": sum(len(rank.spans) for rank in timeline.ranks)
                / len(timeline.ranks) / n_epochs}
    if comm.rank == 0:
        pathlib.Path(output).write_text(json.dumps(measured))


def main():
    """Start the job, write the table."""
    if sys.argv[1:2] == ["--job"]:
        return job(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=120)
    args = parser.parse_args()
    from common import markdown_table, milliseconds, spread, write_results
    from launch import command, rank_environment
    from oversubscribed import patient_environment
    with tempfile.TemporaryDirectory() as folder:
        graph, parts, answer = (os.path.join(folder, name) for name in ("g.h5", "p.h5", "a.json"))
        for words in (["generate", "sbm", "-o", graph, "--nodes", args.nodes, "--degree", 50,
                       "--features", 128, "--classes", 16],
                      ["partition", graph, "-n", args.ranks, "--method", "random", "-o", parts]):
            subprocess.run([sys.executable, "-m", "hpcgcn", *map(str, words)], check=True,
                           stdout=subprocess.DEVNULL)
        subprocess.run(command(args.ranks, [sys.executable, __file__, "--job", parts, answer,
                                            str(args.epochs)]), check=True, cwd=folder,
                       env=rank_environment(patient_environment(args.ranks)), timeout=900)
        with open(answer) as file:
            measured = json.load(file)
    rows = []
    for method in METHODS:
        of = measured[method]
        plain, traced = spread(of["without"]), spread(of["with"])
        rows.append([method, milliseconds(plain), milliseconds(traced),
                     f"{100 * (traced['median'] / plain['median'] - 1):+.1f} %",
                     f"{of['spans']:.0f}"])
    header = ["method", "ms/epoch without", "with", "difference of medians",
              "activities per epoch and rank"]
    page = write_results("trace-cost", "The cost of a trace",
                         " ".join(["python benchmarks/trace_cost.py", *sys.argv[1:]]),
                         [f"{args.nodes:,} nodes of degree 50 cut at random, 4-layer GCNII 128 "
                          f"wide, {args.ranks} ranks; {args.epochs} epochs of one run, every "
                          "second of them recorded; median and spread over epochs.",
                          markdown_table(header, rows)], {"measured": measured})
    print(f"written to {page}")


if __name__ == "__main__":
    main()
