"""Row-wise steps, each a hand-written forward/backward pair over fields.

`forward(rows, moment)` writes the target's rows; `backward(rows, moment)` reads the target's gradient and hands it on;
`weigh(rows, moment)` then adds to the gradients of matrices. It comes last and apart because nobody waits for it: what
`backward` handed on can be on its way to other ranks by then.
Parameter gradients are always added to (+=); field gradients are overwritten by the field's last consumer and added to by
the others (see fields.py). `rows` is (start, stop); `moment` says which epoch it is and whether dropout is on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcgcn import random
from hpcgcn.nn.fields import Field
from hpcgcn.nn.parameters import Parameter


@dataclass(frozen=True)
class Moment:
    """When a pass happens: dropout is drawn for (seed, epoch), and not at all in evaluation."""

    seed: int
    epoch: int
    training: bool

    def dropout(self, threshold: int, layer: int, lane: int = 0):
        """(key, threshold) of a layer's dropout now."""
        if not self.training or not threshold:
            return None, 0
        return random.key(self.seed, self.epoch, layer, random.DROPOUT, lane), threshold


class Step:
    """One row-wise step."""

    reads_features = False           # True: reads the graph's own features, which are no field

    def __init__(self, backend):
        self.backend = backend

    def inputs(self) -> list[Field]:
        """The fields whose values forward reads; it writes `target`."""
        return [self.source]

    def forward(self, rows, moment: Moment):
        raise NotImplementedError

    def backward(self, rows, moment: Moment):
        raise NotImplementedError

    def weigh(self, rows, moment: Moment):
        """Nothing, for steps without a matrix."""

    def kept(self) -> list[Field]:
        """The fields whose values `backward` or `weigh` reads as forward left them."""
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


class Linear(Step):
    """target = source @ weight, added to what is there already if `adds`."""

    def __init__(self, backend, source: Field, target: Field, weight: Parameter, adds: bool = False):
        super().__init__(backend)
        self.source, self.target, self.weight, self.adds = source, target, weight, adds
        source.read_by(self)

    def inputs(self):
        return [self.source, *([self.target] if self.adds else [])]

    def kept(self):
        return [self.source]

    def forward(self, rows, moment):
        block = slice(*rows)
        self.backend.gemm(self.source.value[block], self.weight.value, self.target.value[block], accumulate=self.adds)

    def backward(self, rows, moment):
        if self.source.grad is not None:
            block = slice(*rows)
            self.backend.gemm(self.target.grad[block], self.weight.value, self.source.grad[block], transpose_b=True,
                              accumulate=self.source.adds(self))

    def weigh(self, rows, moment):
        block = slice(*rows)
        self.backend.gemm(self.source.value[block], self.target.grad[block], self.weight.grad, transpose_a=True, accumulate=True)


class Bias(Step):
    """target += bias, in place, where no epilogue does it. A GEMM with a column of ones keeps the table small."""

    def __init__(self, backend, target: Field, bias: Parameter, ones):
        """ones: (n_rows, 1), the same for all biases of a model."""
        super().__init__(backend)
        self.target, self.bias, self.ones = target, bias, ones

    def inputs(self):
        return [self.target]

    def forward(self, rows, moment):
        block = slice(*rows)
        self.backend.gemm(self.ones[block], self.bias.value.reshape(1, -1), self.target.value[block], accumulate=True)

    def backward(self, rows, moment):
        self.backend.column_sum_add(self.target.grad[slice(*rows)], self.bias.grad)


class SparseInput:
    """Sparse features and, in training, their dropped-out copy: the same entries with other weights."""

    def __init__(self, backend, features, ids, layer: int, threshold: int):
        self.backend, self.ids, self.layer, self.threshold = backend, ids, layer, threshold
        values = features.values if features.values is not None else np.ones(len(features.indices), backend.dtype)
        values = np.ascontiguousarray(values, backend.dtype)
        self.plain = backend.csr(features.indptr, features.indices, features.n_columns, values)
        self.dropped = backend.csr(features.indptr, features.indices, features.n_columns, values.copy()) if threshold else None

    def now(self, rows, moment: Moment, draw: bool):
        """The matrix of this pass; `draw` renews the dropout of these rows first."""
        key, threshold = moment.dropout(self.threshold, self.layer)
        if not threshold:
            return self.plain
        if draw:
            self.backend.sparse_dropout(self.plain, self.dropped, key, threshold, self.ids, rows)
        return self.dropped


