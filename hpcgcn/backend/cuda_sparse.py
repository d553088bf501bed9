"""Sparse matrices on the device: the structure, the lists that share rows among warps, and
transposes.

The lists depend on the matrix alone, so every sum is taken in the same order in every run and for
every block of rows.
"""

from __future__ import annotations

import copy
import weakref

import numpy as np

from hpcgcn.backend import cuda_kernels
from hpcgcn.backend.base import count_entries
from hpcgcn.backend.cuda_kernels import NULL, blocks, lanes_for

SHORT_ROW = 16                    # entries up to which a row does not get a warp of its own
SEGMENT = 512                     # entries that one warp adds; longer rows are cut
PADDED_FROM, PADDED_REUSE = 8, 4  # wider rows of x, gathered so often, are copied to where vectors
                                  # can read them
NARROW_TILE = 32                  # columns: whole sectors of 32 bytes also in 16-bit storage


class RowLists:
    """Which rows are done how, ascending: short rows, items of (row, segment, slot, 0), hubs of
    (row, slot, count, 0)."""

    def __init__(self, upload, lengths: np.ndarray, skip_empty: bool):
        segments = np.where(lengths > SHORT_ROW, -(-lengths // SEGMENT), 0)
        shortest = 1 if skip_empty else 0
        self.short_rows = np.flatnonzero((lengths <= SHORT_ROW)
                                         & (lengths >= shortest)).astype(np.int32)
        long_rows = np.flatnonzero(segments)
        self.hub_rows = np.flatnonzero(segments > 1)
        counts = segments[self.hub_rows]
        first_slot = np.concatenate([[0], np.cumsum(counts)[:-1]])[:len(counts)]
        self.items = self._items(long_rows, segments, first_slot)
        self.hubs = np.stack([self.hub_rows, first_slot, counts, 0 * counts],
                             axis=1).astype(np.int32)
        self.device_short, self.device_items, self.device_hubs = map(
            upload, (self.short_rows, self.items, self.hubs))

    def _items(self, long_rows, segments, first_slot) -> np.ndarray:
        """One item a segment: (row, number of the segment in its row, slot of its partial sum or
        -1, 0)."""
        rows = np.repeat(long_rows, segments[long_rows])
        starts = np.cumsum(segments[long_rows]) - segments[long_rows]
        numbers = np.arange(len(rows)) - np.repeat(starts, segments[long_rows])
        slot_of_row = np.full(len(segments), -1)
        slot_of_row[self.hub_rows] = first_slot
        slots = np.where(slot_of_row[rows] >= 0, slot_of_row[rows] + numbers, -1)
        return np.stack([rows, numbers, slots, 0 * rows], axis=1).astype(np.int32).reshape(-1, 4)

    def cut(self, start: int, stop: int):
        """The part of each list that belongs to rows start:stop, as slices."""
        return tuple(slice(*np.searchsorted(rows, (start, stop)))
                     for rows in (self.short_rows, self.items[:, 0], self.hub_rows))


class Structure:
    """indptr and indices on host and device; `entry` maps entries to those of the matrix this is a
    transpose of."""

    def __init__(self, upload, indptr, indices, n_columns: int, entry=None):
        self._upload = upload
        self.host_indptr, self.host_indices, self.n_columns = indptr, indices, n_columns
        self.indptr, self.indices = upload(indptr), upload(indices)
        self.host_ends, self.row_ends = indptr[1:], self.indptr[1:]
        self.host_entry, self._entry = entry, None
        self._lists: dict[bool, RowLists] = {}               # with and without empty rows
        self._transposes: dict[tuple[int, int], Structure] = {}      # by range of rows

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.host_indptr) - 1

    def entry(self):
        """The map of entries on the device; only matrices with weights need it."""
        if self._entry is None and self.host_entry is not None:
            self._entry = self._upload(self.host_entry)
        return self._entry

    def lists(self, skip_empty: bool) -> RowLists:
        """The row lists; sums that are added to the output may skip empty rows."""
        if skip_empty not in self._lists:
            lengths = self.host_ends - self.host_indptr[:-1]
            self._lists[skip_empty] = RowLists(self._upload, lengths, skip_empty)
        return self._lists[skip_empty]

    def ending(self, row_ends: np.ndarray) -> Structure:
        """The same arrays with rows that end earlier; for products alone."""
        shorter = copy.copy(self)
        shorter.host_ends, shorter.row_ends = row_ends, self._upload(row_ends)
        shorter._lists, shorter._transposes = {}, {}
        return shorter

    def transposed(self, start: int, stop: int) -> Structure:
        """Rows start:stop transposed, built once: entries of a column stay in the order of the
        rows."""
        if (start, stop) not in self._transposes:
            first, last = int(self.host_indptr[start]), int(self.host_indptr[stop])
            columns = np.asarray(self.host_indices[first:last])
            order = np.argsort(columns, kind="stable")
            rows = np.repeat(np.arange(start, stop), np.diff(self.host_indptr[start:stop + 1]))
            counts = np.bincount(columns, minlength=self.n_columns)
            indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
            self._transposes[start, stop] = Structure(self._upload, indptr,
                                                      rows[order].astype(np.int32), self.n_rows,
                                                      entry=(order + first).astype(np.int64))
        return self._transposes[start, stop]


class CudaMatrix:
    """A sparse matrix handle: a structure that other handles may share, with weights and scales of
    its own."""

    def __init__(self, structure: Structure, weights, row_scale, column_scale):
        self.structure, self.weights = structure, weights
        self.row_scale, self.column_scale = row_scale, column_scale
        self.shape = (structure.n_rows, structure.n_columns)
        self.nnz = count_entries(structure.host_indptr, structure.host_ends)


class Structures:
    """Structures by the identity of their host arrays: matrices over the same arrays share them on
    the device too."""

    def __init__(self, upload):
        self._upload = upload
        self._known = {}

    def get(self, indptr, indices, n_columns: int) -> Structure:
        """The structure of these arrays, put on the device once."""
        key = id(indptr), id(indices), n_columns
        known = self._known.get(key, lambda: None)()
        if known is None or known.host_indptr is not indptr or known.host_indices is not indices:
            known = Structure(self._upload, indptr, indices, n_columns)
            self._known[key] = weakref.ref(known)
        return known


def lanes_of_tile(width: int, vector: int, column_bytes: int, cache_bytes: float) -> int:
    """Threads that share a row, and so the columns of a tile: all tiles are done one after the
    other, over all rows.

    Narrow tiles where the rows of x would leave the cache between their uses, and with 32 columns
    do not: the indices are read several times then, each row of x comes from memory once.
    """
    lanes = max(4, lanes_for(width, vector))
    narrow = max(1, NARROW_TILE // vector)
    tile_bytes = min(width, lanes * vector) * column_bytes
    return narrow if narrow < lanes and tile_bytes > cache_bytes >= NARROW_TILE * column_bytes \
        else lanes


def multiply(backend, structure: Structure, scales, x, out, rows, accumulate, mask=None,
             mask_scale=1.0):
    """out[rows] = (or +=) A[rows] @ x with `scales` = (weights, row_scale, column_scale) of the
    structure's matrix."""
    width = out.shape[1]
    lists = structure.lists(skip_empty=accumulate)
    short, items, hubs = lists.cut(*rows)
    slots = lists.hubs[hubs]
    n_slots = int(slots[:, 2].sum())
    x, vector, partials = _operands(backend, structure, x, mask, out, n_slots)
    pitch = x.shape[1]
    lanes = lanes_of_tile(width, vector, x.shape[0] * x.itemsize, backend.cache_bytes)
    tiles = blocks(width, lanes * vector)
    kind = f"<{cuda_kernels.C_NAMES[x.dtype]}, {vector}, {lanes}>"
    weights, row_scale, column_scale = (NULL if a is None else a for a in scales)
    entry = structure.entry() if scales[0] is not None else None
    matrix = (structure.indptr, structure.row_ends, structure.indices,
              NULL if entry is None else entry, weights, row_scale, column_scale)
    dense = (x, NULL if mask is None else mask, np.float32(mask_scale), out, np.int32(width),
             np.int32(pitch), np.int32(accumulate))
    if short.stop > short.start:
        count = short.stop - short.start
        group = cuda_kernels.BLOCK // lanes
        backend.launch(f"spmm_short{kind}", (blocks(count, group), tiles), (lanes, group),
                       (lists.device_short[short], np.int32(count), *matrix, *dense))
    if items.stop > items.start:
        count = items.stop - items.start
        first_slot = int(slots[0, 1]) if len(slots) else 0
        backend.launch(f"spmm_long{kind}", (blocks(count, 8), tiles), (32, 8),
                       (lists.device_items[items], np.int32(count), np.int32(SEGMENT),
                        np.int32(first_slot), partials, *matrix, *dense))
        if len(slots):
            backend.launch(f"spmm_combine<{vector}>",
                           (blocks(len(slots), 8), blocks(width, 32 * vector)), (32, 8),
                           (lists.device_hubs[hubs], np.int32(len(slots)), np.int32(first_slot),
                            partials, row_scale, out, np.int32(width), np.int32(accumulate)))


def _operands(backend, structure: Structure, x, mask, out, n_slots: int):
    """(x, elements per vector, partial sums of hubs): x in rows that vectors can read, if its own
    are not and each is gathered often enough to pay for the copy."""
    n, width = x.shape
    padded = cuda_kernels.blocks(width, 4) * 4
    vector = 4 if width == padded and cuda_kernels.aligned(x, mask, out) else 1
    copies = (width > PADDED_FROM and width != padded and mask is None
              and len(structure.host_indices) >= PADDED_REUSE * n)
    x_bytes = n * padded * x.itemsize if copies else 0
    start = cuda_kernels.blocks(x_bytes, 256) * 256
    memory = backend.scratch((start + n_slots * padded * 4,), np.uint8)
    if copies:
        wide = memory[:x_bytes].view(x.dtype).reshape(n, padded)
        backend.copy_columns(x, wide[:, :width])
        x, vector = wide, 4
    pitch = padded if vector == 4 else width
    return x, vector, memory[start:start + n_slots * pitch * 4].view(np.float32).reshape(n_slots,
                                                                                        pitch)
