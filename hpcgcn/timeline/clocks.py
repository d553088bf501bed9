"""Clocks of several hosts brought together: what each rank adds to its times to have rank 0's.

Rank 0 asks every other rank for its time, several times; the answer with the shortest way there and
back is off by at most half of that. Processes of one host share a clock, so there is nothing to add
where the measured difference is less than it can be wrong. Done at the start and at the end of a
run: between the two a clock may drift, which a straight line takes out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

ROUNDS = 12
TAG = 0                              # nothing else is in flight when clocks are compared


class Offset(NamedTuple):
    """At a time of this rank: what to add to have that of rank 0, and how wrong that may be."""

    at: float
    seconds: float
    error: float


def measure_offset(comm, clock: Callable[[], float] = time.perf_counter) -> Offset:
    """This rank's clock against rank 0's. Collective."""
    if comm.rank:
        return _answer(comm, clock)
    for rank in range(1, comm.size):
        _ask(comm, rank, clock)
    return Offset(clock(), 0.0, 0.0)


def _ask(comm, rank: int, clock):
    """On rank 0."""
    theirs, rounds = np.empty(1), []
    for _ in range(ROUNDS):
        before = clock()
        comm.Send(theirs, rank, TAG)
        comm.Recv(theirs, rank, TAG)
        after = clock()
        rounds.append((after - before, (before + after) / 2, float(theirs[0])))
    trip, middle, at = min(rounds)
    comm.Send(np.array([at, middle - at, trip / 2]), rank, TAG)


def _answer(comm, clock) -> Offset:
    message, answer = np.empty(1), np.empty(3)
    for _ in range(ROUNDS):
        comm.Recv(message, 0, TAG)
        message[0] = clock()
        comm.Send(message, 0, TAG)
    comm.Recv(answer, 0, TAG)
    at, seconds, error = map(float, answer)
    return Offset(at, seconds if abs(seconds) > error else 0.0, error)


def to_rank_0(times: np.ndarray, start: Offset, end: Offset) -> np.ndarray:
    """Times of this rank as rank 0's clock has them; on a line between the two offsets."""
    if end.at <= start.at:
        return times + start.seconds
    slope = (end.seconds - start.seconds) / (end.at - start.at)
    return times + start.seconds + slope * (times - start.at)