class SparseLinear(Step):
    """target = features @ weight for sparse input features; added if `adds`; `draws` renews their dropout."""

    reads_features = True

    def __init__(self, backend, source: SparseInput, target: Field, weight: Parameter, adds: bool = False,
                 draws: bool = True):
        super().__init__(backend)
        self.source, self.target, self.weight, self.adds, self.draws = source, target, weight, adds, draws

    def inputs(self):
        return [self.target] if self.adds else []

    def forward(self, rows, moment):
        self.backend.spmm(self.source.now(rows, moment, self.draws), self.weight.value, self.target.value, rows=rows,
                          accumulate=self.adds)

    def backward(self, rows, moment):
        """Features have no gradient."""

    def weigh(self, rows, moment):
        self.backend.spmm_transposed_add(self.source.now(rows, moment, False), self.target.grad, self.weight.grad, rows=rows)


class Dropout(Step):
    """target = dropout(source). The mask is drawn again in backward: nothing is stored."""

    def __init__(self, backend, source: Field, target: Field, ids, layer: int, threshold: int, lane: int = 0):
        super().__init__(backend)
        self.source, self.target, self.ids = source, target, ids
        self.layer, self.threshold, self.lane = layer, threshold, lane
        source.read_by(self)

    def forward(self, rows, moment):
        block = slice(*rows)
        key, threshold = moment.dropout(self.threshold, self.layer, self.lane)
        self.backend.dropout(self.source.value[block], self.target.value[block], key, threshold, self.ids[block])

    def backward(self, rows, moment):
        if self.source.grad is None:
            return
        block = slice(*rows)
        key, threshold = moment.dropout(self.threshold, self.layer, self.lane)
        dtarget = self.target.grad[block]
        self.backend.dropout(dtarget, dtarget, key, threshold, self.ids[block])
        pass_on(self.backend, dtarget, self.source, self, block)


def pass_on(backend, gradient, source: Field, consumer, block, alpha: float = 1.0):
    """source.grad (= or +=) alpha * gradient for a block of rows."""
    target = source.grad[block]
    if source.adds(consumer):
        backend.axpby(alpha, gradient, 1.0, target, target)
    else:
        backend.axpby(alpha, gradient, 0.0, None, target)


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


