"""Which halo rows of every part are sent as they are, and which only as parts of sums, if all rows
are exchanged: computed once, when a graph is partitioned, and kept in the partition file.

Hops of training that need fewer rows, and files without it, make their covers at load.
"""

from __future__ import annotations

import numpy as np

from hpcgcn.graph.cover import minimum_cover
from hpcgcn.graph.traffic import cut_edges

REMOTE_BLOCK = 1 << 18     # entries that are looked at at once


def halo_cover(indptr: np.ndarray, indices: np.ndarray, assignment: np.ndarray,
               order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(where the halo rows of each part begin (n_parts + 1,), is each in the cover (M,) bool).

    order: the nodes, part by part: halo rows of a part are in this order. A halo row that is not in
    the cover is part of sums for all rows that read it.
    """
    n_parts = int(assignment.max()) + 1
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    bounds = np.concatenate([[0], np.cumsum(np.bincount(assignment, minlength=n_parts))])
    covers = []
    for part in range(n_parts):
        rows = order[bounds[part]:bounds[part + 1]]
        source, target = cut_edges(indptr, indices, rows, assignment, part)
        halo, cover = _of_part(source, (place[target] - bounds[part]).astype(np.int32),
                               assignment[source], len(rows))
        covers.append(cover[np.argsort(place[halo])])
    offsets = np.concatenate([[0], np.cumsum([len(cover) for cover in covers])])
    return offsets.astype(np.int64), np.concatenate([np.zeros(0, bool), *covers])


def cover_of_part(indptr: np.ndarray, indices: np.ndarray, assignment: np.ndarray,
                  part: int) -> tuple[np.ndarray, np.ndarray]:
    """(halo nodes of a part, is each in the cover), given the rows of that part alone; their
    entries are numbers of all nodes."""
    n_rows = len(indptr) - 1
    source, target = cut_edges(indptr, indices, np.arange(n_rows), assignment, part)
    return _of_part(source, target.astype(np.int32), assignment[source], n_rows)


def stored_cover(file, offsets: np.ndarray, part: int, indices: np.ndarray) -> np.ndarray | None:
    """The same of one part as a partition file has it, (n_halo,) bool; None: it has none.

    indices: what the rows of the part read. ValueError if it is not what that file can have.
    """
    if "halo_cover" not in file:
        return None
    first = file["halo_offsets"][...]
    if first[0] != 0 or first[-1] != len(file["halo_cover"]) or (np.diff(first) < 0).any():
        raise ValueError("halo_offsets must rise from 0 to the number of halo rows "
                         f"({len(file['halo_cover'])})")
    n_halo = len(distinct_remote(indices, int(offsets[part]), int(offsets[part + 1])))
    cover = file["halo_cover"][first[part]:first[part + 1]]
    if len(cover) != n_halo or (cover > 1).any():
        raise ValueError(f"halo_cover must have 0 or 1 for each of the {n_halo} halo rows of part "
                         f"{part}")
    return cover.astype(bool)


def distinct_remote(indices: np.ndarray, start: int, stop: int) -> np.ndarray:
    """The distinct numbers outside of start:stop, ascending, in little memory besides."""
    distinct, new, n_new = indices[:0], [], 0
    for at in range(0, len(indices), REMOTE_BLOCK):
        block = indices[at:at + REMOTE_BLOCK]
        new.append(np.unique(block[(block < start) | (block >= stop)]))
        n_new += len(new[-1])
        if n_new > max(REMOTE_BLOCK, len(distinct)):
            distinct, new, n_new = np.unique(np.concatenate([distinct, *new])), [], 0
    return np.unique(np.concatenate([distinct, *new])) if new else distinct


def _of_part(source: np.ndarray, reader: np.ndarray, owner: np.ndarray,
             n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """(halo nodes of one part, which of them are in the covers), owner by owner.

    For each edge, sorted by owner and source: the node that is read and its part, and which of the
    n_rows of this part reads it.
    """
    first = np.flatnonzero(np.diff(source, prepend=-1))      # edge of each halo node
    cover = np.empty(len(first), bool)
    cuts = np.flatnonzero(np.diff(owner, prepend=-1, append=-1))
    for begin, end in zip(cuts[:-1], cuts[1:]):
        nodes = slice(*np.searchsorted(first, (begin, end)))
        indptr = np.append(first[nodes], end) - begin
        cover[nodes], _ = minimum_cover(indptr, reader[begin:end], n_rows)
    return source[first], cover
