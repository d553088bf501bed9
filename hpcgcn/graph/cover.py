"""Rows or partial sums, whichever are fewer: the least that must be sent for a set of cut edges.

A message between two ranks serves edges from sources (rows of the sender) to destinations (rows of
the receiver). The row of a source serves all its edges; the sum that the sender makes for a
destination, over all its sources there, serves all of those. The fewest rows and sums that serve
every edge are a minimum vertex cover of the edges, which follows from a maximum matching (König).
"""

from __future__ import annotations

import numpy as np

from hpcgcn.backend.native.library import available, kernels

# Sums may raise the work of the most loaded rank to so many times what it is without them.
MOST_WORK = 1.05
# Sums make a message wait for a product: they must save this share of a pair's rows.
WORTH = 0.02


def minimum_cover(indptr: np.ndarray, indices: np.ndarray,
                  n_destinations: int) -> tuple[np.ndarray, np.ndarray]:
    """The smallest cover of the edges source -> indices[indptr[source]:indptr[source + 1]].

    Returns which sources (n_sources,) and which destinations (n_destinations,) are in it, both
    bool. Of all smallest covers it is the one with the most sources, because a row moves no work
    from the receiver to the sender: there is only one of that kind. indptr int64, indices int32.
    """
    if not available()[0]:
        return cover_by_scipy(indptr, indices, n_destinations)
    covers, served = np.empty(len(indptr) - 1, np.uint8), np.empty(n_destinations, np.uint8)
    kernels().operations("plain")["minimum_cover"](1, indptr, indices, covers, served)
    return covers.view(bool), served.view(bool)


def pairs_with_sums(work: np.ndarray, saved: np.ndarray, moved: np.ndarray, sums: np.ndarray,
                    served_with: np.ndarray | None = None) -> np.ndarray:
    """Which pairs of ranks send sums such that the work stays balanced, (n, n) bool.

    work: (n,) entries of each rank's products if only rows are sent. By (receiver, sender), (n, n):
    saved rows, entries moved from the receiver to the sender, sums that the receiver adds. Pairs
    whose sums save least for what they move are left out until no rank has more than MOST_WORK
    times what the most loaded one has without sums.

    served_with: (n, n) the rank of whose message with a sender a receiver's rows and sums are part;
    None: of its own. Saved rows, and the answer, are those of that rank.
    """
    n = len(work)
    served_with = np.indices((n, n))[0] if served_with is None else served_with
    columns = np.arange(n)
    moved_together = np.zeros_like(moved)
    np.add.at(moved_together, (served_with, columns), moved)
    chosen = saved > 0
    most = MOST_WORK * work.max(initial=0)
    worth = saved / np.maximum(moved_together, 1)
    served = chosen[served_with, columns]
    load = work + (moved * served).sum(axis=0) + ((sums - moved) * served).sum(axis=1)
    while len(load) and load.max() > most:
        sender = int(load.argmax())
        receivers = np.flatnonzero(chosen[:, sender] & (moved_together[:, sender] > 0))
        if not len(receivers):               # it has more to do as a receiver: by a few sums
            break
        receiver = int(receivers[worth[receivers, sender].argmin()])
        chosen[receiver, sender] = False
        load[sender] -= moved_together[receiver, sender]
        readers = served_with[:, sender] == receiver
        load[readers] += (moved - sums)[readers, sender]
    return chosen


def cover_by_scipy(indptr: np.ndarray, indices: np.ndarray,
                   n_destinations: int) -> tuple[np.ndarray, np.ndarray]:
    """The same without compiled kernels, several times slower."""
    import scipy.sparse as sp
    from scipy.sparse.csgraph import maximum_bipartite_matching
    n_sources = len(indptr) - 1
    graph = sp.csr_matrix((np.ones(len(indices), np.int8), indices, indptr),
                          shape=(n_sources, n_destinations))
    matched = maximum_bipartite_matching(graph, perm_type="column")  # the destination, or -1
    partner = np.full(n_destinations, -1, np.int64)
    partner[matched[matched >= 0]] = np.flatnonzero(matched >= 0)
    # What alternating paths reach from sources without a partner: the cover is made of the sources
    # that they do not reach, and the destinations that they do.
    reached, served = matched < 0, np.zeros(n_destinations, bool)
    frontier = np.flatnonzero(reached)
    while len(frontier):
        newly_served = np.unique(indices[_entries(indptr, frontier)])
        newly_served = newly_served[~served[newly_served]]
        served[newly_served] = True
        frontier = partner[newly_served]
        frontier = frontier[~reached[frontier]]
        reached[frontier] = True
    return ~reached, served


def _entries(indptr: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Positions of all entries of these rows."""
    lengths = indptr[rows + 1] - indptr[rows]
    return np.repeat(indptr[rows] - np.cumsum(lengths) + lengths, lengths) + np.arange(
        lengths.sum())
