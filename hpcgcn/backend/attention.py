"""The operations of attention over edges, and their contracts; part of the table in base.py.

Rows x (n, width) are those of `heads` heads side by side, each of width / heads columns. For row i
of a matrix and an entry in column j (its weight is not read) a head has the logit

    e_ij = leaky(source_logits_j + target_logits_i),   leaky(v) = v where v > 0, else SLOPE * v

and the coefficient a_ij = exp(e_ij) / (the sum of exp(e_ij) over the row's entries). The output of
row i is the sum over its entries of drop(a_ij) * x_j: coefficients are dropped after the softmax.

Dropout of head h of the edge from j to i is drawn for (id of i, column c) as base.py has it, with
c = id of j * H + h, and H the number of heads rounded up to a multiple of 8; c // 8 is taken modulo
2^32.

Nothing of the size of edges times width is made. SLOPE is a constant, so entries with a positive
and with a negative logit can be summed apart (`sums`), and backward needs no second pass over the
edges of a row: what it must know of row i is a function of these sums.
"""

from __future__ import annotations

import abc

SLOPE = 0.2                      # of the leaky ReLU


class AttentionOperations(abc.ABC):
    """What every backend offers for attention."""

    @abc.abstractmethod
    def head_dots(self, x, vector, out):
        """out[i, h] = the product of head h of row i with head h of the vector (width,); out (n,
        heads)."""

    @abc.abstractmethod
    def head_dots_backward(self, x, vector, dout, dx, dvector):
        """dx += dout * vector, dvector += the sum over rows of dout * x, head by head.

        Deterministic, independent of the number of threads.
        """

    @abc.abstractmethod
    def attend(self, matrix, x, source_logits, target_logits, state, sums, out, rows, first, last,
               dropout=None):
        """One part of the entries of `rows`: all of them, or those of one matrix of several.

        x (n_columns, width), source_logits (n_columns, heads), target_logits (n_rows, heads). The
        first part overwrites what `state` and `sums` hold of these rows, others go on from it; the
        last one writes out[rows] (=). After that `state` (n_rows, 3 * heads) holds: the logarithm
        of the sum of exp(e_ij); that sum relative to its greatest term; the sum of the coefficients
        whose logit is positive. `sums` (n_rows, 2 * width) holds the sums of drop(a_ij) * x_j over
        entries with a positive logit and over the others. A row without entries gives zeros.

        dropout: None, or (key, threshold, ids of rows (n_rows,), ids of columns (n_columns,)).
        """

    @abc.abstractmethod
    def attention_gradients(self, dout, sums, state, target_logits, facts, dtarget_logits):
        """What backward knows of a row, for blocks of rows after the last `attend`.

        facts (=, (n, 3 * heads)): target logits, logarithm of the sum, and the product of dout with
        the output. dtarget_logits (=, (n, heads)): the gradient of the target logits.
        """

    @abc.abstractmethod
    def attend_backward(self, matrix, dout, facts, x, source_logits, dx, dsource_logits, rows,
                        accumulate=False, dropout=None):
        """The gradients of `rows` of x and of their source logits; matrix is the transpose.

        dout, facts: of the matrix's columns; dx (= or, with accumulate, +=), dsource_logits (=).
        dx leaves out what comes through the logits. dropout: as in `attend`, with the ids of the
        transpose's rows and columns.
        """
