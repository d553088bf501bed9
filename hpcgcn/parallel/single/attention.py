"""Hops with attention, where all rows are on one rank."""

from __future__ import annotations

from hpcgcn.parallel.aggregation import Aggregation, Rows
from hpcgcn.parallel.attention import AttentionProducts


class WholeAttention(AttentionProducts, Aggregation):
    """Softmax and weighted sum of the first rows, block after block."""

    def __init__(self, backend, hop, ids, matrix, blocks: list[Rows], n_entries: int):
        """n_entries: of the matrix, in these blocks."""
        super().__init__(backend, hop, ids)
        self.matrix, self.blocks = matrix, blocks
        self.multiply_adds = n_entries * hop.target.width

    def push(self, rows, context):
        self.make_logits(rows)

    def pull(self, context):
        for rows in self.blocks:
            self.attend(self.matrix, self.own, rows, True, True, context)
            yield rows


class WholeAttentionBackward(AttentionProducts, Aggregation):
    """The gradients of the first rows, block after block."""

    def __init__(self, backend, hop, ids, matrix, blocks: list[Rows], n_targets: int):
        """matrix: the transpose. n_targets: rows of the output, which are the first ones."""
        super().__init__(backend, hop, ids)
        self.matrix, self.blocks, self.n_targets = matrix, blocks, n_targets
        self.multiply_adds = matrix.nnz * hop.target.width

    def push(self, rows, context):
        self.make_facts(rows)

    def pull(self, context):
        for rows in self.blocks:
            self.gradients(self.matrix, self.own, self.hop.source.grad, rows,
                           self.hop.source.adds(self.hop), context)
            self.target_gradients(rows, self.n_targets)
            yield rows
