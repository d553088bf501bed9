"""Our side of epoch.py: ranks that train one epoch when asked, and sleep in between.

Questions, one JSON a line on rank 0's input: {"build": settings}, {"run": VARIANT} (answer: seconds
of one epoch) or {"quit": true}.
"""

import json
import sys
import time

from mpi4py import MPI

from hpcgcn.backend import make_backend
from hpcgcn.config import make_config
from hpcgcn.graph.store import read_part
from hpcgcn.mpi.runtime import Runtime
from hpcgcn.train.trainer import Trainer

VARIANTS = {"hpcgcn": {}, "hpcgcn bf16": {"precision": "bf16"}}


def questions(comm):
    """Every rank gets every line; ranks other than 0 sleep while they wait, so that they do not
    disturb the peers."""
    if comm.rank == 0:
        for line in sys.stdin:
            for rank in range(1, comm.size):
                comm.send(line, rank)
            yield json.loads(line)
        return
    while True:
        while not comm.iprobe(source=0):
            time.sleep(0.002)
        yield json.loads(comm.recv(source=0))


def build(comm, path: str, question: dict) -> dict:
    part = read_part(path, comm.rank, comm.size)
    trainers = {}
    for name, settings in VARIANTS.items():
        backend, _ = make_backend("auto", threads=1)
        trainers[name] = Trainer(Runtime(comm), backend, part, make_config(question | settings))
    return trainers


def main(path: str):
    comm, trainers = MPI.COMM_WORLD, {}

    def answer(value):
        if comm.rank == 0:
            print(json.dumps(value), flush=True)

    answer({"variants": list(VARIANTS)})
    for question in questions(comm):
        if "quit" in question:
            answer("bye")
            return
        if "build" in question:
            trainers = build(comm, path, question["build"])
            answer(list(trainers))
            continue
        comm.Barrier()
        began = time.perf_counter()
        trainers[question["run"]].run_epoch()
        answer(comm.allreduce(time.perf_counter() - began, MPI.MAX))


if __name__ == "__main__":
    main(sys.argv[1])
