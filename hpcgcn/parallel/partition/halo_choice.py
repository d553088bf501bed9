"""Rows or partial sums: what a receiver takes from a sender for the edges that cross between them,
and how it tells the sender.

The receiver knows these edges, so it chooses. A message is first rows, then sums.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcgcn.graph.cover import WORTH, minimum_cover
from hpcgcn.mpi.halo import Neighbour
from hpcgcn.parallel.local_graph import LocalGraph, Structure

_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass
class Offer:
    """The edges that a sender must serve for a hop, and the smallest cover of them."""

    source: np.ndarray               # (n_edges,) the sender's rows, as the receiver counts them
    reader: np.ndarray               # (n_edges,) rows that read them
    weights: np.ndarray | None       # (n_edges,); None: all are 1
    is_row: np.ndarray               # (n_sources,) bool: is it needed?
    covers: np.ndarray | None = None     # (n_sources,) the same of the cover; None: no smaller
    saved: int = 0                   # rows
    moved: int = 0                   # edges that sums serve
    sums: int = 0

    def find_cover(self, how: str, known: np.ndarray | None = None):
        """Take partial sums into account; known: the cover, if it is known already."""
        if how == "rows" or not len(self.source):
            return
        lengths = np.bincount(self.source, minlength=len(self.is_row))
        if known is not None:
            covers, n_sums = known, len(np.unique(self.reader[~known[self.source]]))
        else:
            destinations, place = np.unique(self.reader, return_inverse=True)
            indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
            covers, summed = minimum_cover(indptr, place.astype(np.int32), len(destinations))
            n_sums = int(summed.sum())
        n_rows = int(self.is_row.sum())
        saved = n_rows - int(covers.sum()) - n_sums
        if saved > (WORTH * n_rows if how == "auto" else 0):
            self.covers, self.saved, self.sums = covers, saved, n_sums
            self.moved = int(lengths[~covers].sum())


@dataclass
class Choice:
    """What comes from a sender: rows, sums, and which edges they serve."""

    rows: np.ndarray                 # (n,) of its rows, those that are received
    destinations: np.ndarray         # (n_sums,) rows that get a sum
    sums: Structure                  # (n_sums, n_sources)
    # (row of the sender, row that reads it, weight or None) of the edges that rows serve
    row_edges: tuple[np.ndarray, np.ndarray, np.ndarray | None]
    n_rows_only: int

    def __len__(self) -> int:
        return len(self.rows) + len(self.destinations)


def needed_edges(local: LocalGraph, neighbour: Neighbour, n_destinations: int) -> Offer:
    """What a peer must serve for the first local rows; its rows are counted from its first."""
    first, last = neighbour.halo.start, neighbour.halo.stop
    indptr, indices = local.outer_t.indptr, local.outer_t.indices
    entries = slice(int(indptr[first]), int(indptr[last]))
    needed = indices[entries] < n_destinations
    source = np.repeat(np.arange(last - first, dtype=np.int32), np.diff(indptr[first:last + 1]))
    source, reader = source[needed], indices[entries][needed]
    weights = local.outer_t.weights
    weights = None if weights is None else weights[entries][needed]
    return Offer(source, reader, weights, np.bincount(source, minlength=last - first) > 0)


def offer_of(local: LocalGraph, neighbour: Neighbour, n_destinations: int, how: str) -> Offer:
    """The same with its cover."""
    offer = needed_edges(local, neighbour, n_destinations)
    everything = len(offer.source) == (local.outer_t.indptr[neighbour.halo.stop]
                                       - local.outer_t.indptr[neighbour.halo.start])
    offer.find_cover(how, local.cover[neighbour.halo]
                     if local.cover is not None and everything else None)
    return offer


def choose(offer: Offer, sums: bool) -> Choice:
    """What comes from a peer, with sums or as rows alone."""
    is_row = offer.covers if sums and offer.covers is not None else offer.is_row
    by_row = is_row[offer.source]
    destinations, place = np.unique(offer.reader[~by_row], return_inverse=True)
    sum_weights, row_weights = ((None, None) if offer.weights is None
                                else (offer.weights[~by_row], offer.weights[by_row]))
    structure = Structure.of_entries(place, offer.source[~by_row], len(destinations),
                                     len(offer.is_row), sum_weights)
    return Choice(np.flatnonzero(is_row), destinations, structure,
                  (offer.source[by_row], offer.reader[by_row], row_weights),
                  int(offer.is_row.sum()))


# -- telling the sender ----------------------------------------------------------------------------
def encode(choice: Choice, reader_ids: np.ndarray,
           numbers: np.ndarray | None = None) -> np.ndarray:
    """A choice as the sender is told of it.

    reader_ids: (n_sums,) global ids of the rows that get sums. numbers: of the sender's rows where
    it does not count them as the receiver does.
    """
    sizes = [len(choice.rows), len(choice.destinations)]
    rows, sources = choice.rows, choice.sums.indices
    if numbers is not None:
        rows, sources = numbers[rows], numbers[sources]
    weights = choice.sums.weights
    bits = [] if weights is None else [weights.view(np.int32)]       # of whole numbers, all of it
    return np.concatenate([sizes, rows, reader_ids, np.diff(choice.sums.indptr), sources,
                           *bits]).astype(np.int64)


def decode(order: np.ndarray, numbers: np.ndarray, n_owned: int,
           weighted: bool) -> tuple[np.ndarray, Structure, np.ndarray]:
    """(rows to send, sums to make, the global ids of the rows that these are for).

    numbers: local rows as the receiver counts them.
    """
    n_rows, n_sums = order[:2]
    rows, ids, lengths, entries = np.split(order[2:], np.cumsum([n_rows, n_sums, n_sums]))
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    sources, bits = np.split(entries, [indptr[-1]])
    weights = bits.astype(np.int32).view(np.float32) if weighted else None
    return numbers[rows], Structure(indptr, numbers[sources], n_owned, weights), ids


def names_of_sums(sums: Structure, ids: np.ndarray, source_ids: np.ndarray) -> np.ndarray:
    """A negative number for each sum, by the row that it is for and what it adds up."""
    mixed = source_ids[sums.indices].astype(np.uint64) * _MIX
    mixed ^= mixed >> np.uint64(29)
    running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
    total = running[sums.indptr[1:]] - running[sums.indptr[:-1]] + ids.astype(np.uint64)
    return -1 - (total & np.uint64((1 << 62) - 1)).astype(np.int64)
