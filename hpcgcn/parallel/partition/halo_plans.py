"""What each hop exchanges: needed rows, or the partial sums that take the place of more rows.

The receiver chooses (halo_choice.py) and tells the sender. Its matrix has one column per row or sum
that arrives; a sum has one entry there, at the row that it is for, and the sender has a matrix with
a row per sum.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hpcgcn.graph.cover import pairs_with_sums
from hpcgcn.mpi import large
from hpcgcn.parallel.local_graph import LocalGraph, Structure
from hpcgcn.parallel.partition.halo_choice import (
    Choice,
    Offer,
    choose,
    decode,
    encode,
    names_of_sums,
    offer_of,
)


@dataclass
class HopNeighbour:
    """One peer of a hop: what is sent to it and what comes from it, each rows and then sums."""

    rank: int
    send_rows: np.ndarray            # (n,) int32 local rows that are sent as they are
    sums: Structure                  # (n_sums, n_owned): sums for rows of the peer
    sent: slice                      # of all that this rank sends
    sent_ids: np.ndarray             # global ids: of rows, and of the rows that sums are for
    received: slice                  # of all that this rank receives
    received_ids: np.ndarray
    # The same where a sum is known by what it adds up: what a checkpoint compares.
    sent_names: np.ndarray
    received_names: np.ndarray


@dataclass
class Passing:
    """What this rank and another of its host pass on to each other."""

    rank: int
    places: np.ndarray               # (n,) int32 of what arrives here: what the other one reads
    received: slice                  # of all that this rank receives: what the other passes on


@dataclass
class HopHalo:
    """What one hop exchanges."""

    neighbours: list[HopNeighbour]
    outer: Structure                 # owned x received
    outer_t: Structure
    halo_row: np.ndarray             # (n_received,) which halo row it is; -1: a sum, or not read
    n_sent: int
    n_rows_only: int                 # what this rank would receive if only rows were sent
    has_sums: bool                   # does any rank send sums?
    # Within hosts, behind what comes from neighbours (host_plans.py); empty: nothing is passed on.
    passing: list[Passing] = field(default_factory=list)
    passes: bool = False             # does any rank pass something on?

    @property
    def n_received(self) -> int:
        """Rows and sums that this rank receives."""
        return len(self.halo_row)

    @property
    def n_arriving(self) -> int:
        """Of them, those that come from neighbours: the first ones."""
        return self.n_received - sum(p.received.stop - p.received.start for p in self.passing)


class HaloPlans:
    """The exchanges of all hops of a model over one local graph. Collective.

    how: "rows", "cover" (sums wherever they are fewer) or "auto" (where they save enough and leave
    the work balanced). hosts: of each rank, if what several ranks of a host read is sent to it
    once. Hops that need the same edges share a plan.
    """

    def __init__(self, local: LocalGraph, how: str = "rows", hosts: list[int] | None = None):
        self.local, self.how = local, how
        several = hosts is not None and 1 < len(set(hosts)) < len(hosts)
        self.hosts = hosts if several else None
        self._made: dict[int, HopHalo] = {}      # by the number of edges of all ranks

    def whole(self) -> HopHalo:
        """Of a hop that needs all rows."""
        return self._plan(self.local.n_owned)

    def of_hop(self, number: int) -> HopHalo:
        """Of a hop of training."""
        return self._plan(self.local.needed.count(number))

    def _plan(self, n_destinations: int) -> HopHalo:
        local = self.local
        n_edges = local.plan.comm.allreduce(int(local.outer.indptr[n_destinations]))
        if n_edges not in self._made:
            self._made[n_edges] = self._make(n_destinations)
        return self._made[n_edges]

    def _make(self, n_destinations: int) -> HopHalo:
        if self.hosts is None:
            return _make(self.local, n_destinations, self.how)
        from hpcgcn.parallel.partition.host_plans import make_by_host
        return make_by_host(self.local, n_destinations, self.how, self.hosts)


def _make(local: LocalGraph, n_destinations: int, how: str) -> HopHalo:
    offers = [offer_of(local, neighbour, n_destinations, how)
              for neighbour in local.plan.neighbours]
    choices = [choose(offer, sums) for offer, sums in
               zip(offers, _with_sums(local, n_destinations, offers, how))]
    orders = large.swap(local.plan.comm, {
        n.rank: encode(choice, local.ids[choice.destinations])
        for n, choice in zip(local.plan.neighbours, choices)})
    made = Assembly(local)
    entries, halo_row = [], [np.zeros(0, np.int64)]
    for neighbour, choice in zip(local.plan.neighbours, choices):
        sent = decode(orders[neighbour.rank], neighbour.send_rows, local.n_owned,
                      local.outer.weights is not None)
        first = made.n_received
        halo_rows = np.arange(neighbour.halo.start, neighbour.halo.stop)
        if made.add(neighbour.rank, sent, choice, local.halo_ids[halo_rows],
                    local.ids[choice.destinations]):
            halo_row += [halo_rows[choice.rows], np.full(len(choice.destinations), -1)]
            entries.append(_received_entries(choice, first))
    outer, outer_t = _matrices(local, entries, made.n_received)
    return made.plan(outer, outer_t, np.concatenate(halo_row),
                     sum(choice.n_rows_only for choice in choices))


class Assembly:
    """The neighbours of a plan, one after another."""

    def __init__(self, local: LocalGraph):
        self.local, self.neighbours = local, list[HopNeighbour]()
        self.n_sent = self.n_received = self.n_sums = 0

    def add(self, rank: int, sent: tuple[np.ndarray, Structure, np.ndarray], choice: Choice,
            source_ids: np.ndarray, reader_ids: np.ndarray) -> bool:
        """A peer, if anything is sent or received. sent: as it is decoded. source_ids: global ids
        of the peer's rows, reader_ids: of those that get sums."""
        (send_rows, sums, sum_ids), local = sent, self.local
        n_out, n_in = len(send_rows) + sums.n_rows, len(choice)
        if not n_out and not n_in:
            return False
        owned, theirs = local.ids[send_rows], source_ids[choice.rows]
        self.neighbours.append(HopNeighbour(
            rank, send_rows, sums, slice(self.n_sent, self.n_sent + n_out),
            np.concatenate([owned, sum_ids]),
            slice(self.n_received, self.n_received + n_in),
            np.concatenate([theirs, reader_ids]),
            np.concatenate([owned, names_of_sums(sums, sum_ids, local.ids)]),
            np.concatenate([theirs, names_of_sums(choice.sums, reader_ids, source_ids)])))
        self.n_sent, self.n_received = self.n_sent + n_out, self.n_received + n_in
        self.n_sums += len(choice.destinations)
        return True

    def plan(self, outer: Structure, outer_t: Structure, halo_row: np.ndarray, n_rows_only: int,
             passing: list[Passing] | None = None) -> HopHalo:
        """The whole. Collective."""
        passing = passing or []
        counts = self.local.plan.comm.allgather((self.n_sums, len(passing)))
        n_sums, n_passing = np.sum(counts, axis=0)
        return HopHalo(self.neighbours, outer, outer_t, halo_row, self.n_sent, n_rows_only,
                       bool(n_sums), passing, bool(n_passing))


