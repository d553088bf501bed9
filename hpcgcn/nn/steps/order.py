"""In which order a block's steps run backwards: what others wait for first, gradients of weights after it."""

from __future__ import annotations

from hpcgcn.nn.steps.base import PassContext, Step


def eager_weight_gradients(steps: list[Step]) -> set[Step]:
    """The steps of a block, in forward order, whose `weight_gradients` must follow their `backward` at once: an earlier step of the block
    overwrites the gradient that it reads, because layers far enough apart share arrays. So it is in a row of linear layers."""
    return {step for k, step in enumerate(steps)
            if any(field.grad is not None and field.grad is step.target.grad
                   for earlier in steps[:k] for field in earlier.overwritten())}


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
