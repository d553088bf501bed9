"""Which rows training needs, hop by hop, backwards from the nodes whose loss is counted.

The loss reads logits of training nodes. The last hop makes these from the rows of their
in-neighbours, the hop before makes those from theirs, and so on. So block k of a model with H hops
(the steps after hop k) is needed at nodes that are at most H - k hops away from a training node,
counted along edges from the node that is read to the node that reads it. A node keeps being needed
in all blocks before, so one number per node says it all: its distance. Rows that are needed nowhere
need not be computed, stored, sent or received, and their gradients are zero.
"""

from __future__ import annotations

import numpy as np

from hpcgcn.graph.data import Part
from hpcgcn.graph.traffic import distances_within, mark_distance, read_columns
from hpcgcn.mpi import large
from hpcgcn.mpi.halo import find_halo
from hpcgcn.nn.models import Shape, plan_model
from hpcgcn.parallel.rows import counts_in_loss

__all__ = ["NeededRows", "count_hops", "distances", "distances_within"]


class NeededRows:
    """Which rows each block of a model needs: those of a distance up to a limit.

    distance: (n_rows,) of each row, see `distances`. n_hops: of the model. all_rows: training
    computes all rows, needed or not.
    """

    def __init__(self, distance: np.ndarray, n_hops: int, all_rows: bool = False):
        self.distance, self.n_hops, self.all_rows = distance, n_hops, all_rows

    def limit(self, block: int) -> int:
        """The largest distance of a row that block 0 .. n_hops is run on."""
        return self.n_hops + 1 if self.all_rows else self.n_hops - block

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


def count_hops(shape: Shape, *, sparse: bool, precomputed: bool) -> int:
    """How many hops a model has; sparse: are the features; precomputed: is the first one done at
    start?"""
    return len(plan_model(shape, 1, sparse=sparse, precomputed=precomputed).line.hops)


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
