"""Train with every preset on two backends, and every model that works in its own way, and compare
the losses; run on several ranks by test_train.py.

    mpirun -n 2 python run_presets.py GRAPH.h5 staged|cuda-aware|nccl [PRESET or MODEL ...]
"""

from __future__ import annotations

import sys
import traceback

from mpi4py import MPI

from hpcgcn.backend import make_backend
from hpcgcn.config import make_config
from hpcgcn.errors import ConfigError
from hpcgcn.exchange.presets import PRESETS
from hpcgcn.mpi.runtime import Runtime
from hpcgcn.parallel import make_strategy
from hpcgcn.train.trainer import Trainer

EPOCHS = 5
# By preset, and by model: those whose hops or steps are not those of gcn.
RUNS = {**{method: {"method": method} for method in PRESETS},
        "gat": {"model": "gat", "heads": 4, "attention_dropout": 0.3},
        "gat-quantised": {"model": "gat", "heads": 2, "attention_dropout": 0.3,
                          "method": "sylvie-a"},
        "gat-gnnpipe": {"model": "gat", "heads": 2, "attention_dropout": 0.3,
                        "method": "gnnpipe"},
        "gat-stale": {"model": "gat", "heads": 4, "method": "pipegcn-paper"},
        "gin": {"model": "gin"}, "appnp": {"model": "appnp"}, "gcnii": {"model": "gcnii"},
        "batch-norm": {"model": "sage", "norm": "batch"},
        "batch-norm-gin": {"model": "gin", "norm": "batch", "method": "sylvie-s"}}


def losses(comm, path: str, settings: dict, backend, **how) -> list[float]:
    """The loss of every epoch."""
    config = make_config({"layers": 3, "hidden": 16, "epochs": EPOCHS,
                          "backend": backend.name, "precompute": "no", "seed": 3, **settings,
                          **how})
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
    for method in chosen or RUNS:
        try:
            got = losses(comm, path, RUNS[method], cuda, **how)
        except ConfigError as error:
            if comm.rank == 0:
                print(f"{method:<14} {mode:<10} refused: {error}")
            continue
        expected = losses(comm, path, RUNS[method], native)
        worst = max(abs(a - b) for a, b in zip(expected, got))
        wrong += not worst <= 1e-5 * max(1.0, *map(abs, expected))
        if comm.rank == 0:
            print(f"{method:<12} {mode:<10} largest difference {worst:.1e}  losses "
                  f"{expected[0]:.6f} ... {expected[-1]:.6f}")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception:  # noqa: BLE001 - the other ranks would wait for ever
        traceback.print_exc()
        MPI.COMM_WORLD.Abort(1)
