"""What an aggregation with attention does with rows and matrices, whoever owns them.

Going forward: logits of rows as they come, then for each row its softmax and weighted sum, from one
matrix or from several in turn. Going back: what is known of a row (`facts`) as its gradient comes,
then gradients of the rows that were read, by the transpose, and through the logits those of rows
and vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hpcgcn.nn.models import Hop
from hpcgcn.nn.steps import PassContext
from hpcgcn.parallel.aggregation import Rows


@dataclass
class SourceRows:
    """Rows that are read: those of this rank, or halo rows."""

    x: Any                           # (n, width)
    logits: Any                      # (n, heads)
    dlogits: Any                     # (n, heads)
    ids: Any                         # (n,) int64


class AttentionProducts:
    """The products of one hop on this rank."""

    def __init__(self, backend, hop: Hop, ids):
        """ids: of the rows of this rank."""
        if hop.attention is None:
            raise ValueError(f"hop {hop.number} has no attention")
        self.backend, self.hop, self.attention, self.ids = backend, hop, hop.attention, ids

    @property
    def own(self) -> SourceRows:
        """The rows of this rank."""
        a = self.attention
        return SourceRows(self.hop.source.value, a.source_logits.data, a.dsource_logits.data,
                          self.ids)

    # -- forward -----------------------------------------------------------------------------------
    def make_logits(self, rows: Rows):
        """Both logits of some rows of this rank."""
        block, a = slice(*rows), self.attention
        x = self.hop.source.value[block]
        for vector, logits in ((a.source_vector, a.source_logits),
                               (a.target_vector, a.target_logits)):
            self.backend.head_dots(x, vector.value.reshape(-1), logits.data[block])

    def received(self, x, logits, dlogits, ids) -> SourceRows:
        """Rows of other ranks, whose logits are computed here."""
        self.backend.head_dots(x, self.attention.source_vector.value.reshape(-1), logits)
        return SourceRows(x, logits, dlogits, ids)

    def attend(self, matrix, source: SourceRows, rows: Rows, first: bool, last: bool,
               context: PassContext):
        """These rows of the target, from one of the matrices that they are made of."""
        a = self.attention
        self.backend.attend(matrix, source.x, source.logits, a.target_logits.data, a.state.data,
                            a.sums.data, self.hop.target.value, rows, first, last,
                            a.dropout(context, self.ids, source.ids))

    # -- backward ----------------------------------------------------------------------------------
    def make_facts(self, rows: Rows):
        """What backward knows of some rows of this rank, whose gradient is there."""
        block, a = slice(*rows), self.attention
        self.backend.attention_gradients(self.hop.target.grad[block], a.sums.data[block],
                                         a.state.data[block], a.target_logits.data[block],
                                         a.facts.data[block], a.dtarget_logits.data[block])

    def gradients(self, matrix, source: SourceRows, dx, rows: Rows, accumulate: bool,
                  context: PassContext, times: int = 1):
        """dx[rows] of rows that were read; matrix: the transpose. times: how often it counts."""
        block, a = slice(*rows), self.attention
        if times != 1 and accumulate:
            self._scale(dx[block], 1 / times)
        self.backend.attend_backward(matrix, self.hop.target.grad, a.facts.data, source.x,
                                     source.logits, dx, source.dlogits, rows, accumulate,
                                     a.dropout(context, source.ids, self.ids))
        if times != 1:
            self._scale(dx[block], times)
            self._scale(source.dlogits[block], times)
        self._through_logits(a.source_vector, source.x[block], source.dlogits[block], dx[block])

    def _scale(self, x, factor: float):
        self.backend.axpby(factor, x, 0.0, None, x)

    def target_gradients(self, rows: Rows, n_targets: int):
        """Add what comes through the target logits; only the first rows were targets."""
        block, a = slice(rows[0], min(rows[1], n_targets)), self.attention
        if block.start < block.stop:
            self._through_logits(a.target_vector, self.hop.source.value[block],
                                 a.dtarget_logits.data[block], self.hop.source.grad[block])

    def _through_logits(self, vector, x, dlogits, dx):
        self.backend.head_dots_backward(x, vector.value.reshape(-1), dlogits, dx,
                                        vector.grad.reshape(-1))
