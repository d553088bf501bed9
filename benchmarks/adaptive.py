"""Bits by row against uniform bits of the same bytes: what the sums of received rows lose.

    python benchmarks/adaptive.py      three public graphs, 4 ranks, METIS and random

A model is trained for some epochs without loss; then the rows of its last epoch are sent with both
codecs and multiplied as the receiver does. Nothing is timed: the machine may be busy. Needs
HPCGCN_TEST_DATA. What the codecs cost in accuracy: benchmarks/staleness.py real --methods vanilla
--extra "2bit:codec=2bit" "adaptive 2:codec=adaptive;rate=2" ...
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

GRAPHS = ("amazon-photo", "pubmed", "squirrel")
SETTINGS = {"model": "sage", "layers": 3, "hidden": 64, "dropout": 0.5, "lr": 0.01, "threads": 1,
            "method": "vanilla"}
RATES, DRAWS = (2, 4), 5


def job(source: str, output: str, epochs: int):
    """On every rank: train, then send the rows of the last epoch with each codec."""
    from mpi4py import MPI

    from hpcgcn.backend import make_backend
    from hpcgcn.config import make_config
    from hpcgcn.mpi.runtime import Runtime
    from hpcgcn.parallel.partition.loading import load_partition
    from hpcgcn.train.trainer import Trainer
    comm = MPI.COMM_WORLD
    config = make_config(SETTINGS)
    with Runtime(comm) as runtime:
        backend, _ = make_backend("native", threads=1)
        trainer = Trainer(runtime, backend, load_partition(comm, source, config), config)
        aggregations, sent = trainer.engine.aggregations, {}
        for hop, direction, exchange in aggregations.exchanges:
            remember(exchange, sent, (hop, direction))
        for _ in range(epochs):
            trainer.run_epoch()
        found = {}
        for forward in aggregations.forward:
            number = next(hop for hop, direction, exchange in aggregations.exchanges
                          if exchange is forward.exchange)
            found[f"features of hop {number}"] = losses(runtime, backend, forward.halo, "forward",
                                                        sent[number, "forward"], number)
        for backward in filter(None, aggregations.backward):
            number = next(hop for hop, direction, exchange in aggregations.exchanges
                          if exchange is backward.exchange)
            found[f"gradients of hop {number}"] = losses(runtime, backend, backward.halo,
                                                         "backward", sent[number, "backward"],
                                                         number)
        trainer.close()
    if comm.rank == 0:
        pathlib.Path(output).write_text(json.dumps(found))


def remember(exchange, sent: dict, which: tuple):
    """Keep what an exchange is given to send, of the last epoch."""
    start = exchange.start

    def remembering(x, epoch):
        sent[which] = x.copy()
        start(x, epoch)
    exchange.start = remembering


def losses(runtime, backend, halo, direction: str, x, number: int) -> dict:
    """{codec and rate: (bytes of all ranks, relative error of the sums)}."""
    import numpy as np

    from hpcgcn.exchange.codecs import make_codec
    from hpcgcn.exchange.exchange import Exchange
    from hpcgcn.exchange.schedules import Schedule
    from hpcgcn.exchange.types import Policy
    comm, width = runtime.comm, x.shape[1]
    n_received = halo.plan.n_received if direction == "forward" else halo.plan.n_sent
    exact, found = None, {}
    for name, rate in [("fp32", 1), *((name, rate) for rate in RATES
                                      for name in ("bits", "adaptive"))]:
        codec = make_codec(name)
        exchange = Exchange(runtime, backend, halo.routes(direction, codec.weighs_rows), n_received,
                            width, Policy(codec, Schedule(rate)), seed=7, layer=number)
        lost = 0.0
        for epoch in range(1 if name == "fp32" else DRAWS):
            exchange.start(x, epoch)
            sums = backend.zeros((halo.matrices.n_owned, width))
            if direction == "forward":
                backend.spmm(halo.outer, exchange.finish(), sums)
            else:
                halo.add_gradients(exchange.finish(), sums, backend.zeros((halo.n_summed, width)))
            exact = sums.astype(np.float64) if name == "fp32" else exact
            lost += float(((sums - exact) ** 2).sum()) / DRAWS
        size = comm.allreduce(exchange.statistics.bytes_sent) // (1 if name == "fp32" else DRAWS)
        total = comm.allreduce(float((exact ** 2).sum()))
        found[f"{name} {rate}"] = size, (comm.allreduce(lost) / max(total, 1e-300)) ** 0.5
        exchange.close()
    return found


def main():
    """Train and measure on all graphs, write the table."""
    if sys.argv[1:2] == ["--job"]:
        return job(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--work", type=pathlib.Path,
                        default=pathlib.Path(tempfile.gettempdir()) / "hpcgcn-staleness")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    from common import markdown_table, write_results
    from launch import command, rank_environment
    from oversubscribed import patient_environment
    from staleness import graph_file, partition_file
    data, rows = {}, []
    for name in GRAPHS:
        for cut in ("metis", "random"):
            parts = partition_file(args, graph_file(args, name), args.ranks, cut)
            answer = args.work / f"adaptive-{os.getpid()}.json"
            subprocess.run(command(args.ranks, [sys.executable, __file__, "--job", parts, answer,
                                                str(args.epochs)]),
                           check=True, cwd=args.work,
                           env=rank_environment(patient_environment(args.ranks)))
            data[f"{name} {cut}"] = found = json.loads(answer.read_text())
            answer.unlink()
            for what, lost in found.items():
                for rate in RATES:
                    (size, uniform), (same, adaptive) = (lost[f"{codec} {rate}"]
                                                         for codec in ("bits", "adaptive"))
                    rows.append([name, cut, what, str(rate), f"{size:,}", f"{same:,}",
                                 f"{uniform:.4f}", f"{adaptive:.4f}", f"{uniform / adaptive:.2f}"])
    header = ["graph", "cut", "rows", "bits", "bytes uniform", "adaptive", "error uniform",
              "adaptive", "ratio"]
    page = write_results("adaptive", "Bits by row against uniform bits",
                         " ".join(["python benchmarks/adaptive.py", *sys.argv[1:]]),
                         [f"Relative error of the receivers' sums, {args.ranks} ranks, after "
                          f"{args.epochs} epochs of 3-layer GraphSAGE, 64 wide; root mean square "
                          f"over {DRAWS} draws. Bytes of one message round of all ranks.",
                          markdown_table(header, rows)], {"found": data})
    print(f"written to {page}")


if __name__ == "__main__":
    main()
