"""The order in which a block runs backwards: what others wait for first, weight gradients later."""

from __future__ import annotations

from hpcgcn.nn.fields import Array
from hpcgcn.nn.steps.base import PassContext, Step

# Weight gradients that wait keep the gradient that they read alive: at most so many per block.
DEFERRED_GRADIENTS = 2


def eager_weight_gradients(steps: list[Step]) -> set[Step]:
    """The steps of a block whose `weight_gradients` must follow their `backward` at once.

    All others are deferred until the block has been run backwards, so that what it passes on can be
    sent before. A step is eager if an earlier one of the block writes the gradient that it reads,
    or if deferring it would keep one more array alive: in a row of linear layers only the first few
    are deferred. `steps` are in forward order.
    """
    eager: set[Step] = set()
    deferred: list[Array] = []
    written: set[Array | None] = set()
    for step in steps:
        gradient = step.target.planned_grad
        if step.has_weight_gradients and gradient is not None:
            waits = gradient in deferred or len(deferred) < DEFERRED_GRADIENTS
            if gradient in written or not waits:
                eager.add(step)
            elif gradient not in deferred:
                deferred.append(gradient)
        written |= {field.planned_grad for field in step.written_gradients()}
    return eager


def run_backward(steps: list[Step], eager: set[Step], rows, context: PassContext):
    """A block backwards; `eager` are those of `eager_weight_gradients`."""
    for step in reversed(steps):
        step.backward(rows, context)
        if step in eager:
            step.weight_gradients(rows, context)


def run_weight_gradients(steps: list[Step], eager: set[Step], rows, context: PassContext):
    """What `run_backward` left for later."""
    for step in reversed(steps):
        if step not in eager:
            step.weight_gradients(rows, context)
