"""Train with every preset on two backends and compare the losses; run on several ranks by
test_train.py.

    mpirun -n 2 python run_presets.py GRAPH.h5 staged|cuda-aware|nccl [[MODEL:]PRESET ...]
"""

from __future__ import annotations

import sys

from mpi4py import MPI

from hpcgcn.backend import make_backend
from hpcgcn.config import make_config
from hpcgcn.errors import ConfigError
from hpcgcn.exchange.presets import PRESETS
from hpcgcn.mpi.runtime import Runtime
from hpcgcn.parallel import make_strategy
from hpcgcn.train.trainer import Trainer

EPOCHS = 5
# Where another model takes other ways, its name is before the method's.
METHODS = [*PRESETS, "gat:sylvie-a", "gat:gnnpipe"]


def losses(comm, path: str, method: str, backend, **how) -> list[float]:
    """The loss of every epoch."""
    model, _, preset = method.rpartition(":")
    how |= {"model": model, "heads": 2, "attention_dropout": 0.3} if model else {}
    config = make_config({"method": preset, "layers": 3, "hidden": 16, "epochs": EPOCHS,
                          "backend": backend.name, "precompute": "no", "seed": 3, **how})
    with Runtime(comm) as runtime:
        strategy = make_strategy(runtime, config)
        trainer = Trainer(runtime, backend, strategy.load(path), config, strategy=strategy)
        return [trainer.run_epoch()[0] for _ in range(EPOCHS)]


def main() -> int:
    path, mode, *chosen = sys.argv[1:]
    comm = MPI.COMM_WORLD
    how = {"transport": "nccl"} if mode == "nccl" else {"mpi": mode}
    cuda = make_backend("cuda", local_rank=comm.rank, **how)[0]
    cuda.check_ranks(comm, comm.rank)
    native = make_backend("auto")[0]
    wrong = 0
    for method in chosen or METHODS:
        try:
            got = losses(comm, path, method, cuda, **how)
        except ConfigError as error:
            if comm.rank == 0:
                print(f"{method:<14} {mode:<10} refused: {error}")
            continue
        expected = losses(comm, path, method, native)
        worst = max(abs(a - b) for a, b in zip(expected, got))
        wrong += not worst <= 1e-5
        if comm.rank == 0:
            print(f"{method:<12} {mode:<10} largest difference {worst:.1e}  losses "
                  f"{expected[0]:.6f} ... {expected[-1]:.6f}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
