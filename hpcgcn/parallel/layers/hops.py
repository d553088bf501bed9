"""The aggregation of one chunk at a hop, forward and back, with history for the chunks that are not
there yet.

Rows gathered from are one array of all nodes. With history it holds the snapshot when an epoch
begins, and chunk after chunk is replaced by current rows: an earlier chunk supplies what it is now,
a later one what it was. Going back, gradients of chunks that come later in the reversed order are
zero, or those of the last epoch.

With several partitions the halo exchange of a chunk starts as soon as the chunk is complete: the
partition strategy's exchange, a chunk at a time.
"""

from __future__ import annotations

import numpy as np

from hpcgcn.exchange.codec import Rows as MessageRows
from hpcgcn.exchange.exchange import Exchange
from hpcgcn.exchange.types import Policy, Route
from hpcgcn.parallel.aggregation import row_blocks
from hpcgcn.parallel.layers.matrices import ChunkedGraph


class ChunkHalo:
    """The exchanges of one hop and direction, one per chunk."""

    def __init__(self, graph: ChunkedGraph, width: int, policy: Policy, direction: str, seed: int,
                 hop: int, training: bool):
        """training: of the rows that the hop needs; else of all."""
        self.graph, self.direction = graph, direction
        self.pending: set[int] = set()               # chunks whose messages are in flight
        self.slices = [graph.halo_slices(chunk, hop - 1 if training else None)
                       for chunk in range(graph.n_chunks)]
        self.send_rows = [[graph.backend.from_host(neighbour.send_rows[sent])
                           for neighbour, sent, _ in slices] for slices in self.slices]
        self.exchanges = []
        for chunk in range(graph.n_chunks):
            routes, n_received = self._routes(chunk)
            self.exchanges.append(Exchange(graph.partitions, graph.backend, routes, n_received,
                                           width, policy, seed=seed, layer=hop))

    def _routes(self, chunk: int) -> tuple[list[Route], int]:
        """Owner to halo (values), or halo to owner (gradients)."""
        local, backend, routes, at = self.graph.local, self.graph.backend, [], 0
        for (neighbour, sent, halo), index in zip(self.slices[chunk], self.send_rows[chunk]):
            rows = neighbour.send_rows[sent]
            owned_ids, halo_ids = local.ids[rows], local.halo_ids[halo]
            owned = MessageRows(index, backend.from_host(owned_ids), owned_ids)
            beyond = MessageRows(None, backend.from_host(halo_ids), halo_ids)
            if self.direction == "forward":
                routes.append(Route(neighbour.rank, owned, None, beyond,
                                    slice(at, at + len(halo_ids))))
                at += len(halo_ids)
            else:
                received = MessageRows(None, owned.ids, owned_ids)
                routes.append(Route(neighbour.rank, beyond, halo, received,
                                    slice(at, at + len(rows)), out_stream=self.graph.partitions.rank
                                    + 1, in_stream=neighbour.rank + 1))
                at += len(rows)
        return routes, at

    def start(self, chunk: int, x, epoch: int):
        """Send the boundary rows of a chunk."""
        self.exchanges[chunk].start(x, epoch)
        self.pending.add(chunk)

    def receive_values(self, chunk: int, halo) -> list[slice]:
        """Wait for a chunk's rows and put them where the sparse product reads them; which rows of
        `halo` are new."""
        if chunk not in self.pending:
            return []
        self.pending.remove(chunk)
        received = self.exchanges[chunk].finish()
        for route, (_, _, rows) in zip(self.exchanges[chunk].routes, self.slices[chunk]):
            self.graph.backend.copy(received[route.receive_slice], halo[rows])
        return [rows for _, _, rows in self.slices[chunk]]

    def add_gradients(self, chunk: int, dx):
        """Wait for what readers on other partitions owe to a chunk's rows, and add it."""
        self.pending.discard(chunk)
        received = self.exchanges[chunk].finish()
        for route, rows in zip(self.exchanges[chunk].routes, self.send_rows[chunk]):
            self.graph.backend.scatter_add_rows(received[route.receive_slice], rows, dx)


