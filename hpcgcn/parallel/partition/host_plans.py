"""Rows that several ranks of a host read are sent to the host once: to one of its ranks, which
passes them on.

From a sender on another host all rows and sums for a host go to the rank there that has the
sender's number (`reader_of`), so that the ranks of a host share the work. It gathers the edges that
the sender must serve for all of its host, and covers them together: a row in the cover serves the
edges of all ranks, a sum is for a row of one of them. What arrives is passed on within the host
(host_exchange.py). Ranks of one host exchange as without hosts.
"""

from __future__ import annotations

import numpy as np

from hpcgcn.graph.cover import pairs_with_sums
from hpcgcn.mpi import large
from hpcgcn.mpi.halo import Neighbour
from hpcgcn.parallel.local_graph import LocalGraph, Structure
from hpcgcn.parallel.partition.halo_choice import (
    Choice,
    Offer,
    choose,
    decode,
    encode,
    needed_edges,
    offer_of,
)
from hpcgcn.parallel.partition.halo_plans import Assembly, HopHalo, Passing, joined, work_of
from hpcgcn.parallel.partition.host_edges import Edges, Hosts, Own, Serving


def make_by_host(local: LocalGraph, n_destinations: int, how: str, hosts: list[int]) -> HopHalo:
    """The plan of a hop for its first rows. Collective."""
    comm, layout = local.plan.comm, Hosts(hosts, local.plan.comm.rank)
    first_row = np.concatenate([[0], np.cumsum(comm.allgather(local.n_owned))])[:-1]
    near = {n.rank: (n, offer_of(local, n, n_destinations, how)) for n in local.plan.neighbours
            if not layout.away(n.rank)}
    own = _read_from_away(local, n_destinations, layout)
    serving = _gathered(local, own, layout, first_row, how)
    chosen = _chosen(local, n_destinations, how, layout, near, serving)
    choices = {**{rank: choose(offer, rank in chosen) for rank, (_, offer) in near.items()},
               **{rank: choose(s.offer, rank in chosen) for rank, s in serving.items()}}
    orders = large.swap(comm, {
        **{rank: encode(choices[rank], local.ids[choices[rank].destinations]) for rank in near},
        **{rank: encode(choices[rank], s.ids_of(choices[rank].destinations), s.rows)
           for rank, s in serving.items()}})
    made = Assembly(local)
    entries: list[tuple] = []
    told: dict[int, list[np.ndarray]] = {mate: [] for mate in layout.mates}
    halo_row = []
    for rank in sorted({*orders, *choices}):
        first = made.n_received
        sent = _decoded(local, near.get(rank), orders.get(rank))
        if rank in near:
            neighbour, choice = near[rank][0], choices[rank]
            halo_rows = np.arange(neighbour.halo.start, neighbour.halo.stop)
            made.add(rank, sent, choice, local.halo_ids[halo_rows], local.ids[choice.destinations])
            entries.append(_entries_of_near(choice, first))
            halo_row += [halo_rows[choice.rows], np.full(len(choice.destinations), -1)]
            continue
        choice, at = choices.get(rank, _NOTHING), serving.get(rank)
        ids = (at.row_ids, at.ids_of(choice.destinations)) if at else (_EMPTY, _EMPTY)
        made.add(rank, sent, choice, *ids)
        halo_row.append(np.full(len(choice), -1))
        if at:
            for mate, _ in at.readers:
                told[mate].append(at.told(choice, mate, first))
    return _passed_on(local, layout, made, own, entries, told,
                      np.concatenate([_EMPTY, *halo_row]),
                      sum(choice.n_rows_only for choice in choices.values()))


_EMPTY = np.zeros(0, np.int64)
_NOTHING = choose(Offer(np.zeros(0, np.int32), _EMPTY, None, np.zeros(0, bool)), False)


def _decoded(local: LocalGraph, near: tuple[Neighbour, Offer] | None, order: np.ndarray | None):
    """What a peer wants. Those of this host count the rows that they read, others all rows."""
    numbers = near[0].send_rows if near else np.arange(local.n_owned, dtype=np.int32)
    nothing = np.zeros(2, np.int64)
    return decode(nothing if order is None or not len(order) else order, numbers, local.n_owned,
                  local.outer.weights is not None)


def _read_from_away(local: LocalGraph, n_destinations: int, layout: Hosts) -> dict[int, Own]:
    """The edges from ranks of other hosts, by sender. Collective."""
    rows_of_owners = local.plan.scatter(np.arange(local.n_owned))
    by_sender = {}
    for neighbour in local.plan.neighbours:
        offer = needed_edges(local, neighbour, n_destinations)
        if layout.away(neighbour.rank) and len(offer.source):
            halo = neighbour.halo.start + offer.source
            rows, at, source = np.unique(rows_of_owners[halo], return_index=True,
                                         return_inverse=True)
            readers, target = np.unique(offer.reader, return_inverse=True)
            by_sender[neighbour.rank] = Own(
                Edges(neighbour.rank, rows, local.halo_ids[halo[at]], readers, local.ids[readers],
                      source, target, offer.weights), halo[at])
    return by_sender


