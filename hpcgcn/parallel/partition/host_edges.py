"""Which edges cross between a host and a rank of another: gathered by one rank of the host."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcgcn.parallel.partition.halo_choice import Choice, Offer


class Hosts:
    """Which ranks are on which host; hosts: the number of each rank's."""

    def __init__(self, hosts: list[int], rank: int):
        self.hosts, self.rank = hosts, rank
        self.mates = self._ranks_of(hosts[rank])         # this rank among them

    def _ranks_of(self, host: int) -> list[int]:
        return [rank for rank, other in enumerate(self.hosts) if other == host]

    def away(self, rank: int) -> bool:
        """Is a rank on another host than this one?"""
        return self.hosts[rank] != self.hosts[self.rank]

    def reader_of(self, sender: int, receiver: int) -> int:
        """The rank of the receiver's host that a sender's rows go to."""
        if self.hosts[sender] == self.hosts[receiver]:
            return receiver
        there = self._ranks_of(self.hosts[receiver])
        return there[self._ranks_of(self.hosts[sender]).index(sender) % len(there)]

    def served_with(self) -> np.ndarray:
        """`reader_of` by (receiver, sender)."""
        ranks = range(len(self.hosts))
        return np.array([[self.reader_of(sender, receiver) for sender in ranks]
                         for receiver in ranks])


@dataclass
class Edges:
    """What one rank reads of one sender."""

    sender: int
    rows: np.ndarray                 # (n,) the sender's local rows, sorted
    row_ids: np.ndarray              # (n,) their global ids
    readers: np.ndarray              # (m,) local rows that read them, sorted
    reader_ids: np.ndarray
    source: np.ndarray               # (n_edges,) places in `rows`
    target: np.ndarray               # (n_edges,) places in `readers`
    weights: np.ndarray | None

    def packed(self) -> np.ndarray:
        """As one array of whole numbers."""
        bits = [] if self.weights is None else [self.weights.view(np.int32)]
        sizes = [self.sender, len(self.rows), len(self.readers), len(self.source)]
        return np.concatenate([sizes, self.rows, self.row_ids, self.readers, self.reader_ids,
                               self.source, self.target, *bits]).astype(np.int64)

    @classmethod
    def unpacked(cls, told: np.ndarray, weighted: bool) -> list[Edges]:
        """All that such arrays hold, one behind the other."""
        every = []
        while len(told):
            sender, n_rows, n_readers, n_edges = told[:4]
            sizes = [n_rows, n_rows, n_readers, n_readers, n_edges, n_edges, n_edges * weighted]
            rows, row_ids, readers, reader_ids, source, target, bits, told = np.split(
                told[4:], np.cumsum(sizes))
            weights = bits.astype(np.int32).view(np.float32) if weighted else None
            every.append(cls(int(sender), rows, row_ids, readers, reader_ids, source, target,
                             weights))
        return every


@dataclass
class Own:
    """What this rank reads of a sender on another host."""

    edges: Edges
    halo_rows: np.ndarray            # (n,) which halo rows `edges.rows` are


@dataclass
class Serving:
    """What a sender on another host sends to this rank for its whole host."""

    sender: int
    readers: list[tuple[int, Edges]]     # of each rank of this host that reads from it
    first_row: np.ndarray            # where the rows of each rank begin if all are counted in a row
    offer: Offer                     # rows that read are counted so
    rows: np.ndarray                 # the sender's local rows that are read
    row_ids: np.ndarray

    @classmethod
    def of(cls, sender: int, readers: list[tuple[int, Edges]], first_row: np.ndarray,
           how: str) -> Serving:
        """With the cover of all edges."""
        rows, at = np.unique(np.concatenate([e.rows for _, e in readers]), return_index=True)
        ids = np.concatenate([e.row_ids for _, e in readers])[at]
        source = np.concatenate([np.searchsorted(rows, e.rows)[e.source] for _, e in readers])
        target = np.concatenate([first_row[rank] + e.readers[e.target] for rank, e in readers])
        order = np.lexsort((target, source))
        weights = (None if readers[0][1].weights is None
                   else np.concatenate([e.weights for _, e in readers])[order])
        offer = Offer(source[order].astype(np.int32), target[order], weights,
                      np.ones(len(rows), bool))
        offer.find_cover(how)
        return cls(sender, readers, first_row, offer, rows, ids)

    def ids_of(self, targets: np.ndarray) -> np.ndarray:
        """Global ids of rows that read."""
        numbers = np.concatenate([self.first_row[rank] + e.readers for rank, e in self.readers])
        ids = np.concatenate([e.reader_ids for _, e in self.readers])
        order = np.argsort(numbers)
        return ids[order][np.searchsorted(numbers, targets, sorter=order)]

    def rank_of(self, targets: np.ndarray) -> np.ndarray:
        """Whose rows they are."""
        return np.searchsorted(self.first_row, targets, "right") - 1

    def balance(self, size: int) -> np.ndarray:
        """(2, size): edges moved to the sender, and sums, of each rank that reads."""
        if self.offer.covers is None:
            return np.zeros((2, size), np.int64)
        by_sum = self.offer.reader[~self.offer.covers[self.offer.source]]
        return np.stack([np.bincount(self.rank_of(targets), minlength=size)
                         for targets in (by_sum, np.unique(by_sum))])

    def told(self, choice: Choice, rank: int, first: int) -> np.ndarray:
        """What one rank of the host gets of it: (sender, number of rows and of sums, the sender's
        rows, its own rows that get sums, and the places of all in what arrives)."""
        source, target, _ = choice.row_edges
        read = np.unique(source[self.rank_of(target) == rank])
        summed = np.flatnonzero(self.rank_of(choice.destinations) == rank)
        return np.concatenate([
            [self.sender, len(read), len(summed)], self.rows[read],
            choice.destinations[summed] - self.first_row[rank],
            first + np.searchsorted(choice.rows, read), first + len(choice.rows) + summed])
