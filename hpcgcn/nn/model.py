"""A model that has been built: blocks of row-wise steps, and an aggregation (a hop) between blocks.

    block 0, hop 1, block 1, hop 2, ..., hop H, block H, loss

It knows nothing of ranks: a strategy (hpcgcn/parallel) carries out the hops.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcgcn.nn.attention import Attention
from hpcgcn.nn.fields import Array, Field
from hpcgcn.nn.parameters import Parameter, Parameters
from hpcgcn.nn.steps import eager_weight_gradients, run_backward, run_weight_gradients

if TYPE_CHECKING:
    from hpcgcn.nn.models.base import Shape


@dataclass
class Hop:
    """One aggregation: target = A source, over all rows of the graph.

    With attention the coefficients of A are not those of the graph: they are computed from the
    source, and the hop has parameters and saves arrays for backward, as steps do.
    """

    number: int                      # 1 is the first
    source: Field
    target: Field
    transformed: bool = False        # do its rows carry a weight (h W), and not h itself?
    attention: Attention | None = None

    adds = False                     # declared like a step's (steps/base.py)
    reads_features = False

    @property
    def reads(self) -> list[Field]:
        """The fields whose values it reads."""
        return [self.source]

    @property
    def saves(self) -> list[Array]:
        """The arrays that backward reads as forward left them."""
        return self.attention.arrays + [self.source.planned_value] if self.attention else []

    @property
    def parameters(self) -> list[Parameter]:
        """The parameters that it uses, and whose gradients it adds to."""
        return self.attention.parameters if self.attention else []


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
        self.shared_gradients = self._shared_gradients()
        self.sections = [split_at_barriers(steps) for steps in self.blocks]

    def _shared_gradients(self) -> list[list[tuple[Field, int]]]:
        """For each block the gradients that its steps overwrite and that earlier blocks add to,
        with the first block that does.

        A pass that runs later blocks on fewer rows must set these gradients to zero in the others.
        """
        block_of: dict[int, int] = {id(step): k for k, steps in enumerate(self.blocks)
                                    for step in steps}
        block_of |= {id(hop): hop.number - 1 for hop in self.hops}   # it writes the rows before it
        shared: list[list[tuple[Field, int]]] = [[] for _ in self.blocks]
        read = [field for steps in self.blocks for step in steps for field in step.reads]
        read += [hop.source for hop in self.hops]
        for field in {id(field): field for field in read if field.wants_gradient}.values():
            blocks = [block_of[id(reader)] for reader in field.reads if id(reader) in block_of]
            if blocks and min(blocks) < blocks[-1]:
                shared[blocks[-1]].append((field, min(blocks)))
        return shared

    def forward(self, number: int, blocks: Iterable, context, add_up) -> Iterator:
        """Run block `number` of the model on ranges of rows as they come; yields each that is
        through.

        At a step that needs whole columns all rows wait for the last one of all ranks. add_up: over
        all ranks (steps/base.py).
        """
        *barriers, last = self.sections[number]
        if not context.training:                 # what was added up in training is used: no barrier
            for steps in barriers:
                steps[-1].reduce(add_up, context)
            barriers, last = [], self.blocks[number]
        for steps in barriers:
            blocks = [_forward(steps, rows, context) for rows in blocks]
            steps[-1].reduce(add_up, context)
        for rows in blocks:
            yield _forward(last, rows, context)

    def backward(self, number: int, blocks: Iterable, context, add_up) -> Iterator:
        """Run block `number` of the model backwards on ranges of rows as they come; yields each
        that is through."""
        first, *behind = self.sections[number]
        for before, steps in reversed(list(zip(self.sections[number], behind))):
            blocks = [self._backward(number, steps, rows, context) for rows in blocks]
            before[-1].reduce_back(add_up)
        for rows in blocks:
            yield self._backward(number, first, rows, context)

    def _backward(self, number: int, steps: list, rows, context):
        run_backward(steps, self.eager[number], rows, context)
        return rows

    def remember(self):
        """An epoch of training is done: keep of its columns what evaluation needs."""
        for sections in self.sections:
            for steps in sections[:-1]:
                steps[-1].remember()

    def weight_gradients(self, number: int, rows, context):
        """Add to the gradients of the block's matrices, for rows that have been run backwards."""
        run_weight_gradients(self.blocks[number], self.eager[number], rows, context)


def split_at_barriers(steps: list) -> list[list]:
    """The steps of a block, cut after each that needs whole columns."""
    sections: list[list] = [[]]
    for step in steps:
        sections[-1].append(step)
        if step.whole_columns:
            sections.append([])
    return sections


def _forward(steps: list, rows, context):
    for step in steps:
        step.forward(rows, context)
    return rows
