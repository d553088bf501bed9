"""The order in which a stage works: chunks arrive, tasks become possible, chunks leave.

A task is (chunk, depth): depth 0 is done when a chunk arrives, depth d behind the stage's d-th hop.
Orders are computed alike on all stages, so nothing about them is ever sent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcgcn import philox


@dataclass
class ChunkSchedule:
    """One pass of a stage: with every arrival come the tasks that it makes possible."""

    arrivals: list[int]
    tasks: list[list[tuple[int, int]]]
    departures: list[int]


def free_schedule(order: list[int], n_hops: int) -> ChunkSchedule:
    """With history nothing waits: a chunk goes through all layers at once."""
    return ChunkSchedule(order, [[(chunk, depth) for depth in range(n_hops + 1)]
                                 for chunk in order], order)


def waiting_schedule(order: list[int], n_hops: int, reads: np.ndarray) -> ChunkSchedule:
    """Without history a chunk waits at every hop for all chunks that it reads; reads[c, d]: chunk c
    reads chunk d."""
    n_chunks = len(order)
    done = np.zeros((n_hops + 1, n_chunks), bool)
    schedule = ChunkSchedule(order, [], [])
    for arrived in order:
        tasks = [(arrived, 0)]
        done[0, arrived] = True
        for depth in range(1, n_hops + 1):
            # What a depth makes possible lies one deeper: one sweep finds all.
            missing = (reads & ~done[depth - 1]).any(axis=1)
            ready = [c
                     for c in order if not done[depth, c] and done[depth - 1, c] and not missing[c]]
            done[depth, ready] = True
            tasks += [(chunk, depth) for chunk in ready]
        schedule.tasks.append(tasks)
        schedule.departures += [chunk for chunk, depth in tasks if depth == n_hops]
    return schedule


def waiting_schedules(order: list[int], hops_of_stages: list[int],
                      reads: np.ndarray) -> list[ChunkSchedule]:
    """The schedules of consecutive stages: what leaves one arrives at the next in the same
    order."""
    schedules: list[ChunkSchedule] = []
    for n_hops in hops_of_stages:
        schedules.append(waiting_schedule(schedules[-1].departures if schedules else order, n_hops,
                                          reads))
    return schedules


def chunk_order(seed: int, epoch: int, n_chunks: int, shuffle: bool) -> list[int]:
    """This epoch's order of chunks, the same on all ranks."""
    if not shuffle:
        return list(range(n_chunks))
    return philox.permutation(philox.key(seed, epoch, 0, philox.ORDER), n_chunks).tolist()


def historical_entries(order: list[int], entries: np.ndarray) -> int:
    """Entries of the adjacency that read a later chunk, hence history; entries[c, d]: of rows of c
    and columns of d."""
    place = np.argsort(order)
    return int(entries[place[None, :] > place[:, None]].sum())
