"""Row-wise steps, each a hand-written forward/backward pair over fields.

`forward(rows, context)` writes the target's rows; `backward(rows, context)` reads the target's
gradient and passes it on; `weight_gradients(rows, context)` then adds to the gradients of matrices.
It comes last and apart because nobody waits for it: what `backward` passed on can be on its way to
other ranks by then. Parameter gradients are always added to (+=); field gradients are overwritten
by the field's last consumer and added to by the others (see fields.py). `rows` is (start, stop);
`context` says which epoch it is and whether dropout is on.

A step declares what it touches, and the plan of a model (nn/plan.py) follows from that alone: how
long arrays live, which share memory, what is recomputed, and the bytes of it all.

    reads           fields whose values forward reads, and whose gradients backward writes
    target          the field whose values forward writes, and whose gradient backward reads
    adds            does forward add to what is in the target already?
    saves           arrays that backward or weight_gradients read as forward left them
    scratch         other arrays of its own, among them constants
    parameters      the parameters that it uses, and whose gradients it adds to
    has_weight_gradients
                    does weight_gradients do anything? Then saves and the target's gradient live
                    until it has run
    element_wise    does each element of the target depend on the same element of its one input
                    alone? Such a step can run on a part of the width: forward_slice,
                    backward_slice
    recompute_from  the step from whose saves backward can recompute the target (map_rows), or None;
                    whether it does, the plan decides (recompute_in)
    fuses           the operations that it does in one pass over the rows
    reads_features  does it read the graph's sparse features, which are no field?
    whole_columns   does it add up columns? Then all rows of all ranks pass it before any goes on,
                    and `reduce` is called in between; going back likewise after the steps behind
                    it, with `reduce_back`. So training runs its block, and those before, on all
                    rows

A step touches no rows but those that it is given, in forward, backward and weight_gradients.
"""

from __future__ import annotations

from dataclasses import dataclass

from hpcgcn import philox
from hpcgcn.nn.fields import Array, Field
from hpcgcn.nn.parameters import Parameter


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
    """One row-wise step; what it declares is explained above."""

    has_weight_gradients = False
    reads_features = False
    element_wise = False
    whole_columns = False
    recompute_from: Step | None = None
    fuses: tuple[str, ...] = ()

    def __init__(self, backend, reads: list[Field], target: Field, *, adds: bool = False,
                 saves: list[Array] | None = None, scratch: list[Array] | None = None,
                 parameters: list[Parameter] | None = None):
        self.backend, self.reads, self.target, self.adds = backend, reads, target, adds
        self.saves, self.scratch, self.parameters = saves or [], scratch or [], parameters or []
        for field in reads:
            field.read_by(self)

    def forward(self, rows, context: PassContext):
        """Write the target's rows."""
        raise NotImplementedError

    def backward(self, rows, context: PassContext):
        """Pass the target's gradient on to what was read, and add to the gradients of vectors."""
        raise NotImplementedError

    def weight_gradients(self, rows, context: PassContext):
        """Add to the gradients of matrices; nothing, for steps without one."""

    def reduce(self, add_up, context: PassContext):
        """With whole_columns: all rows of this rank have passed. add_up(array): over all ranks, in
        place, for float64 on the host. In evaluation nothing is added up."""
        raise NotImplementedError

    def reduce_back(self, add_up):
        """With whole_columns: all rows of this rank have passed the steps behind, going back."""
        raise NotImplementedError

    def remember(self):
        """With whole_columns: an epoch is done; keep of it what evaluation needs."""
        raise NotImplementedError

    def map_rows(self, rows, out):
        """out = what forward computes from these rows, for a step that others recompute from."""
        raise NotImplementedError

    def recompute_in(self, rows: Array):
        """From now on backward recomputes the target, in these rows, and does not save it."""
        raise NotImplementedError

    def written_gradients(self) -> list[Field]:
        """The fields whose gradients backward writes or adds to."""
        return [field for field in self.reads if field.wants_gradient]


def pass_on(backend, gradient, source: Field, consumer, block, alpha: float = 1.0):
    """source.grad (= or +=) alpha * gradient for a block of rows."""
    target = source.grad[block]
    if source.adds(consumer):
        backend.axpby(alpha, gradient, 1.0, target, target)
    else:
        backend.axpby(alpha, gradient, 0.0, None, target)
