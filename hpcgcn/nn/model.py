"""A model that has been built: blocks of row-wise steps, and an aggregation (a hop) between blocks.

    block 0, hop 1, block 1, hop 2, ..., hop H, block H, loss

It knows nothing of ranks: a strategy (hpcgcn/parallel) carries out the hops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcgcn.nn.fields import Field
from hpcgcn.nn.parameters import Parameters
from hpcgcn.nn.steps import eager_weight_gradients, run_backward, run_weight_gradients

if TYPE_CHECKING:
    from hpcgcn.nn.models.base import Shape


@dataclass
class Hop:
    """One aggregation: target = A source, over all rows of the graph."""

    number: int                      # 1 is the first
    source: Field
    target: Field
    transformed: bool = False        # do its rows carry a weight (h W), and not h itself?

    adds = False                     # declared like a step's (steps/base.py)
    reads_features = False

    @property
    def reads(self) -> list[Field]:
        """The fields whose values it reads."""
        return [self.source]


@dataclass
class Model:
    """Blocks of row-wise steps with a hop between each block and the next."""

    shape: Shape
    parameters: Parameters
    blocks: list[list]
    hops: list[Hop]
    logits: Field
    embeddings: list[Field]          # the output of every hidden layer

    def __post_init__(self):
        self.eager = [eager_weight_gradients(steps) for steps in self.blocks]

    def forward(self, number: int, rows, context):
        """Run block `number` on a range of rows."""
        for step in self.blocks[number]:
            step.forward(rows, context)

    def backward(self, number: int, rows, context):
        """Run block `number` backwards on a range of rows."""
        run_backward(self.blocks[number], self.eager[number], rows, context)

    def clear(self, number: int, rows):
        """Run block `number` backwards on rows whose gradients are zero."""
        for step in reversed(self.blocks[number]):
            step.clear(rows)

    def weight_gradients(self, number: int, rows, context):
        """Add to the gradients of the block's matrices, for rows that have been run backwards."""
        run_weight_gradients(self.blocks[number], self.eager[number], rows, context)