class Epilogue(Step):
    """target = dropout(relu(norm(source + bias))). Without a norm, source and target may share their arrays.

    Backward asks where the output is zero. If its array serves something else by then (`again`: room for a block of rows), the
    output is made once more from what `maker`, the step that wrote the source, has kept; then there are neither bias nor norm.
    """

    def __init__(self, backend, source: Field, target: Field, ids, layer: int, threshold: int,
                 bias: Parameter | None = None, norm: tuple[Parameter, Parameter] | None = None, xhat=None, rstd=None,
                 maker: IdentityMapping | None = None):
        super().__init__(backend)
        self.maker, self.again = maker, None
        self.source, self.target, self.ids = source, target, ids
        self.layer, self.threshold, self.bias, self.norm = layer, threshold, bias, norm
        self.xhat, self.rstd = xhat, rstd
        source.read_by(self)

    def kept(self):
        return [self.target, *([self.source] if self.norm is not None else [])]

    def forward(self, rows, moment):
        block = slice(*rows)
        key, threshold = moment.dropout(self.threshold, self.layer)
        arguments = {"key": key, "threshold": threshold, "ids": self.ids[block]}
        if self.bias is not None:
            arguments["bias"] = self.bias.value
        if self.norm is not None:
            arguments |= {"gamma": self.norm[0].value, "beta": self.norm[1].value,
                          "xhat": self.xhat[block], "rstd": self.rstd[block]}
        self.backend.epilogue_forward(self.source.value[block], self.target.value[block], **arguments)

    def _output(self, rows, moment):
        """What forward left in these rows: still there, or made again."""
        if self.again is None:
            return self.target.value[slice(*rows)]
        out = self.again[:rows[1] - rows[0]]
        key, threshold = moment.dropout(self.threshold, self.layer)
        self.maker.map_rows(rows, out)
        self.backend.epilogue_forward(out, out, key=key, threshold=threshold, ids=self.ids[slice(*rows)])
        return out

    def backward(self, rows, moment):
        block = slice(*rows)
        _, threshold = moment.dropout(self.threshold, self.layer)
        arguments = {"scale": random.dropout_scale(threshold)}
        if self.bias is not None:
            arguments["dbias"] = self.bias.grad
        if self.norm is not None:
            arguments |= {"gamma": self.norm[0].value, "xhat": self.xhat[block], "rstd": self.rstd[block],
                          "dgamma": self.norm[0].grad, "dbeta": self.norm[1].grad}
        dtarget, out = self.target.grad[block], self._output(rows, moment)
        if not self.source.adds(self):
            self.backend.epilogue_backward(dtarget, out, self.source.grad[block], **arguments)
            return
        self.backend.epilogue_backward(dtarget, out, dtarget, **arguments)
        pass_on(self.backend, dtarget, self.source, self, block)

    def forward_columns(self, y, columns: slice, ids, moment):
        """The same on some columns of some rows, in place; without a norm, which looks at whole rows."""
        key, threshold = moment.dropout(self.threshold, self.layer)
        self.backend.epilogue_forward(y, y, bias=None if self.bias is None else self.bias.value[columns], key=key,
                                      threshold=threshold, ids=ids, first_column=columns.start)

    def backward_columns(self, dout, out, columns: slice, moment):
        """Back through `forward_columns`, in place; `out` is what that left."""
        _, threshold = moment.dropout(self.threshold, self.layer)
        self.backend.epilogue_backward(dout, out, dout, scale=random.dropout_scale(threshold),
                                       dbias=None if self.bias is None else self.bias.grad[columns])


class InitialResidual(Step):
    """target = (1 - alpha) * aggregated + alpha * initial (GCNII); target and aggregated share their arrays."""

    def __init__(self, backend, aggregated: Field, initial: Field, target: Field, alpha: float):
        super().__init__(backend)
        self.aggregated, self.initial, self.target, self.alpha = aggregated, initial, target, alpha
        aggregated.read_by(self)
        initial.read_by(self)

    def inputs(self):
        return [self.aggregated, self.initial]

    def forward(self, rows, moment):
        block = slice(*rows)
        self.backend.axpby(1.0 - self.alpha, self.aggregated.value[block], self.alpha, self.initial.value[block],
                           self.target.value[block])

    def backward(self, rows, moment):
        block = slice(*rows)
        pass_on(self.backend, self.target.grad[block], self.initial, self, block, self.alpha)
        pass_on(self.backend, self.target.grad[block], self.aggregated, self, block, 1.0 - self.alpha)


class IdentityMapping(Step):
    """target = (1 - beta) * source + beta * source @ weight (GCNII), as one product with (1 - beta) I + beta weight."""

    def __init__(self, backend, source: Field, target: Field, weight: Parameter, beta: float):
        super().__init__(backend)
        self.source, self.target, self.weight, self.beta = source, target, weight, beta
        self.identity = backend.from_host(np.eye(source.width, dtype=backend.dtype))
        self.folded = backend.zeros((source.width, source.width))
        source.read_by(self)

    def kept(self):
        return [self.source]

    def forward(self, rows, moment):
        # For every block anew: next to the product it costs nothing, and no one must say when the weights change.
        self.backend.axpby(self.beta, self.weight.value, 1.0 - self.beta, self.identity, self.folded)
        self.map_rows(rows, self.target.value[slice(*rows)])

    def map_rows(self, rows, out):
        """out = what forward makes of these rows, with the weights of the last forward."""
        self.backend.gemm(self.source.value[slice(*rows)], self.folded, out)

    def backward(self, rows, moment):
        block = slice(*rows)
        self.backend.gemm(self.target.grad[block], self.folded, self.source.grad[block], transpose_b=True,
                          accumulate=self.source.adds(self))

    def weigh(self, rows, moment):
        block = slice(*rows)
        self.backend.gemm(self.source.value[block], self.target.grad[block], self.weight.grad, transpose_a=True, accumulate=True,
                          alpha=self.beta)
