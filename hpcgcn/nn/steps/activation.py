"""Dropout alone, and the epilogue of a layer: bias, norm, ReLU and dropout in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hpcgcn import philox
from hpcgcn.nn.fields import Array, Field
from hpcgcn.nn.parameters import Parameter
from hpcgcn.nn.steps.base import Step, pass_on


class Dropout(Step):
    """target = dropout(source). The mask is drawn again in backward: nothing is stored."""

    def __init__(self, backend, source: Field, target: Field, ids, layer: int, threshold: int,
                 stream: int = 0):
        super().__init__(backend, [source], target)
        self.source, self.ids = source, ids
        self.layer, self.threshold, self.stream = layer, threshold, stream

    def forward(self, rows, context):
        block = slice(*rows)
        key, threshold = context.dropout(self.threshold, self.layer, self.stream)
        self.backend.dropout(self.source.value[block], self.target.value[block], key, threshold,
                             self.ids[block])

    def backward(self, rows, context):
        if not self.source.wants_gradient:
            return
        block = slice(*rows)
        key, threshold = context.dropout(self.threshold, self.layer, self.stream)
        dtarget = self.target.grad[block]
        self.backend.dropout(dtarget, dtarget, key, threshold, self.ids[block])
        pass_on(self.backend, dtarget, self.source, self, block)


@dataclass
class LayerNorm:
    """The norm of an epilogue: its parameters, and what backward needs of the rows."""

    gamma: Parameter
    beta: Parameter
    xhat: Array                      # (n_rows, width): normalised rows; may be the source's array
    rstd: Array                      # (n_rows,): one over the standard deviation


class Epilogue(Step):
    """target = dropout(relu(norm(source + bias))); without a norm it may work in place.

    Backward needs to know where the output is zero. Where a plan has other use for the output's
    memory by then, the output is recomputed from what the step that wrote the source saved
    (`recompute_from`): only without bias and norm.
    """

    def __init__(self, backend, source: Field, target: Field, ids, layer: int, threshold: int, *,
                 bias: Parameter | None = None, norm: LayerNorm | None = None,
                 recompute_from: Step | None = None):
        self.source, self.ids, self.layer, self.threshold = source, ids, layer, threshold
        self.bias, self.norm, self.recompute_from = bias, norm, recompute_from
        # Room for a block of rows of the output, if that is not saved.
        self.recomputed: Array | None = None
        parameters = [*([bias] if bias else []), *([norm.gamma, norm.beta] if norm else [])]
        super().__init__(backend, [source], target, parameters=parameters,
                         saves=[target.planned_value, *self._norm_arrays()])
        self.element_wise = norm is None
        self.fuses = tuple(name for name, there in (("bias", bias), ("norm", norm), ("relu", True),
                                                    ("dropout", threshold)) if there)

    def _norm_arrays(self) -> list[Array]:
        return [self.norm.xhat, self.norm.rstd] if self.norm else []

    def recompute_in(self, rows: Array):
        self.recomputed, self.saves, self.scratch = rows, self._norm_arrays(), [rows]

    def forward(self, rows, context):
        block = slice(*rows)
        key, threshold = context.dropout(self.threshold, self.layer)
        arguments: dict[str, Any] = {"key": key, "threshold": threshold, "ids": self.ids[block]}
        if self.bias is not None:
            arguments["bias"] = self.bias.value
        if self.norm is not None:
            arguments |= {"gamma": self.norm.gamma.value, "beta": self.norm.beta.value,
                          "xhat": self.norm.xhat.data[block], "rstd": self.norm.rstd.data[block]}
        self.backend.epilogue_forward(self.source.value[block], self.target.value[block],
                                      **arguments)

    def _output(self, rows, context):
        """What forward left in these rows: still there, or recomputed."""
        if self.recomputed is None or self.recompute_from is None:
            return self.target.value[slice(*rows)]
        out = self.recomputed.data[:rows[1] - rows[0]]
        key, threshold = context.dropout(self.threshold, self.layer)
        self.recompute_from.map_rows(rows, out)
        self.backend.epilogue_forward(out, out, key=key, threshold=threshold,
                                      ids=self.ids[slice(*rows)])
        return out

    def backward(self, rows, context):
        block = slice(*rows)
        _, threshold = context.dropout(self.threshold, self.layer)
        arguments: dict[str, Any] = {"scale": philox.dropout_scale(threshold)}
        if self.bias is not None:
            arguments["dbias"] = self.bias.grad
        if self.norm is not None:
            arguments |= {"gamma": self.norm.gamma.value, "xhat": self.norm.xhat.data[block],
                          "rstd": self.norm.rstd.data[block], "dgamma": self.norm.gamma.grad,
                          "dbeta": self.norm.beta.grad}
        dtarget, out = self.target.grad[block], self._output(rows, context)
        if not self.source.adds(self):
            self.backend.epilogue_backward(dtarget, out, self.source.grad[block], **arguments)
            return
        self.backend.epilogue_backward(dtarget, out, dtarget, **arguments)
        pass_on(self.backend, dtarget, self.source, self, block)

    def forward_slice(self, y, part: slice, ids, context):
        """The same on a part of the width of some rows, in place; not with a norm."""
        key, threshold = context.dropout(self.threshold, self.layer)
        bias = None if self.bias is None else self.bias.value[part]
        self.backend.epilogue_forward(y, y, bias=bias, key=key, threshold=threshold, ids=ids,
                                      first_column=part.start)

    def backward_slice(self, dout, out, part: slice, context):
        """Back through `forward_slice`, in place; `out` is what that left."""
        _, threshold = context.dropout(self.threshold, self.layer)
        self.backend.epilogue_backward(dout, out, dout, scale=philox.dropout_scale(threshold),
                                       dbias=None if self.bias is None else self.bias.grad[part])
