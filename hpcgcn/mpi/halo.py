"""Who holds what: my rows that others read, and theirs that I read, in the order of messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hpcgcn.mpi import large

if TYPE_CHECKING:
    from mpi4py import MPI


@dataclass
class Neighbour:
    """One peer: my rows that it reads, and the slice of my halo that it fills."""

    rank: int
    send_rows: np.ndarray            # (n_send,) int32 local rows, as in the peer's halo
    halo: slice                      # rows of my halo that this peer owns
    receive_slice: slice             # of all send_rows, concatenated: its gradients


@dataclass
class HaloPlan:
    """The neighbours of one rank. Halo rows are grouped by owner, in the owner's order."""

    comm: MPI.Comm
    neighbours: list[Neighbour]
    n_halo: int
    n_sent: int                      # rows sent, counted once per receiver

    def scatter(self, values: np.ndarray) -> np.ndarray:
        """Owner to halo, for set-up: the value (or row) of each owned node to all who read it."""
        values = np.ascontiguousarray(values)
        halo = np.empty((self.n_halo, *values.shape[1:]), values.dtype)
        sends = [(np.ascontiguousarray(values[n.send_rows]), n.rank) for n in self.neighbours]
        large.exchange(self.comm, [(halo[n.halo], n.rank) for n in self.neighbours], sends)
        return halo


def find_halo(comm, offsets: np.ndarray, rank: int, indices: np.ndarray):
    """Which remote nodes do these edges read, and which of mine do others read?

    Returns (halo ids in file order, their number per owner, for each rank my rows that it reads).
    """
    start, stop = offsets[rank], offsets[rank + 1]
    halo_ids = np.unique(indices[(indices < start) | (indices >= stop)]).astype(np.int64)
    bounds = np.searchsorted(halo_ids, offsets)
    counts = np.diff(bounds).astype(np.int64)                      # (n_parts,)
    n_requested = np.empty(comm.size, np.int64)
    comm.Alltoall(counts, n_requested)
    requested = [np.empty(n, np.int64) for n in n_requested]
    large.exchange(comm, [(ids, peer) for peer, ids in enumerate(requested)],
                   [(halo_ids[bounds[peer]:bounds[peer + 1]], peer) for peer in range(comm.size)])
    return halo_ids, counts, [ids - start for ids in requested]


def make_plan(comm, counts: np.ndarray, read_by: list[np.ndarray]) -> HaloPlan:
    """The plan from per-owner halo counts and, for each rank, my local rows that it reads."""
    neighbours, halo_at, receive_at = [], 0, 0
    for rank, (n_halo, rows) in enumerate(zip(counts, read_by)):
        if n_halo or len(rows):
            halo = slice(halo_at, halo_at + int(n_halo))
            received = slice(receive_at, receive_at + len(rows))
            neighbours.append(Neighbour(rank, rows.astype(np.int32), halo, received))
        halo_at, receive_at = halo_at + int(n_halo), receive_at + len(rows)
    return HaloPlan(comm, neighbours, halo_at, receive_at)
