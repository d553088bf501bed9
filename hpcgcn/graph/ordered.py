"""Rows of a graph in another order, in bounded memory.

Datasets of a file are read from front to back, once for every GROUP_BYTES of the result; arrays in
memory are taken from directly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hpcgcn.files.datasets import pieces
from hpcgcn.graph.csr import index_dtype, row_blocks, row_numbers, take_indptr

GROUP_BYTES = 1 << 30      # of a result that is gathered in one reading of a file


def ordered_rows(array, order: np.ndarray, group_bytes: int | None = None) -> Iterator[np.ndarray]:
    """The rows of an array or dataset in the given order, in blocks."""
    row_bytes = array.dtype.itemsize * int(np.prod(array.shape[1:]))
    if isinstance(array, np.ndarray):
        for rows in pieces(len(order), row_bytes):
            yield array[order[rows]]
        return
    # A row takes two numbers besides itself.
    step = max(1, (group_bytes or GROUP_BYTES) // (row_bytes + 16))
    for start in range(0, len(order), step):
        yield from _gathered(array, order[start:start + step], row_bytes)


def _gathered(dataset, ids: np.ndarray, row_bytes: int) -> Iterator[np.ndarray]:
    """Some rows of a dataset, read once."""
    by_id = np.argsort(ids, kind="stable")
    sorted_ids = ids[by_id]
    group = np.empty((len(ids), *dataset.shape[1:]), dataset.dtype)
    for rows in pieces(dataset.shape[0], row_bytes):
        first, last = np.searchsorted(sorted_ids, (rows.start, rows.stop))
        if last > first:
            begin, end = int(sorted_ids[first]), int(sorted_ids[last - 1]) + 1
            group[by_id[first:last]] = dataset[begin:end][sorted_ids[first:last] - begin]
    for rows in pieces(len(group), row_bytes):
        yield group[rows]


def ordered_entries(indptr: np.ndarray, arrays: Sequence, order: np.ndarray,
                    stops: np.ndarray | None = None, group_bytes: int | None = None
                    ) -> Iterator[tuple[slice, np.ndarray, list[np.ndarray]]]:
    """(rows of the result, their indptr from 0, their entries of each array), group by group.

    arrays: with one value per entry of the CSR. stops: where a group may end (None: anywhere); a
    group that has to be larger than group_bytes is.
    """
    taken = take_indptr(indptr, order)
    entry_bytes = 16 + sum(array.dtype.itemsize for array in arrays)
    most = max(1, (group_bytes or GROUP_BYTES) // entry_bytes)
    start = 0
    while start < len(order):
        stop = max(start + 1, int(np.searchsorted(taken, taken[start] + most, side="right")) - 1)
        if stops is not None:
            next_stop = np.searchsorted(stops, start, side="right")
            stop = int(stops[max(next_stop, np.searchsorted(stops, stop, side="right") - 1)])
        own = taken[start:stop + 1] - taken[start]
        yield slice(start, stop), own, _gathered_entries(indptr, arrays, order[start:stop], own)
        start = stop


def _gathered_entries(indptr: np.ndarray, arrays: Sequence, ids: np.ndarray,
                      own: np.ndarray) -> list[np.ndarray]:
    """The entries of some rows, read once."""
    groups = [np.empty(int(own[-1]), array.dtype) for array in arrays]
    by_id = np.argsort(ids, kind="stable")
    sorted_ids = ids[by_id]
    for rows in row_blocks(indptr):
        first, last = np.searchsorted(sorted_ids, (rows.start, rows.stop))
        if last == first:
            continue
        here, place = sorted_ids[first:last], by_id[first:last]
        begin, end = int(indptr[here[0]]), int(indptr[here[-1] + 1])
        lengths = indptr[here + 1] - indptr[here]
        row_ends = np.cumsum(lengths)
        within = np.arange(int(row_ends[-1])) - np.repeat(row_ends - lengths, lengths)
        source = within + np.repeat(indptr[here] - begin, lengths)
        within += np.repeat(own[place], lengths)
        for group, array in zip(groups, arrays):
            group[within] = array[begin:end][source]
    return groups


def renumbered(indptr: np.ndarray, indices, order: np.ndarray, values=None,
               group_bytes: int | None = None) -> Iterator[np.ndarray]:
    """The entries of a square CSR with rows and columns in another order (new row i is old row
    order[i]), or their values, if given; every row is sorted by column."""
    place = np.empty(len(order), index_dtype(len(order)))
    place[order] = np.arange(len(order), dtype=place.dtype)
    arrays = [indices] if values is None else [indices, values]
    for _, own, gathered in ordered_entries(indptr, arrays, order, group_bytes=group_bytes):
        for block in row_blocks(own):
            entries = slice(int(own[block.start]), int(own[block.stop]))
            keys = row_numbers(own[block.start:block.stop + 1]) * len(order)
            keys += place[gathered[0][entries]]
            if values is None:
                keys.sort()
                keys %= len(order)
                yield keys.astype(place.dtype)
            else:
                yield gathered[1][entries][np.argsort(keys)]