def _gathered(local: LocalGraph, own: dict[int, Own], layout: Hosts, first_row: np.ndarray,
              how: str) -> dict[int, Serving]:
    """What senders of other hosts must send to this rank, for all of its host. Collective."""
    packed: dict[int, list[np.ndarray]] = {mate: [] for mate in layout.mates}
    for sender, mine in own.items():
        packed[layout.reader_of(sender, layout.rank)].append(mine.edges.packed())
    arrived = large.swap(local.plan.comm, {mate: np.concatenate([_EMPTY, *parts])
                                           for mate, parts in packed.items()})
    readers: dict[int, list[tuple[int, Edges]]] = {}
    for mate in layout.mates:
        for edges in Edges.unpacked(arrived[mate], local.outer.weights is not None):
            readers.setdefault(edges.sender, []).append((mate, edges))
    return {sender: Serving.of(sender, edges, first_row, how)
            for sender, edges in sorted(readers.items())}


def _chosen(local: LocalGraph, n_destinations: int, how: str, layout: Hosts,
            near: dict[int, tuple[Neighbour, Offer]],
            serving: dict[int, Serving]) -> set[int]:
    """The peers that send sums to this rank; balanced over all ranks if it is `auto`.
    Collective."""
    comm, offers = local.plan.comm, {rank: offer for rank, (_, offer) in near.items()}
    offers |= {rank: s.offer for rank, s in serving.items()}
    if how != "auto":
        return {rank for rank, offer in offers.items() if offer.covers is not None}
    counts = np.zeros((3, comm.size, comm.size), np.int64)       # saved; moved and sums by reader
    for rank, offer in offers.items():
        counts[0, comm.rank, rank] = offer.saved
    for rank, (_, offer) in near.items():
        counts[1:, comm.rank, rank] = offer.moved, offer.sums
    for rank, s in serving.items():
        counts[1:, :, rank] += s.balance(comm.size)
    saved, moved, sums = comm.allreduce(counts)
    work = np.array(comm.allgather(work_of(local, n_destinations)))
    chosen = pairs_with_sums(work, saved, moved, sums, layout.served_with())
    return {rank for rank in offers if chosen[comm.rank, rank]}


# -- what this rank reads --------------------------------------------------------------------------
def _entries_of_near(choice: Choice, first: int) -> tuple:
    """(local row, column, weight) of what a rank of this host sends."""
    source, reader, weights = choice.row_edges
    return _entries(reader, first + np.searchsorted(choice.rows, source), weights,
                    choice.destinations,
                    first + len(choice.rows) + np.arange(len(choice.destinations)))


def _entries(reader, columns, weights, summed, sum_columns) -> tuple:
    """Of edges that rows serve, and of sums, which their sender has weighted."""
    ones = np.ones(len(summed), np.float32)
    used = np.ones(len(reader), np.float32) if weights is None else weights
    return (np.concatenate([reader, summed]), np.concatenate([columns, sum_columns]),
            np.concatenate([used, ones]))


def _entries_of_away(edges: Edges, rows: np.ndarray, summed: np.ndarray,
                     places: np.ndarray) -> tuple:
    """The same of a sender on another host: its rows and sums are in these places of what is
    received, rows first."""
    source = edges.rows[edges.source]
    at = np.minimum(np.searchsorted(rows, source), max(len(rows) - 1, 0))
    by_row = rows[at] == source if len(rows) else np.zeros(len(source), bool)
    weights = None if edges.weights is None else edges.weights[by_row]
    return _entries(edges.readers[edges.target[by_row]], places[at[by_row]], weights, summed,
                    places[len(rows):])


def _passed_on(local: LocalGraph, layout: Hosts, made: Assembly, own: dict[int, Own],
               entries: list, told: dict[int, list[np.ndarray]], halo_row: np.ndarray,
               n_rows_only: int) -> HopHalo:
    """The plan, once all ranks of a host know what others pass on to them. Collective."""
    tell = {mate: np.concatenate([_EMPTY, *parts]) for mate, parts in told.items()}
    arrived = large.swap(local.plan.comm, tell)
    passing, n_received, halo_rows = [], made.n_received, [halo_row]
    for mate in layout.mates:
        first = n_received
        for sender, rows, summed, places in _messages(arrived[mate]):
            edges = own[sender].edges
            read = own[sender].halo_rows[np.searchsorted(edges.rows, rows)]
            if mate == layout.rank:
                halo_row[places[:len(rows)]] = read
            else:                                # behind all that arrives from neighbours
                places = np.arange(n_received, n_received + len(places))
                n_received += len(places)
                halo_rows += [read, np.full(len(summed), -1)]
            entries.append(_entries_of_away(edges, rows, summed, places))
        given = np.concatenate([_EMPTY, *(places for *_, places in _messages(tell[mate]))])
        if mate != layout.rank and (len(given) or n_received > first):
            passing.append(Passing(mate, given.astype(np.int32), slice(first, n_received)))
    rows, columns, weights = joined(local, entries)
    outer = Structure.of_entries(rows, columns, local.n_owned, n_received, weights)
    return made.plan(outer, outer.transposed(), np.concatenate(halo_rows), n_rows_only, passing)


def _messages(told: np.ndarray) -> list[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
    """(sender, its rows, own rows that get sums, places of all) of each message in an array."""
    messages = []
    while len(told):
        sender, n_rows, n_sums = told[:3]
        rows, summed, places, told = np.split(told[3:],
                                              np.cumsum([n_rows, n_sums, n_rows + n_sums]))
        messages.append((int(sender), rows, summed, places))
    return messages
