"""What each hop exchanges: needed rows, or the partial sums that take the place of more rows.

The receiver knows all edges that cross to it, so it chooses, and tells the sender. A message is
first rows, then sums. The receiver's matrix has one column per row or sum that arrives; a sum has
one entry there, at the row that it is for, and the sender has a matrix with a row per sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcgcn.graph.cover import WORTH, minimum_cover, pairs_with_sums
from hpcgcn.mpi import large
from hpcgcn.mpi.halo import Neighbour
from hpcgcn.parallel.local_graph import LocalGraph, Structure

_MIX = np.uint64(0x9E3779B97F4A7C15)


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
class HopHalo:
    """What one hop exchanges."""

    neighbours: list[HopNeighbour]
    outer: Structure                 # owned x received
    outer_t: Structure
    halo_row: np.ndarray             # (n_received,) which halo row it is; -1: a sum
    n_sent: int
    n_rows_only: int                 # what this rank would receive if only rows were sent
    has_sums: bool                   # does any rank send sums?

    @property
    def n_received(self) -> int:
        """Rows and sums that this rank receives."""
        return len(self.halo_row)


class HaloPlans:
    """The exchanges of all hops of a model over one local graph. Collective.

    how: "rows", "cover" (sums wherever they are fewer) or "auto" (where they save enough and leave
    the work balanced). Hops that need the same edges share a plan.
    """

    def __init__(self, local: LocalGraph, how: str = "rows"):
        self.local, self.how = local, how
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
            self._made[n_edges] = _make(local, n_destinations, self.how)
        return self._made[n_edges]


@dataclass
class _Choice:
    """What comes from one peer: its halo rows (counted from its first), sums, and their edges."""

    rows: np.ndarray                 # (n,) halo rows that are received
    destinations: np.ndarray         # (n_sums,) local rows that get a sum
    sums: Structure                  # (n_sums, halo rows of the peer)
    # (halo row, local row, weight or None) of the edges that rows serve
    row_edges: tuple[np.ndarray, np.ndarray, np.ndarray | None]
    n_rows_only: int


def _make(local: LocalGraph, n_destinations: int, how: str) -> HopHalo:
    offers = [_offer(local, neighbour, n_destinations, how)
              for neighbour in local.plan.neighbours]
    choices = [_choose(offer, sums) for offer, sums in
               zip(offers, _with_sums(local, n_destinations, offers, how))]
    orders = _tell(local, [_encode(local, choice) for choice in choices])
    neighbours, entries, halo_row, n_sent = [], [], [np.zeros(0, np.int64)], 0
    n_received = 0
    for neighbour, choice, order in zip(local.plan.neighbours, choices, orders):
        send_rows, sums, sum_ids = _decode(local, neighbour, order)
        n_out = len(send_rows) + sums.n_rows
        n_in = len(choice.rows) + len(choice.destinations)
        if not n_out and not n_in:
            continue
        first = neighbour.halo.start
        halo_row += [first + choice.rows, np.full(len(choice.destinations), -1)]
        entries.append(_received_entries(choice, n_received))
        owned, theirs = local.ids[send_rows], local.halo_ids[first + choice.rows]
        summed = local.ids[choice.destinations]
        neighbours.append(HopNeighbour(
            neighbour.rank, send_rows, sums, slice(n_sent, n_sent + n_out),
            np.concatenate([owned, sum_ids]), slice(n_received, n_received + n_in),
            np.concatenate([theirs, summed]),
            np.concatenate([owned, _names(sums, sum_ids, local.ids)]),
            np.concatenate([theirs, _names(choice.sums, summed,
                                           local.halo_ids[neighbour.halo])])))
        n_sent, n_received = n_sent + n_out, n_received + n_in
    outer, outer_t = _matrices(local, entries, n_received)
    n_sums = local.plan.comm.allreduce(sum(len(choice.destinations) for choice in choices))
    return HopHalo(neighbours, outer, outer_t, np.concatenate(halo_row), n_sent,
                   sum(choice.n_rows_only for choice in choices), n_sums > 0)


def _matrices(local: LocalGraph, entries: list, n_received: int) -> tuple[Structure, Structure]:
    """The receiver's matrix and its transpose; the local graph's own where all rows arrive."""
    nothing = np.zeros(0, np.int64)
    rows, columns = (np.concatenate([nothing, *(of_peer[k] for of_peer in entries)])
                     for k in (0, 1))
    if n_received == local.n_halo and len(rows) == len(local.outer.indices):
        return local.outer, local.outer_t        # sums would be fewer than the rows they replace
    weights = None if local.outer.weights is None else np.concatenate(
        [np.zeros(0, np.float32), *(of_peer[2] for of_peer in entries)])
    outer = Structure.of_entries(rows, columns, local.n_owned, n_received, weights)
    return outer, outer.transposed()


@dataclass
class _Offer:
    """The edges that one peer must serve for a hop, and the smallest cover of them."""

    source: np.ndarray               # (n_edges,) halo rows of the peer, counted from its first
    local_row: np.ndarray            # (n_edges,) rows that read them
    weights: np.ndarray | None       # (n_edges,); None: all are 1
    is_row: np.ndarray               # (halo rows of the peer,) bool: is it needed?
    covers: np.ndarray | None        # the same of the cover; None: it is no smaller
    saved: int = 0                   # rows
    moved: int = 0                   # edges that sums serve
    sums: int = 0


def _offer(local: LocalGraph, neighbour: Neighbour, n_destinations: int, how: str) -> _Offer:
    """What a peer must serve for the first local rows."""
    first, last = neighbour.halo.start, neighbour.halo.stop
    indptr, indices = local.outer_t.indptr, local.outer_t.indices
    entries = slice(int(indptr[first]), int(indptr[last]))
    needed = indices[entries] < n_destinations
    source = np.repeat(np.arange(last - first, dtype=np.int32), np.diff(indptr[first:last + 1]))
    source, local_row = source[needed], indices[entries][needed]
    weights = local.outer_t.weights
    weights = None if weights is None else weights[entries][needed]
    lengths = np.bincount(source, minlength=last - first)
    offer = _Offer(source, local_row, weights, lengths > 0, None)
    if how == "rows" or not len(source):
        return offer
    if local.cover is not None and needed.all():
        covers = local.cover[neighbour.halo]
        n_sums = len(np.unique(local_row[~covers[source]]))
    else:
        destinations, place = np.unique(local_row, return_inverse=True)
        source_indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        covers, summed = minimum_cover(source_indptr, place.astype(np.int32), len(destinations))
        n_sums = int(summed.sum())
    n_rows = int(offer.is_row.sum())
    saved = n_rows - int(covers.sum()) - n_sums
    if saved > (WORTH * n_rows if how == "auto" else 0):
        offer.covers, offer.saved, offer.sums = covers, saved, n_sums
        offer.moved = int(lengths[~covers].sum())
    return offer


def _with_sums(local: LocalGraph, n_destinations: int, offers: list[_Offer],
               how: str) -> list[bool]:
    """From which peers sums are taken; the same on all ranks. Collective."""
    if how != "auto":
        return [offer.covers is not None for offer in offers]
    comm, peers = local.plan.comm, [neighbour.rank for neighbour in local.plan.neighbours]
    mine = np.zeros((3, comm.size), np.int64)
    mine[:, peers] = np.array([(offer.saved, offer.moved, offer.sums)
                               for offer in offers]).reshape(-1, 3).T
    work = int(local.inner.indptr[n_destinations] + local.outer.indptr[n_destinations])
    everyone = comm.allgather((work, mine))
    saved, moved, sums = np.stack([counts for _, counts in everyone], axis=1)
    chosen = pairs_with_sums(np.array([work for work, _ in everyone]), saved, moved, sums)
    return chosen[comm.rank, peers].tolist()


def _choose(offer: _Offer, sums: bool) -> _Choice:
    """What comes from a peer, with sums or as rows alone."""
    is_row = offer.covers if sums and offer.covers is not None else offer.is_row
    by_row = is_row[offer.source]
    destinations, place = np.unique(offer.local_row[~by_row], return_inverse=True)
    sum_weights, row_weights = ((None, None) if offer.weights is None
                                else (offer.weights[~by_row], offer.weights[by_row]))
    structure = Structure.of_entries(place, offer.source[~by_row], len(destinations),
                                     len(offer.is_row), sum_weights)
    return _Choice(np.flatnonzero(is_row), destinations, structure,
                   (offer.source[by_row], offer.local_row[by_row], row_weights),
                   int(offer.is_row.sum()))


def _received_entries(choice: _Choice, first: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(local row, column, weight) of the receiver's matrix, for what a peer sends; who makes a sum
    has weighted it."""
    source, local_row, weights = choice.row_edges
    n_rows, n_sums = len(choice.rows), len(choice.destinations)
    rows = np.concatenate([local_row, choice.destinations]).astype(np.int64)
    used = np.ones(len(rows), np.float32)
    if weights is not None:
        used[:len(weights)] = weights
    return rows, np.concatenate([first + np.searchsorted(choice.rows, source),
                                 first + n_rows + np.arange(n_sums)]), used


