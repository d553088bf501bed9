"""All rows on one rank: the control for all other strategies."""

from __future__ import annotations

from hpcgcn.parallel.aggregation import (
    Aggregation,
    Aggregations,
    GatherStores,
    gathers_gradient,
    multiply,
    reuse,
    row_blocks,
    scales,
    split_blocks,
)


class WholeAggregation(Aggregation):
    """out = A x over all rows, block after block."""

    def __init__(self, backend, matrix, x, out, adds: bool, stores: GatherStores, turn: int,
                 reuse: float, n_trained: int, n_entries: int):
        """n_trained: the rows that training needs, the first ones; n_entries: of these in the
        matrix."""
        self.backend, self.matrix, self.out, self.adds = backend, matrix, out, adds
        self.storage = stores.storage("owned", x, turn, reuse)
        self.blocks = row_blocks(backend, 0, out.shape[0], out.shape[1])
        self.trained = row_blocks(backend, 0, n_trained, out.shape[1])
        self.multiply_adds = n_entries * out.shape[1]

    def push(self, rows, context):
        self.storage.keep(rows)

    def pull(self, context):
        yield from multiply(self.backend, self.matrix, self.storage.rows, self.out,
                            self.trained if context.training else self.blocks, self.adds)


class WholeAggregations(Aggregations):
    """Every hop is one sparse product."""

    def __init__(self, backend, local, model, precision: str = "fp32", for_loss: bool = False):
        """for_loss: training needs no other logits than those of training nodes."""
        shape, n = model.shape, local.n_owned
        rows, columns, _ = scales(shape.normalisation, local.degree, local.halo_degree,
                                  backend.dtype)
        forward = backend.csr(local.inner.indptr, local.inner.indices, n, None, rows, columns)
        stores = GatherStores(backend, precision)

        def last(hop):
            return for_loss and hop is model.hops[-1]

        def transposed(structure):
            return backend.csr(structure.indptr, structure.indices, n, None, columns, rows)

        backward = transposed(local.inner_t)
        from_loss = transposed(local.inner_t.with_columns(local.trains)) if for_loss else backward

        def there(hop):
            n_trained = local.n_train[0] if last(hop) else n
            return WholeAggregation(backend, forward, hop.source.value, hop.target.value, False,
                                    stores, hop.number, reuse(forward),
                                    n_trained, int(local.inner.indptr[n_trained]))

        def back(hop):
            matrix = from_loss if last(hop) else backward
            return WholeAggregation(backend, matrix, hop.target.grad, hop.source.grad,
                                    hop.source.adds(hop), stores, hop.number,
                                    reuse(backward), n, matrix.nnz)

        self.forward = [there(hop) for hop in model.hops]
        self.backward: list[WholeAggregation | None] = [
            back(hop) if gathers_gradient(hop) else None for hop in model.hops]
        self.evaluation = self.forward
        used, idle = split_blocks(backend, 0, local.n_train[0] if for_loss else n, n,
                                  max(shape.hidden, 1))
        self.blocks, self.idle_blocks = used + idle, frozenset(idle)
        self.exchanges = []
