"""Into how many blocks a transpose is cut, so that one is sent while the next is computed:
measured."""

from __future__ import annotations

import time

CHOICES = (1, 2, 4, 8, 16)
PASSES = 5                           # per choice; the first one warms up
USUAL_BLOCKS = 4                     # where nothing is worth trying
ABOUT_AS_FAST = 0.05


def fastest_blocks(engine, make_aggregations) -> int:
    """The number of blocks with the fastest epoch, each tried in turn on this very model.

    make_aggregations(n_blocks): the engine's, for the time of the trial. Collective: all ranks
    agree.
    """
    seconds = {}
    for n_blocks in CHOICES if engine.comm.size > 1 else (USUAL_BLOCKS,):
        engine.aggregations = make_aggregations(n_blocks)
        seconds[n_blocks] = min(_timed_pass(engine) for _ in range(PASSES))
        engine.aggregations.close()
    # The usual number unless another is clearly faster: so short passes differ by some per cent.
    fastest = min(seconds, key=seconds.__getitem__)
    as_fast = seconds[USUAL_BLOCKS] <= (1 + ABOUT_AS_FAST) * seconds[fastest]
    return USUAL_BLOCKS if as_fast else fastest


def _timed_pass(engine) -> float:
    """Seconds of a training pass on the slowest rank.

    It leaves gradients, which the next pass overwrites, and nothing else.
    """
    from mpi4py import MPI
    engine.comm.Barrier()
    began = time.perf_counter()
    engine.train_pass(0)
    engine.backend.synchronize()
    return engine.comm.allreduce(time.perf_counter() - began, MPI.MAX)
