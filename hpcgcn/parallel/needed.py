"""Which rows training needs, hop by hop, backwards from the nodes whose loss is counted.

The loss reads logits of training nodes. The last hop makes these from the rows of their
in-neighbours, the hop before makes those from theirs, and so on. So block k of a model with H hops
(the steps after hop k) is needed at nodes that are at most H - k hops away from a training node,
counted along edges from the node that is read to the node that reads it. A node keeps being needed
in all blocks before, so one number per node says it all: its distance. Rows that are needed nowhere
need not be computed, stored, sent or received, and their gradients are zero.

BatchNorm is an exception: its statistics are those of all nodes, and so all rows are needed up to
the block of the last one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hpcgcn.graph.data import Part
from hpcgcn.graph.traffic import distances_within, mark_distance, read_columns
from hpcgcn.mpi import large
from hpcgcn.mpi.halo import find_halo
from hpcgcn.nn.models import Shape, plan_model
from hpcgcn.parallel.rows import counts_in_loss

__all__ = ["Depth", "EVALUATED", "NeededRows", "count_hops", "distances", "distances_within",
           "model_depth"]


class Depth(NamedTuple):
    """How deep a model is that is trained."""

    n_hops: int | None               # None: it is only evaluated, and needs all rows
    whole_blocks: int = 0            # so many of its first blocks are run on all rows


EVALUATED = Depth(None)


class NeededRows:
    """Which rows each block of a model needs: those of a distance up to a limit.

    distance: (n_rows,) of each row, see `distances`. n_hops: of the model. all_rows: training
    computes all rows, needed or not. whole_blocks: so many of the first blocks do.
    """

    def __init__(self, distance: np.ndarray, n_hops: int, all_rows: bool = False,
                 whole_blocks: int = 0):
        self.distance, self.n_hops, self.all_rows = distance, n_hops, all_rows
        self.whole_blocks = whole_blocks

    def limit(self, block: int) -> int:
        """The largest distance of a row that block 0 .. n_hops is run on."""
        whole = self.all_rows or block < self.whole_blocks
        return self.n_hops + 1 if whole else self.n_hops - block

    def mask(self, block: int) -> np.ndarray:
        """Which rows block 0 .. n_hops is run on: those that hop `block` makes and hop
        `block + 1` reads. (n_rows,) bool."""
        return self.distance <= self.limit(block)

    @property
    def n_in_loss(self) -> int:
        """How many rows are in the loss."""
        return int(np.count_nonzero(self.distance == 0))

    def count(self, block: int) -> int:
        """How many they are: where rows are in the order of their distances, the first so many."""
        return int(np.count_nonzero(self.mask(block)))


def model_depth(shape: Shape, *, sparse: bool, precomputed: bool) -> Depth:
    """Of a model; sparse: are the features; precomputed: is the first hop done at start?"""
    line = plan_model(shape, 1, sparse=sparse, precomputed=precomputed).line
    whole = [k for k, steps in enumerate(line.segments) if any(s.whole_columns for s in steps)]
    return Depth(len(line.hops), max(whole, default=-1) + 1)


def count_hops(shape: Shape, *, sparse: bool, precomputed: bool) -> int:
    """How many hops a model has."""
    return model_depth(shape, sparse=sparse, precomputed=precomputed).n_hops or 0


def distances(comm, part: Part, n_hops: int, halo=None) -> np.ndarray:
    """Hops from each node of a part to the nearest node of the loss, (n_owned,) int32 in the part's
    order. Collective.

    Nodes farther than n_hops get n_hops + 1. halo: what `find_halo` says of this part, if that is
    known already.
    """
    ids, counts, read_by = halo or find_halo(comm, part.offsets, part.rank, part.indices)
    bounds = np.concatenate([[0], np.cumsum(counts)])
    start, stop = int(part.offsets[part.rank]), int(part.offsets[part.rank + 1])
    distance = np.where(counts_in_loss(part), 0, n_hops + 1).astype(np.int32)
    for now in range(n_hops):
        reached = read_columns(part.indptr, part.indices, np.flatnonzero(distance == now),
                               int(part.offsets[-1]))
        of_others = [np.empty(len(rows), bool) for rows in read_by]
        read = reached[ids]
        large.exchange(comm, [(marks, rank) for rank, marks in enumerate(of_others)],
                       [(read[bounds[rank]:bounds[rank + 1]], rank) for rank in range(comm.size)])
        reached = reached[start:stop]
        for rows, marks in zip(read_by, of_others):
            reached[rows[marks]] = True
        if not comm.allreduce(mark_distance(distance, reached, now + 1)):
            break
    return distance
