"""The table of operations that every backend offers, and their contracts.

Three rules hold for all of them:

* "=" outputs are overwritten, "+=" outputs are added to; the docstring says which is which.
* Dense arrays are C-contiguous, two-dimensional `(n, width)` and of the backend's `dtype` unless a
  contract says otherwise. A block of rows is passed as a contiguous view `x[start:stop]`. n and
  width may be 0 or odd.
* Nothing is random but through a key: the same key and node ids give the same bits on every
  backend.

Random bits. `key` is a pair of 32-bit words (hpcgcn.philox.key). For node `id` and column `c` the
counter of Philox4x32-10 is `(c // 8, id & 0xffffffff, id >> 32, 0)`. Its four output words w0..w3
serve eight columns, 16 bits each, low half first: column 8k+0 is `w0 & 0xffff`, 8k+1 is `w0 >> 16`,
8k+2 is `w1 & 0xffff`, and so on.

Dropout. `threshold` is `round(p * 65536)`; an element is kept if its 16 bits are >= threshold, and
kept elements are multiplied by `float32(65536 / (65536 - threshold))`. A threshold of 0 draws
nothing.

16-bit storage. float16 arrays are IEEE halves; uint16 arrays are bfloat16 (fp32 rounded to nearest,
ties to even).
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, SupportsFloat

import numpy as np

from hpcgcn.backend.attention import AttentionOperations
from hpcgcn.backend.columns import ColumnOperations


class Message:
    """A message buffer: `array` is what kernels read and write, `mpi` is what MPI reads and
    writes."""

    def __init__(self, array, mpi=None):
        self.array = array                                  # (nbytes,) uint8 of the backend
        self.mpi = array if mpi is None else mpi            # an object with the buffer interface

    def sendable(self) -> bool:
        """May MPI read what `before_send` announced? Asked again until it is so."""
        return True

    def receivable(self) -> bool:
        """May MPI write what `before_receive` announced? Asked again until it is so."""
        return True


class HostCopy:
    """An array of a backend as the host sees it: what `read` returned may be changed, and `write`
    brings it back."""

    def __init__(self, backend, array):
        self.backend, self.array = backend, array
        self._host: Any = None

    def read(self) -> np.ndarray:
        """The array itself where the host can reach it."""
        self._host = self.backend.to_host(self.array)
        return self._host

    def write(self):
        """Make the array what the host's copy is."""
        self.backend.copy(self._host, self.array)


def count_entries(indptr, row_ends=None) -> int:
    """Entries of a matrix; refuses row_ends that are not within their rows."""
    if row_ends is None:
        return int(indptr[-1])
    lengths = row_ends - indptr[:-1]
    if len(lengths) and (lengths.min() < 0 or (row_ends > indptr[1:]).any()):
        raise ValueError("csr: row_ends must lie within their rows")
    return int(lengths.sum())


