"""Our side of epoch.py: ranks that train one epoch when asked, and sleep in between.

Questions, one JSON a line on rank 0's input: {"build": settings}, {"run": VARIANT} (answer: seconds
of one epoch) or {"quit": true}. A second word after the file is the backend.
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


def build(comm, path: str, backend_name: str, question: dict) -> dict:
    part = read_part(path, comm.rank, comm.size)
    trainers = {}
    backend, _ = make_backend(backend_name, threads=1, local_rank=comm.rank)
    backend.check_ranks(comm, comm.rank)
    for name, settings in VARIANTS.items():
        trainers[name] = Trainer(Runtime(comm), backend, part, make_config(question | settings))
    return trainers


def main(path: str, backend_name: str = "auto"):
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
            trainers = build(comm, path, backend_name, question["build"])
            answer(list(trainers))
            continue
        comm.Barrier()
        began = time.perf_counter()
        trainer = trainers[question["run"]]
        trainer.run_epoch()
        trainer.backend.synchronize()                # a device may still be at the last step
        answer(comm.allreduce(time.perf_counter() - began, MPI.MAX))


if __name__ == "__main__":
    main(*sys.argv[1:])
