"""How many rows the hops of a model exchange over a partition: all halo rows, those that the loss
depends on, and the fewest rows and partial sums that take their place."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpcgcn.graph.cover import WORTH, minimum_cover, pairs_with_sums
from hpcgcn.graph.csr import entry_positions, row_blocks, row_numbers, take_indptr

MOST_HOPS = 3                        # are told: before them most graphs need all rows


def distances_within(indptr: np.ndarray, indices: np.ndarray, trains: np.ndarray,
                   n_hops: int) -> np.ndarray:
    """Hops from each node of a whole graph to the nearest node of the loss, (n_nodes,) int32.

    trains: (n_nodes,) bool, the nodes of the loss. Nodes farther than n_hops get n_hops + 1.
    """
    distance = np.where(trains, 0, n_hops + 1).astype(np.int32)
    for now in range(n_hops):
        reached = read_columns(indptr, indices, np.flatnonzero(distance == now), len(trains))
        if not mark_distance(distance, reached, now + 1):
            break
    return distance


def read_columns(indptr: np.ndarray, indices: np.ndarray, rows: np.ndarray,
                 n_columns: int) -> np.ndarray:
    """Which columns these rows have entries in, (n_columns,) bool."""
    reached = np.zeros(n_columns, bool)
    taken = take_indptr(indptr, rows)
    for block in row_blocks(taken):
        block_indptr = taken[block.start:block.stop + 1]
        reached[indices[entry_positions(indptr, rows[block], block_indptr)]] = True
    return reached


def mark_distance(distance: np.ndarray, reached: np.ndarray, to: int) -> int:
    """Give the nodes that are reached for the first time their distance; how many they are."""
    new = reached & (distance > to)
    distance[new] = to
    return int(np.count_nonzero(new))


def exchanged_rows(indptr: np.ndarray, indices: np.ndarray, assignment: np.ndarray,
                   trains: np.ndarray, n_hops: int = MOST_HOPS) -> list[dict]:
    """For the last hop of a model, the hop before and so on: rows over all pairs of parts.

    "all" halo rows; "needed" for the loss; "cover": the fewest rows and sums that take the place of
    needed rows; "auto": the same where that leaves the work balanced, which is what training
    sends; "entries" of each part's products, with rows alone and as training divides them.
    """
    distance = distances_within(indptr, indices, trains, n_hops)
    n_parts = int(assignment.max()) + 1 if len(assignment) else 0
    hops: list[dict[str, Any]] = [{"all": 0, "needed": 0, "cover": 0,
                                   "work": np.zeros(n_parts, np.int64),
                                   "pairs": np.zeros((3, n_parts, n_parts), np.int64)}
                                  for _ in range(n_hops)]
    order = np.argsort(assignment, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(assignment, minlength=n_parts))])
    for part in range(n_parts):
        rows = order[bounds[part]:bounds[part + 1]]
        source, target = cut_edges(indptr, indices, rows, assignment, part)
        bounds_by_owner = np.searchsorted(assignment[source], np.arange(n_parts + 1))
        lengths = np.diff(indptr)[rows]
        for farthest, hop in enumerate(hops):
            hop["work"][part] += int(lengths[distance[rows] <= farthest].sum())
        for first, last in zip(bounds_by_owner[:-1], bounds_by_owner[1:]):
            if last > first:
                _count_pair(hops, source[first:last], target[first:last], distance,
                            int(assignment[source[first]]), part)
    return [_divided(hop) for hop in hops]


def rows_between_hosts(indptr: np.ndarray, indices: np.ndarray, assignment: np.ndarray,
                       trains: np.ndarray, ranks_per_host: int,
                       n_hops: int = MOST_HOPS) -> list[dict]:
    """The same of needed rows that cross from host to host, where so many parts in a row are on
    one: "between_hosts" counts a row once per part that reads it, "once_per_host" once per host,
    "cover_per_host" the fewest rows and sums if a row serves all parts of a host."""
    distance = distances_within(indptr, indices, trains, n_hops)
    n_parts = int(assignment.max()) + 1 if len(assignment) else 0
    hops = [dict.fromkeys(("between_hosts", "once_per_host", "cover_per_host"), 0)
            for _ in range(n_hops)]
    host_of = assignment // max(ranks_per_host, 1)
    for host in range(-(-n_parts // ranks_per_host)):
        rows = np.flatnonzero(host_of == host)
        source, target = cut_edges(indptr, indices, rows, assignment, -1)
        away = host_of[source] != host
        source, target = source[away], target[away]
        for farthest, hop in enumerate(hops):
            needed = distance[target] <= farthest
            by_part = source[needed] * n_parts + assignment[target[needed]]
            hop["between_hosts"] += len(np.unique(by_part))
            senders = assignment[source[needed]]
            cuts = np.searchsorted(senders, np.arange(n_parts + 1))
            for first, last in zip(cuts[:-1], cuts[1:]):
                counts = _pair_cover(source[needed][first:last], target[needed][first:last])
                hop["once_per_host"] += counts[0]
                hop["cover_per_host"] += counts[1]
    return hops


def _divided(hop: dict[str, Any]) -> dict:
    """A hop's counts with what training sends, and the work of each part."""
    work, (saved, moved, sums) = hop.pop("work"), hop.pop("pairs")
    chosen = pairs_with_sums(work, saved, moved, sums)
    load = work + (moved * chosen).sum(axis=0) + ((sums - moved) * chosen).sum(axis=1)
    return hop | {"auto": hop["needed"] - int((saved * chosen).sum()),
                  "entries": {"rows": work.tolist(), "auto": load.tolist()}}


