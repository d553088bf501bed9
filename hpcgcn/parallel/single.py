"""All rows on one rank: the control for all other strategies."""

from __future__ import annotations

from hpcgcn.parallel.base import Aggregation, GatherStores, Strategy, gathers_gradient, multiply, reuse, row_blocks, scales


class WholeAggregation(Aggregation):
    """out = A x over all rows, block after block."""

    def __init__(self, backend, matrix, x, out, adds: bool, stores: GatherStores, turn: int):
        self.backend, self.matrix, self.out, self.adds = backend, matrix, out, adds
        self.storage = stores.storage("owned", x, turn, reuse(matrix))
        self.blocks = row_blocks(0, out.shape[0], out.shape[1])
        self.multiply_adds = matrix.nnz * out.shape[1]

    def push(self, rows, moment):
        self.storage.keep(rows)

    def pull(self, moment):
        yield from multiply(self.backend, self.matrix, self.storage.rows, self.out, self.blocks, self.adds)


class SingleStrategy(Strategy):
    """Every hop is one sparse product."""

    def __init__(self, backend, local, model, precision: str = "fp32"):
        shape = model.shape
        rows, columns, _ = scales(shape.normalisation, local.degree, local.halo_degree, backend.dtype)
        forward = backend.csr(local.inner.indptr, local.inner.indices, local.n_owned, None, rows, columns)
        backward = backend.csr(local.inner_t.indptr, local.inner_t.indices, local.n_owned, None, columns, rows)
        stores = GatherStores(backend, precision)
        self.forward = [WholeAggregation(backend, forward, h.source.value, h.target.value, False, stores, h.number)
                        for h in model.hops]
        self.backward = [WholeAggregation(backend, backward, h.target.grad, h.source.grad, h.source.adds(h), stores, h.number)
                         if gathers_gradient(h) else None for h in model.hops]
        self.evaluation = self.forward
        self.blocks = row_blocks(0, local.n_owned, max(shape.hidden, 1))
        self.exchanges = []
