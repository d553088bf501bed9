"""Row-wise steps, each a hand-written forward/backward pair over fields.

`forward(rows, context)` writes the target's rows; `backward(rows, context)` reads the target's gradient and hands it on;
`weight_gradients(rows, context)` then adds to the gradients of matrices. It comes last and apart because nobody waits for it: what
`backward` handed on can be on its way to other ranks by then.
Parameter gradients are always added to (+=); field gradients are overwritten by the field's last consumer and added to by
the others (see fields.py). `rows` is (start, stop); `context` says which epoch it is and whether dropout is on.
"""

from __future__ import annotations

from dataclasses import dataclass

from hpcgcn import philox
from hpcgcn.nn.fields import Field


@dataclass(frozen=True)
class PassContext:
    """When a pass happens: dropout is drawn for (seed, epoch), and not at all in evaluation."""

    seed: int
    epoch: int
    training: bool

    def dropout(self, threshold: int, layer: int, stream: int = 0):
        """(key, threshold) of a layer's dropout now."""
        if not self.training or not threshold:
            return None, 0
        return philox.key(self.seed, self.epoch, layer, philox.DROPOUT, stream), threshold


class Step:
    """One row-wise step."""

    reads_features = False           # True: reads the graph's own features, which are no field

    def __init__(self, backend):
        self.backend = backend

    def inputs(self) -> list[Field]:
        """The fields whose values forward reads; it writes `target`."""
        return [self.source]

    def forward(self, rows, context: PassContext):
        raise NotImplementedError

    def backward(self, rows, context: PassContext):
        raise NotImplementedError

    def weight_gradients(self, rows, context: PassContext):
        """Nothing, for steps without a matrix."""

    def kept(self) -> list[Field]:
        """The fields whose values `backward` or `weight_gradients` reads as forward left them."""
        return []

    def clear(self, rows):
        """What `backward` does where the target's gradient is zero: what it would overwrite becomes zero."""
        block = slice(*rows)
        for field in self.overwritten():
            if field.grad is not None and not field.adds(self):
                self.backend.axpby(0.0, field.grad[block], 0.0, None, field.grad[block])

    def overwritten(self) -> list[Field]:
        """The fields whose gradients `backward` writes."""
        return [field for name, field in vars(self).items() if isinstance(field, Field) and name != "target"]


def pass_on(backend, gradient, source: Field, consumer, block, alpha: float = 1.0):
    """source.grad (= or +=) alpha * gradient for a block of rows."""
    target = source.grad[block]
    if source.adds(consumer):
        backend.axpby(alpha, gradient, 1.0, target, target)
    else:
        backend.axpby(alpha, gradient, 0.0, None, target)
