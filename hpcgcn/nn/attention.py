"""The attention of a hop: its vectors, and the arrays in which backward finds what forward did."""

from __future__ import annotations

from hpcgcn.nn.fields import Array
from hpcgcn.nn.parameters import Parameter
from hpcgcn.nn.steps.base import PassContext

# Of the dropout's random draws: another stream than that of the layer's rows.
STREAM = 7


class Attention:
    """Coefficients softmax(leaky(source vector . x_j + target vector . x_i)), for several heads.

    Logits of rows from other ranks are computed where they are read, from the rows received: they
    cost no bytes, and they belong to the rows that are used, stale or coded as these may be. What
    the arrays hold, backend/attention.py says.
    """

    def __init__(self, heads: int, source_vector: Parameter, target_vector: Parameter, layer: int,
                 threshold: int, shape: tuple[int, ...]):
        """layer, threshold: of the dropout of coefficients. shape: of the hop's source."""
        self.heads, self.layer, self.threshold = heads, layer, threshold
        self.source_vector, self.target_vector = source_vector, target_vector
        n_rows, width = shape
        self.source_logits = Array("source logits", (n_rows, heads))
        self.target_logits = Array("target logits", (n_rows, heads))
        self.state = Array("softmax", (n_rows, 3 * heads))
        self.sums = Array("signed sums", (n_rows, 2 * width))
        self.facts = Array("softmax, backwards", (n_rows, 3 * heads))
        self.dsource_logits = Array("dsource logits", (n_rows, heads))
        self.dtarget_logits = Array("dtarget logits", (n_rows, heads))

    @property
    def arrays(self) -> list[Array]:
        """All arrays of a pass."""
        return [self.source_logits, self.target_logits, self.state, self.sums, self.facts,
                self.dsource_logits, self.dtarget_logits]

    @property
    def parameters(self) -> list[Parameter]:
        """The vectors that are learned."""
        return [self.source_vector, self.target_vector]

    def dropout(self, context: PassContext, row_ids, column_ids):
        """What `attend` takes of this pass."""
        key, threshold = context.dropout(self.threshold, self.layer, STREAM)
        return (key, threshold, row_ids, column_ids) if threshold else None