# -- telling the sender ----------------------------------------------------------------------------
def _encode(local: LocalGraph, choice: _Choice) -> np.ndarray:
    sizes = [len(choice.rows), len(choice.destinations)]
    weights = choice.sums.weights
    bits = [] if weights is None else [weights.view(np.int32)]       # of whole numbers, all of it
    return np.concatenate([sizes, choice.rows, local.ids[choice.destinations],
                           np.diff(choice.sums.indptr), choice.sums.indices,
                           *bits]).astype(np.int64)


def _tell(local: LocalGraph, orders: list[np.ndarray]) -> list[np.ndarray]:
    """Send every peer its order; returns what the peers want."""
    comm, peers = local.plan.comm, [neighbour.rank for neighbour in local.plan.neighbours]
    sizes, sizes_in = np.zeros(comm.size, np.int64), np.empty(comm.size, np.int64)
    sizes[peers] = [len(order) for order in orders]
    comm.Alltoall(sizes, sizes_in)
    arrived = [np.empty(sizes_in[peer], np.int64) for peer in peers]
    large.exchange(comm, list(zip(arrived, peers)), list(zip(orders, peers)))
    return arrived


def _decode(local: LocalGraph, neighbour: Neighbour,
            order: np.ndarray) -> tuple[np.ndarray, Structure, np.ndarray]:
    """(rows to send, sums to make, the global ids of the rows that these are for)."""
    n_rows, n_sums = order[:2]
    rows, ids, lengths, entries = np.split(order[2:], np.cumsum([n_rows, n_sums, n_sums]))
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    sources, bits = np.split(entries, [indptr[-1]])
    weights = None if local.outer.weights is None else bits.astype(np.int32).view(np.float32)
    return (neighbour.send_rows[rows],
            Structure(indptr, neighbour.send_rows[sources], local.n_owned, weights), ids)


def _names(sums: Structure, ids: np.ndarray, source_ids: np.ndarray) -> np.ndarray:
    """A negative number for each sum, by the row that it is for and what it adds up."""
    mixed = source_ids[sums.indices].astype(np.uint64) * _MIX
    mixed ^= mixed >> np.uint64(29)
    running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
    total = running[sums.indptr[1:]] - running[sums.indptr[:-1]] + ids.astype(np.uint64)
    return -1 - (total & np.uint64((1 << 62) - 1)).astype(np.int64)