class ForwardHop:
    """out = A x, chunk by chunk.

    `halo` (a ChunkHalo) is None where one partition holds all nodes.
    """

    def __init__(self, graph: ChunkedGraph, hop, halo_array, halo: ChunkHalo | None, progress,
                 training: bool):
        """training: for the rows that training needs; else for all."""
        self.made = hop.number if training else None
        self.graph, self.x, self.out = graph, hop.source.value, hop.target.value
        self.halo_array, self.halo, self.progress = halo_array, halo, progress

    def begin(self):
        """All rows are those of the snapshot until they are pushed."""

    def push(self, chunk: int, context):
        """A chunk of x is complete."""
        if self.halo:
            self.halo.start(chunk, self.x, context.epoch)

    def pull(self, chunk: int, context, exact: bool):
        """Yields ranges of complete rows of the chunk's output; all that it reads has been pushed,
        or is history."""
        graph = self.graph
        blocks = row_blocks(graph.backend, *graph.rows(chunk, self.made), self.out.shape[1])
        if self.halo is None:
            for rows in blocks:
                self._multiply(rows, 0, self.x, False)
                self.progress.progress()
                yield rows
            return
        for rows in blocks:
            self._multiply(rows, 0, self.x, False)
            self.progress.progress()
        self._receive(chunk, exact)
        for rows in blocks:
            self._multiply(rows, 1, self.halo_array, True)
            self.progress.progress()
            yield rows

    def _receive(self, chunk: int, exact: bool) -> list[slice]:
        """Wait for the halo rows that a chunk reads; which are new."""
        read = np.flatnonzero(self.graph.reads[chunk]) if exact else [chunk]
        return [rows for other in read if self.halo is not None
                for rows in self.halo.receive_values(int(other), self.halo_array)]

    def _multiply(self, rows, side: int, x, adds: bool):
        for matrices in self.graph.forward:
            if matrices[side].nnz or not adds:
                self.graph.backend.spmm(matrices[side], x, self.out, rows=rows, accumulate=adds)
            adds = True


class BackwardHop:
    """dx (= or +=) A^T dz, chunk by chunk."""

    def __init__(self, graph: ChunkedGraph, hop, halo: ChunkHalo | None, progress):
        self.number = hop.number
        self.graph, self.dz, self.dx, self.adds = (graph, hop.target.grad, hop.source.grad,
                                                   hop.source.adds(hop))
        self.halo, self.progress = halo, progress
        self.halo_gradient = graph.backend.zeros((graph.local.n_halo,
                                                  self.dz.shape[1])) if halo else None

    def begin(self):
        """Gradients of chunks that are not there yet are what history left."""

    def push(self, chunk: int):
        """The gradient of a chunk's output is complete."""

    def pull(self, chunk: int, context, exact: bool):
        """Yields ranges of complete rows of the chunk's gradient."""
        graph = self.graph
        matrices = graph.backward(self.number, exact)
        blocks = row_blocks(graph.backend, *graph.rows(chunk, self.number - 1), self.dx.shape[1])
        if self.halo:
            for _, _, halo in self.halo.slices[chunk]:
                self._multiply(matrices, 1, (halo.start, halo.stop), self.halo_gradient, False)
            self.halo.start(chunk, self.halo_gradient, context.epoch)
        for rows in blocks:
            self._multiply(matrices, 0, rows, self.dx, self.adds)
            self.progress.progress()
            if not self.halo:
                yield rows
        if self.halo:
            self.halo.add_gradients(chunk, self.dx)
            yield from blocks

    def _multiply(self, matrices, side: int, rows, out, adds: bool):
        for pair in matrices:
            self.graph.backend.spmm(pair[side], self.dz, out, rows=rows, accumulate=adds)
            adds = True
