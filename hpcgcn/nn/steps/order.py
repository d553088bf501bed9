"""In which order a block's steps run backwards: what others wait for first, gradients of weights after it."""

from __future__ import annotations

from hpcgcn.nn.steps.base import Moment, Step


def cannot_wait(steps: list[Step]) -> set[Step]:
    """The steps of a block, in forward order, whose `weigh` must follow their `backward` at once: an earlier step of the block
    overwrites the gradient that it reads, because layers far enough apart share arrays. So it is in a row of linear layers."""
    return {step for k, step in enumerate(steps)
            if any(field.grad is not None and field.grad is step.target.grad
                   for earlier in steps[:k] for field in earlier.overwritten())}


def run_backward(steps: list[Step], urgent: set[Step], rows, moment: Moment):
    """A block backwards; `urgent` are those of `cannot_wait`."""
    for step in reversed(steps):
        step.backward(rows, moment)
        if step in urgent:
            step.weigh(rows, moment)


def run_weigh(steps: list[Step], urgent: set[Step], rows, moment: Moment):
    """What `run_backward` left for later."""
    for step in reversed(steps):
        if step not in urgent:
            step.weigh(rows, moment)