def _matrices(local: LocalGraph, entries: list, n_received: int) -> tuple[Structure, Structure]:
    """The receiver's matrix and its transpose; the local graph's own where all rows arrive."""
    rows, columns, weights = joined(local, entries)
    if n_received == local.n_halo and len(rows) == len(local.outer.indices):
        return local.outer, local.outer_t        # sums would be fewer than the rows they replace
    outer = Structure.of_entries(rows, columns, local.n_owned, n_received, weights)
    return outer, outer.transposed()


def joined(local: LocalGraph,
           entries: list) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The (rows, columns, weights) of all peers."""
    nothing = np.zeros(0, np.int64)
    rows, columns = (np.concatenate([nothing, *(of_peer[k] for of_peer in entries)])
                     for k in (0, 1))
    weights = None if local.outer.weights is None else np.concatenate(
        [np.zeros(0, np.float32), *(of_peer[2] for of_peer in entries)])
    return rows, columns, weights


def _with_sums(local: LocalGraph, n_destinations: int, offers: list[Offer],
               how: str) -> list[bool]:
    """From which peers sums are taken; the same on all ranks. Collective."""
    if how != "auto":
        return [offer.covers is not None for offer in offers]
    comm, peers = local.plan.comm, [neighbour.rank for neighbour in local.plan.neighbours]
    mine = np.zeros((3, comm.size), np.int64)
    mine[:, peers] = np.array([(offer.saved, offer.moved, offer.sums)
                               for offer in offers]).reshape(-1, 3).T
    everyone = comm.allgather((work_of(local, n_destinations), mine))
    saved, moved, sums = np.stack([counts for _, counts in everyone], axis=1)
    chosen = pairs_with_sums(np.array([work for work, _ in everyone]), saved, moved, sums)
    return chosen[comm.rank, peers].tolist()


def work_of(local: LocalGraph, n_destinations: int) -> int:
    """Entries of this rank's products for a hop if only rows are sent."""
    return int(local.inner.indptr[n_destinations] + local.outer.indptr[n_destinations])


def _received_entries(choice: Choice, first: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(local row, column, weight) of the receiver's matrix, for what a peer sends; who makes a sum
    has weighted it."""
    source, reader, weights = choice.row_edges
    n_rows, n_sums = len(choice.rows), len(choice.destinations)
    rows = np.concatenate([reader, choice.destinations]).astype(np.int64)
    used = np.ones(len(rows), np.float32)
    if weights is not None:
        used[:len(weights)] = weights
    return rows, np.concatenate([first + np.searchsorted(choice.rows, source),
                                 first + n_rows + np.arange(n_sums)]), used
