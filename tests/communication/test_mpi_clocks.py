"""Clocks that differ, and drift apart, are brought together."""

import time

import numpy as np
import pytest

from hpcgcn.timeline.clocks import measure_offset, to_rank_0

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(60)]


def clock_of(rank: int):
    """A clock that is off by 100 s times the rank, and goes wrong by 1 % of that."""
    return lambda: time.perf_counter() * (1 + 0.01 * rank) + 100.0 * rank


def test_times_of_all_ranks_become_those_of_rank_0(comm):
    clock = clock_of(comm.rank)
    start = measure_offset(comm, clock)
    comm.Barrier()
    time.sleep(0.2)
    moment, true = clock(), time.perf_counter()
    comm.Barrier()
    end = measure_offset(comm, clock)
    corrected = to_rank_0(np.array([moment]), start, end)[0]
    # A process that is not running while it is asked answers late: that is in the error, too.
    assert abs(corrected - true) <= 1.1 * max(start.error, end.error) + 1e-4


def test_processes_that_share_a_clock_keep_their_times(comm):
    """On one machine, as here; lab hosts share it, too."""
    offset = measure_offset(comm)
    assert offset.seconds == 0.0
