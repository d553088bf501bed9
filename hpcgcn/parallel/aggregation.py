"""How a model's hops are carried out: which rows become complete when.

    push(rows, context)   these rows of the input are ready: keep them, send halo rows
    pull(context)         yields ranges of rows of the output, complete, as soon as they are

All rows of a hop are pushed before the first pull, each row once. There is one aggregation per hop
and direction: A going forward (values), its transpose going back (gradients). Training and
evaluation may have the rows in different places (nn/pass_memory.py): an aggregation asks a planned
array where it is in every pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hpcgcn.exchange.exchange import Exchange
from hpcgcn.nn.fields import Array, Field
from hpcgcn.nn.models import Hop
from hpcgcn.nn.steps import PassContext

Rows = tuple[int, int]


class Aggregation:
    """One hop in one direction."""

    multiply_adds = 0                # of its sparse product on this rank, per pass

    def push(self, rows: Rows, context: PassContext):
        """These rows of the input are ready."""
        raise NotImplementedError

    def pull(self, context: PassContext) -> Iterator[Rows]:
        """Yield ranges of rows of the output, complete, as soon as they are."""
        raise NotImplementedError


class Aggregations:
    """The aggregations of a model on this rank.

    `forward[k]` and `backward[k]` belong to hop k + 1.
    """

    forward: Sequence[Aggregation]       # training
    backward: Sequence[Aggregation | None]   # training; None where no gradient is needed
    evaluation: Sequence[Aggregation]    # exact: no staleness, no coding
    blocks: list[Rows]               # the order in which rows enter the first block of a pass
    # (hop, "forward" or "backward", exchange) of training, for accounting and checkpoints
    exchanges: list[tuple[int, str, Exchange]]
    role = "both"  # of this rank: it aggregates ("sparse"), updates ("dense") or does both

    def multiply_adds(self) -> int:
        """Multiply-adds of this rank's sparse products in an epoch of training: what aggregation is
        balanced by."""
        return sum(n for _, _, n in self.work())

    def work(self) -> list[tuple[int, str, int]]:
        """(hop, direction, multiply-adds) of the sparse products that are counted one by one."""
        return [(hop, direction, int(aggregation.multiply_adds))
                for direction, own in (("forward", self.forward), ("backward", self.backward))
                for hop, aggregation in enumerate(own, 1) if aggregation is not None]

    def n_needed(self, block: int) -> int:
        """How many rows training runs a block of the model on: the first ones."""
        return max((stop for _, stop in self.blocks), default=0)

    def n_in_loss(self) -> int:
        """How many rows may be in the loss: the first ones."""
        return max((stop for _, stop in self.blocks), default=0)

    def needed_blocks(self, block: int) -> list[Rows]:
        """These rows, in the order in which they enter a pass that begins with this block."""
        return self.blocks

    def named_exchanges(self) -> dict[str, Any]:
        """Training's exchanges by a name of their own, for checkpoints."""
        names: dict[str, Any] = {}
        for hop, direction, exchange in self.exchanges:
            stem = f"{hop}.{direction}"
            names[stem if stem not in names
                  else f"{stem}.{sum(n.startswith(stem) for n in names)}"] = exchange
        return names

    def close(self):
        """Free what MPI holds."""


def largest_block(backend, width: int) -> int:
    """Rows of a block of this width that suits the backend."""
    return max(256, backend.block_bytes // (4 * max(width, 1)))


def row_blocks(backend, start: int, stop: int, width: int) -> list[Rows]:
    """Cut a range of rows into blocks of this width that suit the backend."""
    size = largest_block(backend, width)
    return [(at, min(at + size, stop)) for at in range(start, stop, size)]


def scales(normalisation: str, degree: np.ndarray, halo_degree: np.ndarray, dtype):
    """(row scale, column scale of owned, column scale of halo); None means 1.

    Degrees are those of the whole graph, sums of weights where edges have them.
    """
    if normalisation == "sum":
        return None, None, None
    safe, halo_safe = (np.where(sums > 0, sums, 1) for sums in (degree, halo_degree))
    if normalisation == "mean":
        return (1.0 / safe).astype(dtype), None, None
    return ((safe ** -0.5).astype(dtype),) * 2 + ((halo_safe ** -0.5).astype(dtype),)


class GatherStores:
    """Where rows wait to be gathered.

    A hop is gathered from while the next one's rows arrive, so two in turn do.
    """

    def __init__(self, backend, precision: str):
        self.backend, self.precision = backend, precision
        self._stores: dict[tuple, Any] = {}

    def storage(self, what: str, source: Array, turn: int, reuse: float) -> Storage:
        """For rows gathered `reuse` times on average; fields of one kind, shape and turn share a
        place."""
        key = (what, turn % 2, source.shape, reuse)
        if key not in self._stores:
            self._stores[key] = self.backend.gather_store(source.shape, self.precision, reuse)
        return Storage(self.backend, source, self._stores[key])


class Storage:
    """The rows that an aggregation gathers: as they are, or in 16 bits or another layout
    (arithmetic stays as it is)."""

    def __init__(self, backend, source: Array, store=None):
        self.backend, self.source, self.store = backend, source, store

    def keep(self, rows: Rows):
        """These rows of the source are ready."""
        if self.store is not None:
            self.backend.store_rows(self.source.data, self.store, rows)

    @property
    def rows(self):
        """What the SpMM gathers from."""
        return self.source.data if self.store is None else self.store


def multiply(backend, matrix, x, out, blocks: list[Rows], accumulate: bool = False,
             progress=lambda: None) -> Iterator[Rows]:
    """out[rows] (= or +=) A[rows] x for blocks of rows; yields each when it is complete.

    `progress` is called in between.
    """
    *passes, last = backend.gather_passes(x)
    for part in passes:
        for rows in blocks:
            backend.spmm(matrix, part, out, rows=rows, accumulate=accumulate)
            progress()
    for rows in blocks:
        backend.spmm(matrix, last, out, rows=rows, accumulate=accumulate)
        progress()
        yield rows


def reuse(matrix) -> float:
    """How often a column is gathered, on average."""
    return matrix.nnz / max(matrix.shape[1], 1)


def gathers_gradient(hop: Hop) -> bool:
    """Does this hop carry gradients back? Not if its input is the features themselves."""
    return hop.source.wants_gradient


def planned_gradient(field: Field) -> Array:
    """The array of a field's gradient, of a hop that carries gradients back."""
    if field.planned_grad is None:
        raise ValueError(f"the field {field.name} has no gradient")
    return field.planned_grad
