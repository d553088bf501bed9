"""BatchNorm: every column normalised by its mean and variance over all rows of all ranks.

Two steps with a barrier between them (`whole_columns`). Going forward the first one adds up sums of
the rows that it is given; when all rows of all ranks have passed it, the second one normalises.
Going back the second one adds up sums of gradients, and when all rows have passed, the first one
passes gradients on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hpcgcn import philox
from hpcgcn.nn.fields import Field
from hpcgcn.nn.parameters import Parameter
from hpcgcn.nn.steps.base import Step, pass_on

EPSILON = 1e-5
MOMENTUM = 0.1                   # of the newest epoch in the running statistics


@dataclass
class BatchNorm:
    """What a norm learns, and the running statistics that evaluation uses.

    The running standard deviation stands for the running variance, whose numbers may be larger
    than those of any weight. A bias in front of the norm moves the mean and nothing else: it is
    counted there, and its gradient is zero.
    """

    gamma: Parameter
    beta: Parameter
    mean: Parameter
    deviation: Parameter
    bias: Parameter | None = None

    @property
    def parameters(self) -> list[Parameter]:
        """All of them."""
        return [self.gamma, self.beta, self.mean, self.deviation, *([self.bias] if self.bias
                                                                    else [])]


class ColumnStatistics:
    """The sums of one norm in one pass, and the scales and shifts of columns that follow."""

    def __init__(self, backend, norm: BatchNorm):
        self.backend, self.norm, self.width = backend, norm, norm.gamma.spec.size
        self.n_rows = 0                              # that were added up since the last sum
        self.mean = self.variance = np.zeros(0)      # of the last training pass
        self.n_all = 0
        self._sums: Any = None                       # (2 * width,) float64 on the backend
        self.scale: Any = None                       # vectors of the backend: of forward
        self.shift: Any = None
        self.back: tuple[Any, Any, Any] = (None, None, None)     # and of backward

    def _value(self, parameter: Parameter | None) -> np.ndarray:
        if parameter is None:
            return np.zeros(self.width)
        return np.asarray(self.backend.to_host(parameter.value), np.float64)

    def _vector(self, values: np.ndarray):
        return self.backend.from_host(np.ascontiguousarray(values, self.backend.dtype))

    def add(self, x, y):
        """Add up the columns of x, and of x * y."""
        if self._sums is None:
            self._sums = self.backend.zeros((2 * self.width,), np.float64)
        self.n_rows += len(x)
        self.backend.column_dots_add(x, None, self._sums[:self.width])
        self.backend.column_dots_add(x, y, self._sums[self.width:])

    def _take(self) -> np.ndarray:
        """This rank's [number of rows, sums...]; starts anew."""
        sums = (np.zeros(2 * self.width) if self._sums is None
                else np.array(self.backend.to_host(self._sums)))
        taken, self.n_rows, self._sums = np.append(float(self.n_rows), sums), 0, None
        return taken

    def normalise(self, add_up):
        """When all rows are in: the mean and variance of all ranks' rows."""
        taken = self._take()
        add_up(taken)
        self.n_all, sums = int(taken[0]), taken[1:].reshape(2, -1) / max(taken[0], 1.0)
        self.mean = sums[0]
        self.variance = np.maximum(sums[1] - self.mean ** 2, 0.0)
        scale = self._value(self.norm.gamma) / np.sqrt(self.variance + EPSILON)
        self.scale = self._vector(scale)
        self.shift = self._vector(self._value(self.norm.beta) - self.mean * scale)

    def use_running(self):
        """What evaluation normalises by."""
        norm = self.norm
        scale = self._value(norm.gamma) / np.sqrt(self._value(norm.deviation) ** 2 + EPSILON)
        shift = self._value(norm.beta) + (self._value(norm.bias) - self._value(norm.mean)) * scale
        self.scale, self.shift = self._vector(scale), self._vector(shift)

    def normalise_back(self, add_up):
        """When all gradients are in: gamma's and beta's gradient of this rank's rows, and what
        gradients of rows are made of."""
        taken, rstd = self._take(), 1.0 / np.sqrt(self.variance + EPSILON)
        _, dbeta, dgamma = self._gradients(taken, rstd)
        for parameter, gradient in ((self.norm.gamma, dgamma), (self.norm.beta, dbeta)):
            self.backend.axpby(1.0, parameter.grad, 1.0, self._vector(gradient), parameter.grad)
        add_up(taken)
        n_rows, dbeta, dgamma = self._gradients(taken, rstd)
        # dx = scale * (dv - mean of dv - xhat * mean of dv * xhat), with xhat = (x - mean) * rstd
        scale = self._value(self.norm.gamma) * rstd
        of_x = -scale * rstd * dgamma / n_rows
        self.back = (self._vector(scale), self._vector(of_x),
                     self._vector(-scale * dbeta / n_rows - of_x * self.mean))

    def _gradients(self, taken: np.ndarray,
                   rstd: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """(rows, the sum of dv, the sum of dv * xhat)"""
        sums = taken[1:].reshape(2, -1)
        return max(taken[0], 1.0), sums[0], rstd * (sums[1] - self.mean * sums[0])

    def remember(self):
        """Move the running statistics towards those of the last training pass."""
        norm, keep = self.norm, 1.0 - MOMENTUM
        unbiased = self.variance * self.n_all / max(self.n_all - 1, 1)
        mean = keep * self._value(norm.mean) + MOMENTUM * (self.mean + self._value(norm.bias))
        variance = keep * self._value(norm.deviation) ** 2 + MOMENTUM * unbiased
        for parameter, values in ((norm.mean, mean), (norm.deviation, np.sqrt(variance))):
            self.backend.copy(np.ascontiguousarray(values, self.backend.dtype), parameter.value)


class ColumnSums(Step):
    """target = source, and the sums of its columns: in place, unless the source is changed later.

    Backward passes on what the norm behind it makes of the target's gradient.
    """

    whole_columns = True

    def __init__(self, backend, source: Field, target: Field, statistics: ColumnStatistics):
        super().__init__(backend, [source], target, saves=[target.planned_value],
                         parameters=statistics.norm.parameters)
        self.source, self.statistics = source, statistics
        self.in_place = target.planned_value is source.planned_value

    def forward(self, rows, context):
        block = slice(*rows)
        x = self.source.value[block]
        if not self.in_place:
            self.backend.copy(x, self.target.value[block])
        if context.training:
            self.statistics.add(x, x)

    def reduce(self, add_up, context):
        if context.training:
            self.statistics.normalise(add_up)
        else:
            self.statistics.use_running()

    def reduce_back(self, add_up):
        self.statistics.normalise_back(add_up)

    def remember(self):
        self.statistics.remember()

    def backward(self, rows, context):
        block = slice(*rows)
        scale, of_x, shift = self.statistics.back
        dx = self.target.grad[block]
        self.backend.column_affine(dx, scale, self.target.value[block], of_x, shift, dx)
        if not self.in_place:
            pass_on(self.backend, dx, self.source, self, block)


class BatchNormEpilogue(Step):
    """target = dropout(relu(x * scale + shift)), with the scales and shifts of the statistics."""

    def __init__(self, backend, source: Field, target: Field, ids, layer: int, threshold: int,
                 statistics: ColumnStatistics):
        super().__init__(backend, [source], target,
                         saves=[source.planned_value, target.planned_value],
                         parameters=statistics.norm.parameters)
        self.source, self.ids, self.layer, self.threshold = source, ids, layer, threshold
        self.statistics = statistics

    def forward(self, rows, context):
        block = slice(*rows)
        out, statistics = self.target.value[block], self.statistics
        key, threshold = context.dropout(self.threshold, self.layer)
        self.backend.column_affine(self.source.value[block], statistics.scale, None, None,
                                   statistics.shift, out)
        self.backend.epilogue_forward(out, out, key=key, threshold=threshold, ids=self.ids[block])

    def backward(self, rows, context):
        block = slice(*rows)
        _, threshold = context.dropout(self.threshold, self.layer)
        gradient = self.source.grad[block]
        self.backend.epilogue_backward(self.target.grad[block], self.target.value[block], gradient,
                                       scale=philox.dropout_scale(threshold))
        self.statistics.add(gradient, self.source.value[block])
