"""All rows on one rank: the control for all other strategies."""

from __future__ import annotations

from hpcgcn.nn.fields import Array
from hpcgcn.parallel.aggregation import (
    Aggregation,
    Aggregations,
    GatherStores,
    Rows,
    gathers_gradient,
    multiply,
    reuse,
    row_blocks,
    scales,
)
from hpcgcn.parallel.single.attention import WholeAttention, WholeAttentionBackward


class WholeAggregation(Aggregation):
    """out = A x for the first rows of out, block after block."""

    def __init__(self, backend, matrix, x: Array, out: Array, blocks: list[Rows], adds: bool,
                 stores: GatherStores, turn: int, reuse: float, n_entries: int):
        """n_entries: of the matrix, in these blocks."""
        self.backend, self.matrix, self.out, self.adds = backend, matrix, out, adds
        self.storage = stores.storage("owned", x, turn, reuse)
        self.blocks = blocks
        self.multiply_adds = n_entries * out.shape[1]

    def push(self, rows, context):
        self.storage.keep(rows)

    def pull(self, context):
        yield from multiply(self.backend, self.matrix, self.storage.rows, self.out.data,
                            self.blocks, self.adds)


class WholeAggregations(Aggregations):
    """Every hop is one sparse product."""

    def __init__(self, backend, local, model, precision: str = "fp32"):
        self.backend, self.local, self.width = backend, local, max(model.shape.hidden, 1)
        self.scales = scales(model.shape.normalisation, local.degree, local.halo_degree,
                             backend.dtype)
        rows, columns, _ = self.scales
        self.matrix = backend.csr(local.inner.indptr, local.inner.indices, local.n_owned,
                                  local.inner.weights, rows, columns)
        self.ids = backend.from_host(local.ids)
        self.reuse, self.stores = reuse(self.matrix), GatherStores(backend, precision)
        self._transposes: dict[int, object] = {}
        self.forward = [self._forward(hop, self.n_needed(hop.number)) for hop in model.hops]
        self.backward = [self._backward(hop) if gathers_gradient(hop) else None
                         for hop in model.hops]
        self.evaluation = [self._forward(hop, local.n_owned) for hop in model.hops]
        self.blocks = self._blocks(local.n_owned, self.width)
        self.exchanges = []

    def n_needed(self, block: int) -> int:
        return self.local.needed.count(block)

    def n_in_loss(self) -> int:
        return self.local.needed.n_in_loss

    def needed_blocks(self, block: int) -> list[Rows]:
        return self._blocks(self.n_needed(block), self.width)

    def _blocks(self, n_rows: int, width: int) -> list[Rows]:
        runs = self.local.runs(n_rows, False, self.backend.blocks_by_distance)
        return [block for run in runs
                for block in row_blocks(self.backend, run[0], run[1], width)]

    def _forward(self, hop, n_rows: int) -> Aggregation:
        if hop.attention:
            return WholeAttention(self.backend, hop, self.ids, self.matrix,
                                  self._blocks(n_rows, hop.target.width),
                                  int(self.local.inner.indptr[n_rows]))
        return WholeAggregation(self.backend, self.matrix, hop.source.planned_value,
                                hop.target.planned_value, self._blocks(n_rows, hop.target.width),
                                False, self.stores, hop.number, self.reuse,
                                int(self.local.inner.indptr[n_rows]))

    def _backward(self, hop) -> Aggregation:
        matrix = self._transposed(self.n_needed(hop.number))
        blocks = self._blocks(self.n_needed(hop.number - 1), hop.source.width)
        if hop.attention:
            return WholeAttentionBackward(self.backend, hop, self.ids, matrix, blocks,
                                          self.n_needed(hop.number))
        return WholeAggregation(self.backend, matrix, hop.target.planned_grad,
                                hop.source.planned_grad, blocks, hop.source.adds(hop), self.stores,
                                hop.number, self.reuse, matrix.nnz)

    def _transposed(self, n_first: int):
        """The transpose of the first rows: the others have no gradient."""
        if n_first not in self._transposes:
            (rows, columns, _), inner_t = self.scales, self.local.inner_t
            self._transposes[n_first] = self.backend.csr(
                inner_t.indptr, inner_t.indices, self.local.n_owned, inner_t.weights, columns, rows,
                self.local.column_ends(n_first))
        return self._transposes[n_first]