class Backend(AttentionOperations, ColumnOperations):
    """One table of operations; `dtype` is the arithmetic type (float64 only on `reference`).

    Those of attention are in attention.py, those of whole columns in columns.py.
    """

    name: str
    dtype: np.dtype
    # A block of rows should stay in a core's cache from its aggregation through its update.
    block_bytes = 1 << 20
    # Blocks start anew where rows are needed by fewer hops: then sums over rows are grouped in the
    # same way whether rows without a gradient are left out or not.
    blocks_by_distance = True
    sends_device_memory = False          # does MPI read and write messages on the device?

    def check_ranks(self, comm, job_rank: int):
        """Check what only ranks together can: devices that are shared, messages that reach them.

        Collective over `comm`, the ranks with this backend; job_rank: this rank's number in the
        job, for messages. BackendError on all of them.
        """

    # -- arrays ------------------------------------------------------------------------------------
    @abc.abstractmethod
    def empty(self, shape, dtype=None):
        """An uninitialised array of `dtype` (default: the backend's)."""

    @abc.abstractmethod
    def zeros(self, shape, dtype=None):
        """An array of zeros."""

    @abc.abstractmethod
    def from_host(self, array: np.ndarray):
        """A backend array with the contents of a NumPy array (may share memory with it on a
        CPU)."""

    @abc.abstractmethod
    def to_host(self, array) -> np.ndarray:
        """The contents as a NumPy array (may share memory on a CPU)."""

    def host_copy(self, array) -> HostCopy:
        """An array that goes to the host and back in every epoch."""
        return HostCopy(self, array)

    @abc.abstractmethod
    def copy(self, source, target):
        """target = source, same shape; both backend arrays, or one of them a NumPy array.

        Here alone a block of columns `x[:, start:stop]` may be given, as source, target or both.
        """

    @abc.abstractmethod
    def clear(self, out):
        """out = 0, whatever it holds: a product with 0 would keep NaN and infinity."""

    def repeated(self, work: Callable[[int], Any]) -> Callable[[int, int], Any]:
        """A call (epoch, places) that does `work(epoch)`, with its result, which may be recorded
        and replayed.

        The work must queue the same operations on the same arrays in every epoch, but for draws of
        that epoch, and ask for no result. places: another number when its arrays have moved.
        """
        return lambda epoch, places: work(epoch)

    def synchronize(self):
        """Wait until all work given so far is done. A no-op where calls are synchronous."""

    # -- messages ----------------------------------------------------------------------------------
    @abc.abstractmethod
    def message(self, nbytes: int) -> Message:
        """A message buffer of nbytes, aligned to at least 64 bytes, built once and reused."""

    def message_over(self, rows) -> Message | None:
        """A message made of the memory of `rows` itself, where MPI can read and write that;
        otherwise None."""
        return None

    def before_send(self, message: Message, nbytes: int):
        """Make the first nbytes of `message.mpi` what kernels wrote to `message.array`.

        Does not wait: MPI may read them when the message is `sendable`. The next one may be written
        when MPI has sent this one.
        """

    def before_receive(self, message: Message, nbytes: int):
        """Call before each receive, of nbytes: MPI may write when the message is `receivable`.

        Everything that reads the previous contents of `message.array` must have been called before
        this.
        """

    def transfer(self, messages: list, sizes: tuple, peers: list[int]) -> Any:
        """A transfer of the backend's own (`start`, `wait`, `free` as mpi.progress.Transfer has
        them); None: MPI moves the messages.

        messages: (outgoing, incoming) per peer; sizes: their bytes.
        """
        return None

    def after_receive(self, message: Message):
        """Make `message.array` hold what MPI wrote to `message.mpi`, ordered before later
        kernels."""

    # -- sparse ------------------------------------------------------------------------------------
    @abc.abstractmethod
    def csr(self, indptr, indices, n_columns, weights=None, row_scale=None, column_scale=None,
            row_ends=None):
        """A sparse matrix from NumPy arrays: a_ij = weights[e] * row_scale[i] * column_scale[j],
        None means 1.

        indptr (n_rows + 1,) int64, indices int32 (may repeat, need not be sorted), weights (nnz,),
        row_scale (n_rows,), column_scale (n_columns,). The arrays are kept, not copied, on a CPU:
        matrices may share them. The handle has `shape` and `nnz`.

        row_ends (n_rows,) int64: row i has the entries indptr[i] .. row_ends[i] alone, and the
        others up to indptr[i + 1] are left out. So one matrix whose entries are sorted serves for
        all its first columns. Such a handle is for spmm.
        """

    @abc.abstractmethod
    def spmm(self, matrix, x, out, rows=None, accumulate=False, mask=None, mask_scale=1.0):
        """out[rows] = A[rows] @ x, or += with accumulate. `rows` is (start, stop), default all.

        x (n_columns, width) of dtype, float16 or uint16 (bf16); out (n_rows, width) of dtype,
        indexed like A. mask (n_columns, width) of dtype, or None: x_jk counts as x_jk * mask_scale
        where mask_jk != 0, else 0. The row's entries alone fix the order of its sums: they depend
        neither on `rows` nor on the number of threads.
        """

    def gather_store(self, shape, precision: str, reuse: float):
        """A place where rows wait for spmm to gather them, each about `reuse` times, in the layout
        that suits it best.

        Takes the place of x in spmm once all rows are stored, and can be sliced by rows. None:
        gather from x itself. precision is "fp32" (as x) or "bf16".
        """
        return self.zeros(shape, np.uint16) if precision == "bf16" else None

    def store_rows(self, x, store, rows):
        """Rows (start, stop) of x into a place that gather_store gave."""
        self.convert(x[slice(*rows)], store[slice(*rows)])

    def gather_passes(self, x) -> list:
        """What to give spmm in turn instead of x, all rows with one before the next, so that each
        stays in the cache."""
        return [x]

    @abc.abstractmethod
    def spmm_transposed_add(self, matrix, x, out, rows=None):
        """out += A[rows]^T @ x[rows]; x (n_rows, width), out (n_columns, width). Deterministic."""

    @abc.abstractmethod
    def sparse_dropout(self, matrix, out, key, threshold, ids, rows=None):
        """out's entries in `rows` = matrix's entries after dropout, drawn for (ids[row], column);
        ids (n_rows,) int64.

        `out` is another handle over the same indptr and indices with weights of its own (matrix may
        have none: ones).
        """

    # -- dense -------------------------------------------------------------------------------------
    @abc.abstractmethod
    def gemm(self, a, b, out, transpose_a=False, transpose_b=False, accumulate=False, alpha=1.0):
        """out = alpha * op(a) @ op(b), or += with accumulate."""

    @abc.abstractmethod
    def axpby(self, alpha, x, beta, y, out):
        """out = alpha * x + beta * y, element-wise; out may be x or y. beta == 0 does not read y
        (it may be None)."""

    @abc.abstractmethod
    def column_sum_add(self, x, out):
        """out += x.sum(axis=0); out (width,).

        Deterministic, independent of the number of threads.
        """

    @abc.abstractmethod
    def square_sum(self, x) -> float:
        """The sum of squares of a flat array, in float64."""

    # -- rows --------------------------------------------------------------------------------------
    @abc.abstractmethod
    def gather_rows(self, x, index, out):
        """out[i] = x[index[i]]; index (n,) int32. out may be of dtype, float16 or uint16 (bf16):
        converted."""

    @abc.abstractmethod
    def scatter_add_rows(self, x, index, out):
        """out[index[i]] += x[i]; the entries of index are distinct. x may be of dtype, float16 or
        uint16 (bf16)."""

    @abc.abstractmethod
    def convert(self, x, out):
        """out = x between dtype and float16 or uint16 (bf16), or between equal types; same
        shape."""

    # -- codecs (float32 inside, whatever dtype is) ------------------------------------------------
    @abc.abstractmethod
    def pack_columns(self, x, index, columns, out):
        """out[i, k] = x[index[i], columns[k]]; columns (k,) int32; out (n, k) of dtype."""

    @abc.abstractmethod
    def unpack_columns(self, x, columns, out, scale=1.0):
        """out = 0, then out[:, columns[k]] = x[:, k] * scale."""

    @abc.abstractmethod
    def quantise(self, x, index, ids, bits, key, wide, out):
        """Code rows x[index] (None: all rows) with 1, 2, 4 or 8 bits per element into bytes `out`.

        ids (n,) int64: the global id of each coded row, for the draws. Layout of out: n pairs
        (zero, step), each number bfloat16, or float32 if `wide`; then n rows of
        ceil(width * bits / 8) bytes, element 0 in the lowest bits of byte 0. All arithmetic is
        float32, each operation rounded to nearest, none fused:
            min and max of the row, each + 0.0 (so that a -0 is stored as 0: which of two zeros is
                   less is open),
            levels = 2^bits - 1,
            zero = min(row) rounded DOWN to the stored type (exact if wide),
            step = float32((float64(max) - float64(zero)) / levels) rounded to nearest, then moved
                   UP to the next float32 while float64(zero) + levels * float64(step) < max, then
                   rounded UP to the stored type,
            q = floor((x - zero) / step + r / 65536), r the element's 16 random bits, clamped to
                   [0, levels].
        A step of 0 (constant row that zero holds exactly) gives q = 0. Rounding is away from the
        row's range on both sides, so decoding is unbiased: nothing is ever clamped. A row with a
        value that is not finite decodes to NaN.

        key None asks for rounding to the nearest instead (biased, but its error is smaller than the
        row's range, which error feedback needs to be stable). The range is cut into 2^bits cells
        and an element becomes its cell's centre:
            step = float32((float64(max) - float64(min)) / 2^bits) rounded to NEAREST in the stored
                type,
            zero = float32(float64(min) + float64(step) / 2) rounded to NEAREST in the stored type,
            q = floor((x - zero) / step + 0.5), clamped to [0, levels].
        A step of 0 gives q = 0; ids is not read.
        """

    @abc.abstractmethod
    def dequantise(self, data, bits, wide, out):
        """out[i] = q * step + zero from the bytes of `quantise` (float32: one multiply, one add,
        not fused)."""

    # -- fused row-wise steps ----------------------------------------------------------------------
    @abc.abstractmethod
    def epilogue_forward(self, y, out, bias=None, gamma=None, beta=None, xhat=None, rstd=None,
                         key=None, threshold=0, ids=None, first_column=0):
        """y += bias; v = LayerNorm(y) or y; out = dropout(relu(v)).

        bias, gamma, beta (width,) or None. With gamma: xhat = (y - mean) * rstd (=, may be y
        itself), rstd = 1 / sqrt(var + 1e-5) (=, (n,)), v = xhat * gamma + beta. Dropout as in the
        module's docstring, drawn for (ids[row], first_column + column) with `key`; ids (n,) int64.
        out may be y if gamma is None. first_column: where y is a slice of the columns of longer
        rows, which only goes without gamma.
        """

    @abc.abstractmethod
    def epilogue_backward(self, dout, out, dy, scale=1.0, gamma=None, xhat=None, rstd=None,
                          dgamma=None, dbeta=None, dbias=None):
        """dv = dout * scale where out != 0, else 0; then back through LayerNorm (if gamma) to dy
        (=, may be dout).

        dgamma += sum(dv * xhat), dbeta += sum(dv), dbias += sum(dy) (each (width,); dbias may be
        None). `scale` is dropout's factor. The sums are deterministic and independent of the number
        of threads.
        """

    @abc.abstractmethod
    def dropout(self, x, out, key, threshold, ids):
        """out = dropout(x), out may be x; its own backward is the same call on the gradient."""

    @abc.abstractmethod
    def random_bits(self, key, ids, out):
        """out[i, c] = the 16 random bits of (ids[i], c); out (n, width) uint16."""

    # -- losses ------------------------------------------------------------------------------------
    @abc.abstractmethod
    def softmax_cross_entropy(self, logits, labels, scale, dlogits,
                              class_weights=None) -> SupportsFloat:
        """Sum of -log softmax(logits)[label] over rows with label >= 0 (float64), labels (n,)
        int32.

        float() of the result may wait for the device.
        dlogits = scale * (softmax - onehot) for those rows, 0 for the others (=; may be logits
        itself). class_weights (n_classes,): loss and gradient of a row are times that of its label.
        """

    @abc.abstractmethod
    def sigmoid_cross_entropy(self, logits, targets, row_used, scale, dlogits) -> SupportsFloat:
        """Sum of binary cross-entropies over all classes of the rows with row_used != 0 (float64).

        targets (n, n_classes) uint8, row_used (n,) uint8; dlogits = scale * (sigmoid - target), 0
        for unused rows.
        """

    # -- optimiser ---------------------------------------------------------------------------------
    @abc.abstractmethod
    def adam(self, param, grad, m, v, lr, beta1, beta2, epsilon, weight_decay, correction1,
             correction2):
        """One Adam step on flat arrays.

            g = grad + weight_decay * param
            m = beta1 * m + (1 - beta1) * g
            v = beta2 * v + (1 - beta2) * g * g
            param -= lr * (m / correction1) / (sqrt(v / correction2) + epsilon)
        """

    # -- facts for the summary ---------------------------------------------------------------------
    def describe(self) -> dict:
        """What this backend is and runs on, for summaries and `hpcgcn doctor`."""
        return {"backend": self.name}
