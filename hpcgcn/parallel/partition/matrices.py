"""The matrices of a partitioned graph on the backend: those that all hops share, and those of what
a hop exchanges."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpcgcn.exchange.codec import Draw, Rows as MessageRows
from hpcgcn.exchange.types import Route
from hpcgcn.parallel.aggregation import Rows, row_blocks, scales
from hpcgcn.parallel.local_graph import LocalGraph, Structure
from hpcgcn.parallel.partition.halo_plans import HopHalo, HopNeighbour
from hpcgcn.parallel.partition.host_exchange import HaloExchange
from hpcgcn.parallel.partition.row_weights import tell_weights


class PartitionedMatrices:
    """The matrices of a local graph; each is made when a hop first asks for it."""

    def __init__(self, backend, local: LocalGraph, normalisation: str):
        self.backend, self.local, self.n_owned = backend, local, local.n_owned
        self.rows, self.columns, self.halo_columns = scales(normalisation, local.degree,
                                                            local.halo_degree, backend.dtype)
        self.ids = backend.from_host(local.ids)
        self.inner = self.matrix(local.inner, self.rows, self.columns)
        self._transposes: dict[int, object] = {}
        self._halos: dict[int, HaloMatrices] = {}

    def matrix(self, structure: Structure, row_scale, column_scale, row_ends=None):
        """A structure with scales, on the backend."""
        return self.backend.csr(structure.indptr, structure.indices, structure.n_columns,
                                structure.weights, row_scale, column_scale, row_ends)

    def blocks(self, n_rows: int, boundary: bool, width: int) -> list[Rows]:
        """Blocks of interior or boundary rows among the first rows."""
        runs = self.local.runs(n_rows, boundary, self.backend.blocks_by_distance)
        return [block for run in runs
                for block in row_blocks(self.backend, *run, width)]

    def inner_t(self, n_first: int):
        """The transpose of the first rows: the others have no gradient."""
        if n_first not in self._transposes:
            self._transposes[n_first] = self.matrix(self.local.inner_t, self.columns, self.rows,
                                                    self.local.column_ends(n_first))
        return self._transposes[n_first]

    def halo(self, plan: HopHalo) -> HaloMatrices:
        """The matrices of an exchange."""
        if id(plan) not in self._halos:
            self._halos[id(plan)] = HaloMatrices(self, plan)
        return self._halos[id(plan)]


class HaloMatrices:
    """What a hop sends and receives: matrices, and the places of rows and sums in messages."""

    def __init__(self, matrices: PartitionedMatrices, plan: HopHalo):
        self.matrices, self.backend, self.plan = matrices, matrices.backend, plan
        columns = matrices.halo_columns
        if columns is not None:              # a sum is of rows that the sender has scaled
            columns = np.where(plan.halo_row < 0, 1, np.append(columns, 1)[plan.halo_row])
            columns = columns.astype(self.backend.dtype)
        self.columns = columns
        self.outer = matrices.matrix(plan.outer, matrices.rows, columns)      # owned x received
        self.outer_t = matrices.matrix(plan.outer_t, columns, matrices.rows)
        self.send_rows = [self.backend.from_host(n.send_rows) for n in plan.neighbours]
        self.sums = [matrices.matrix(n.sums, None, matrices.columns) for n in plan.neighbours]
        rank = matrices.local.plan.comm.rank
        self._received_rows = [MessageRows(None, None, n.received_names, reader=rank)
                               for n in plan.neighbours]
        nothing: tuple[Any, Any] = (None, None)
        self._summed_rows, self._sums_t = self._gradients_of_sums() if plan.has_sums else nothing
        self._of_draw: tuple[Any, Any] = (None, None)    # the last draw, and its matrices

    @property
    def n_entries(self) -> int:
        """Entries of all that is multiplied for an exchange: to make sums, and to use what
        arrives."""
        return self.outer.nnz + sum(matrix.nnz for matrix in self.sums)

    # -- what is drawn -----------------------------------------------------------------------------
    def of_draw(self, exchange: HaloExchange, epoch: int) -> tuple[Any, Any]:
        """(outer, its transpose) without the rows that an epoch leaves out: nothing is multiplied
        with zeros. Those of all rows if none is left out, if it is open which will be used, or if
        others drew them and passed them on."""
        policy = exchange.policy
        if not policy.codec.leaves_out or policy.staleness or self.plan.passes:
            return self.outer, self.outer_t
        rate, draw = policy.rate.rate(epoch), Draw(exchange.compressor.seed, epoch, 0)
        if self._of_draw[0] != (epoch, rate, policy.codec.name):
            arrives = np.zeros(self.plan.n_received, bool)
            for neighbour, rows in zip(self.plan.neighbours, self._received_rows):
                arrives[neighbour.received][policy.codec.chosen(rows, rate, draw)] = True
            outer = self.plan.outer.chosen(arrives[self.plan.outer.indices])
            outer_t = self.plan.outer_t
            outer_t = outer_t.chosen(np.repeat(arrives, np.diff(outer_t.indptr)))
            make, rows_scale = self.matrices.matrix, self.matrices.rows
            self._of_draw = ((epoch, rate, policy.codec.name),
                             (make(outer, rows_scale, self.columns),
                              make(outer_t, self.columns, rows_scale)))
        return self._of_draw[1]

    # -- forward: what is sent ---------------------------------------------------------------------
    def pack(self, x, gathered, out):
        """out (n_sent, width) = the rows of x and the sums that are sent; gathered: x as SpMM takes
        it."""
        for neighbour, send_rows, sums in zip(self.plan.neighbours, self.send_rows, self.sums):
            n_rows, target = len(neighbour.send_rows), out[neighbour.sent]
            self.backend.gather_rows(x, send_rows, target[:n_rows])
            if neighbour.sums.n_rows:
                self.backend.spmm(sums, gathered, target[n_rows:])

    # -- backward: what arrives --------------------------------------------------------------------
    def add_gradients(self, arrived, dx, scratch):
        """dx += the gradients (n_sent, width) of what was sent; scratch: (n_summed, width)."""
        for neighbour, send_rows in zip(self.plan.neighbours, self.send_rows):
            rows = arrived[neighbour.sent][:len(neighbour.send_rows)]
            self.backend.scatter_add_rows(rows, send_rows, dx)
        if self.n_summed:
            self.backend.spmm(self._sums_t, arrived, scratch)
            self.backend.scatter_add_rows(scratch, self._summed_rows, dx)

    @property
    def n_summed(self) -> int:
        """Owned rows that are in sums for others."""
        return 0 if self._summed_rows is None else len(self._summed_rows)

    def _gradients_of_sums(self):
        """(owned rows that are in sums, (those rows x all that is sent): what they get back)."""
        place, rows = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)]
        for neighbour in self.plan.neighbours:
            first = neighbour.sent.start + len(neighbour.send_rows)
            place.append(np.repeat(np.arange(first, neighbour.sent.stop),
                                   np.diff(neighbour.sums.indptr)))
            rows.append(neighbour.sums.indices)
        weights = None if self.plan.outer.weights is None else np.concatenate(
            [neighbour.sums.weights for neighbour in self.plan.neighbours])
        summed, row = np.unique(np.concatenate(rows), return_inverse=True)
        structure = Structure.of_entries(row, np.concatenate(place), len(summed),
                                         self.plan.n_sent, weights)
        scale = None if self.matrices.columns is None else self.matrices.columns[summed]
        return (self.backend.from_host(summed.astype(np.int32)),
                self.matrices.matrix(structure, scale, None))

    # -- messages ----------------------------------------------------------------------------------
    def routes(self, direction: str, weighted: bool = False) -> list[Route]:
        """Owner to halo (values) or halo to owner (gradients).

        weighted: senders know what their rows weigh in the receivers' sums; collective then.
        """
        comm = self.matrices.local.plan.comm
        routes = [self._route(neighbour, send_rows, direction, comm.rank, comm.size)
                  for neighbour, send_rows in zip(self.plan.neighbours, self.send_rows)]
        if weighted:
            tell_weights(comm, self.plan, direction, routes,
                         (self.matrices.rows, self.matrices.columns, self.columns))
        return routes

    def _route(self, n: HopNeighbour, send_rows, direction: str, rank: int, size: int) -> Route:
        packed = self.plan.has_sums
        ids = self.backend.from_host
        there = MessageRows(None if packed else send_rows, ids(n.sent_ids), n.sent_names,
                            reader=n.rank)
        here = MessageRows(None, ids(n.received_ids), n.received_names, reader=rank)
        if direction == "forward":
            # Several ranks send sums for the same node: each draws its own rounding.
            first = size + 1
            streams = (first + rank, first + n.rank) if packed else (0, 0)
            return Route(n.rank, there, n.sent if packed else None, here, n.received,
                         out_stream=streams[0], in_stream=streams[1])
        # So it is with gradients for the same node.
        back = MessageRows(None, there.ids, n.sent_names, reader=n.rank)
        return Route(n.rank, here, n.received, back, n.sent, out_stream=rank + 1,
                     in_stream=n.rank + 1)
