"""Dropout alone, and the epilogue of a layer: bias, norm, ReLU and dropout in one pass over the rows."""

from __future__ import annotations

from hpcgcn import philox
from hpcgcn.nn.fields import Field
from hpcgcn.nn.parameters import Parameter
from hpcgcn.nn.steps.base import Step, pass_on
from hpcgcn.nn.steps.gcnii import IdentityMapping


class Dropout(Step):
    """target = dropout(source). The mask is drawn again in backward: nothing is stored."""

    def __init__(self, backend, source: Field, target: Field, ids, layer: int, threshold: int, stream: int = 0):
        super().__init__(backend)
        self.source, self.target, self.ids = source, target, ids
        self.layer, self.threshold, self.stream = layer, threshold, stream
        source.read_by(self)

    def forward(self, rows, context):
        block = slice(*rows)
        key, threshold = context.dropout(self.threshold, self.layer, self.stream)
        self.backend.dropout(self.source.value[block], self.target.value[block], key, threshold, self.ids[block])

    def backward(self, rows, context):
        if self.source.grad is None:
            return
        block = slice(*rows)
        key, threshold = context.dropout(self.threshold, self.layer, self.stream)
        dtarget = self.target.grad[block]
        self.backend.dropout(dtarget, dtarget, key, threshold, self.ids[block])
        pass_on(self.backend, dtarget, self.source, self, block)


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

    def forward(self, rows, context):
        block = slice(*rows)
        key, threshold = context.dropout(self.threshold, self.layer)
        arguments = {"key": key, "threshold": threshold, "ids": self.ids[block]}
        if self.bias is not None:
            arguments["bias"] = self.bias.value
        if self.norm is not None:
            arguments |= {"gamma": self.norm[0].value, "beta": self.norm[1].value,
                          "xhat": self.xhat[block], "rstd": self.rstd[block]}
        self.backend.epilogue_forward(self.source.value[block], self.target.value[block], **arguments)

    def _output(self, rows, context):
        """What forward left in these rows: still there, or made again."""
        if self.again is None:
            return self.target.value[slice(*rows)]
        out = self.again[:rows[1] - rows[0]]
        key, threshold = context.dropout(self.threshold, self.layer)
        self.maker.map_rows(rows, out)
        self.backend.epilogue_forward(out, out, key=key, threshold=threshold, ids=self.ids[slice(*rows)])
        return out

    def backward(self, rows, context):
        block = slice(*rows)
        _, threshold = context.dropout(self.threshold, self.layer)
        arguments = {"scale": philox.dropout_scale(threshold)}
        if self.bias is not None:
            arguments["dbias"] = self.bias.grad
        if self.norm is not None:
            arguments |= {"gamma": self.norm[0].value, "xhat": self.xhat[block], "rstd": self.rstd[block],
                          "dgamma": self.norm[0].grad, "dbeta": self.norm[1].grad}
        dtarget, out = self.target.grad[block], self._output(rows, context)
        if not self.source.adds(self):
            self.backend.epilogue_backward(dtarget, out, self.source.grad[block], **arguments)
            return
        self.backend.epilogue_backward(dtarget, out, dtarget, **arguments)
        pass_on(self.backend, dtarget, self.source, self, block)

    def forward_columns(self, y, columns: slice, ids, context):
        """The same on some columns of some rows, in place; without a norm, which looks at whole rows."""
        key, threshold = context.dropout(self.threshold, self.layer)
        self.backend.epilogue_forward(y, y, bias=None if self.bias is None else self.bias.value[columns], key=key,
                                      threshold=threshold, ids=ids, first_column=columns.start)

    def backward_columns(self, dout, out, columns: slice, context):
        """Back through `forward_columns`, in place; `out` is what that left."""
        _, threshold = context.dropout(self.threshold, self.layer)
        self.backend.epilogue_backward(dout, out, dout, scale=philox.dropout_scale(threshold),
                                       dbias=None if self.bias is None else self.bias.grad[columns])