def cut_edges(indptr, indices, rows: np.ndarray, assignment: np.ndarray,
              part: int) -> tuple[np.ndarray, np.ndarray]:
    """(node that is read, row that reads it) of the edges into a part, by the part of the node that
    is read; -1: rows of several parts, with all their edges."""
    taken = take_indptr(indptr, rows)
    sources, targets = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for block in row_blocks(taken):
        block_indptr = taken[block.start:block.stop + 1]
        columns = np.asarray(indices[entry_positions(indptr, rows[block], block_indptr)], np.int64)
        remote = assignment[columns] != part
        sources.append(columns[remote])
        targets.append(rows[block][row_numbers(block_indptr)][remote])
    source, target = np.concatenate(sources), np.concatenate(targets)
    by_owner = np.lexsort((source, assignment[source]))
    return source[by_owner], target[by_owner]


def _count_pair(hops: list[dict], source: np.ndarray, target: np.ndarray, distance: np.ndarray,
                sender: int, receiver: int):
    """Add what one part sends to another. source: sorted."""
    n_rows = len(np.unique(source))
    counted = None
    for farthest, hop in enumerate(hops):
        needed = distance[target] <= farthest
        if counted is None or np.count_nonzero(needed) != counted[0]:
            counted = (int(np.count_nonzero(needed)), *_pair_cover(source[needed], target[needed]))
        _, n_needed, n_cover, n_sums, moved = counted
        hop["all"] += n_rows
        hop["needed"] += n_needed
        hop["cover"] += n_cover
        if n_needed - n_cover > WORTH * n_needed:
            hop["pairs"][:, receiver, sender] = n_needed - n_cover, moved, n_sums


def _pair_cover(source: np.ndarray, target: np.ndarray) -> tuple[int, int, int, int]:
    """(sources, rows and sums of the cover, sums among them, edges that sums serve)."""
    rows, first = np.unique(source, return_index=True)
    targets, place = np.unique(target, return_inverse=True)
    indptr = np.append(first, len(source)).astype(np.int64)
    covers, served = minimum_cover(indptr, place.astype(np.int32), len(targets))
    n_sums = int(served.sum())
    if int(covers.sum()) + n_sums == len(rows):      # no fewer: rows, which move no work
        return len(rows), len(rows), 0, 0
    moved = int(np.diff(indptr)[~covers].sum())
    return len(rows), int(covers.sum()) + n_sums, n_sums, moved
