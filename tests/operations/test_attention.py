"""Attention over edges on every backend against formulas on dense arrays in float64."""

import numpy as np
import pytest
from arrays import big_ids, graph, numbers

from hpcgcn import philox

KEY, THRESHOLD = philox.key(1, 2, 3, philox.DROPOUT), 26214
N_ROWS, N_COLUMNS = 37, 29


def shapes(width):
    """(heads, columns of a head) of rows that are about so wide: few and many heads, more than
    one draw of eight serves."""
    heads = {1: 1, 7: 1, 16: 2, 41: 9}.get(width, 4)
    return heads, max(width // heads, 1)


class Case:
    """Attention over one small graph in float64; entries may repeat."""

    def __init__(self, heads, columns, drop, ends=None):
        self.heads, self.columns, self.width = heads, columns, heads * columns
        self.csr = graph(N_ROWS, N_COLUMNS)
        indptr, indices, _ = self.csr
        self.row = np.repeat(np.arange(N_ROWS), np.diff(indptr))
        self.entry = np.arange(len(indices))
        self.column = indices
        self.row_ids, self.column_ids = big_ids(N_ROWS), big_ids(N_COLUMNS)[::-1].copy()
        self.x, self.source, self.target = (numbers(N_COLUMNS, self.width, seed=1),
                                            2 * numbers(N_COLUMNS, heads, seed=2),
                                            2 * numbers(N_ROWS, heads, seed=3))
        self.dout = numbers(N_ROWS, self.width, seed=4)
        self.drop = drop

    def factors(self):
        """(n_entries, heads) what coefficients are multiplied by."""
        if not self.drop:
            return np.ones((len(self.row), self.heads))
        padded, kept = -(-self.heads // 8) * 8, np.zeros((len(self.row), self.heads))
        for k, (i, j) in enumerate(zip(self.row, self.column)):
            source = int(self.column_ids[j])
            block = (source * (padded // 8)) % 2 ** 32
            target = int(self.row_ids[i])
            for head in range(self.heads):
                words = philox.philox_words(((block + head // 8) % 2 ** 32, target % 2 ** 32,
                                             target >> 32, 0), KEY)
                bits = int(words[head % 8 // 2]) >> (16 * (head % 2)) & 0xFFFF
                kept[k, head] = (bits >= THRESHOLD) * philox.dropout_scale(THRESHOLD)
        return kept

    def forward(self):
        """(coefficients, output)"""
        logit = self.source[self.column] + self.target[self.row]
        e = np.exp(np.where(logit > 0, logit, 0.2 * logit))
        total = np.zeros((N_ROWS, self.heads))
        np.add.at(total, self.row, e)
        coefficient = e / total[self.row]
        out = np.zeros((N_ROWS, self.heads, self.columns))
        x = self.x.reshape(N_COLUMNS, self.heads, self.columns)
        np.add.at(out, self.row, (coefficient * self.factors())[:, :, None] * x[self.column])
        return logit, coefficient, out.reshape(N_ROWS, self.width)

    def backward(self):
        """Gradients of x without what comes through logits, of source and of target logits."""
        logit, coefficient, _ = self.forward()
        factors, x = self.factors(), self.x.reshape(N_COLUMNS, self.heads, self.columns)
        dout = self.dout.reshape(N_ROWS, self.heads, self.columns)
        dx = np.zeros(x.shape)
        np.add.at(dx, self.column, (coefficient * factors)[:, :, None] * dout[self.row])
        dcoefficient = factors * (dout[self.row] * x[self.column]).sum(axis=2)
        mean = np.zeros((N_ROWS, self.heads))
        np.add.at(mean, self.row, coefficient * dcoefficient)
        dlogit = coefficient * (dcoefficient - mean[self.row]) * np.where(logit > 0, 1, 0.2)
        dsource, dtarget = np.zeros(self.source.shape), np.zeros(self.target.shape)
        np.add.at(dsource, self.column, dlogit)
        np.add.at(dtarget, self.row, dlogit)
        return dx.reshape(self.x.shape), dsource, dtarget

    def dropout(self, arena, transposed=False):
        if not self.drop:
            return None
        ids = arena.put(self.row_ids), arena.put(self.column_ids)
        return KEY, THRESHOLD, *(ids[::-1] if transposed else ids)

    def parts(self, n_parts):
        """The matrix as several, whose entries together are its own."""
        chosen = [self.entry % n_parts == k for k in range(n_parts)]
        return [csr_of(self.row[c], self.column[c], N_ROWS, N_COLUMNS) for c in chosen]


def csr_of(rows, columns, n_rows, n_columns):
    order = np.argsort(rows, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n_rows))])
    return indptr.astype(np.int64), columns[order].astype(np.int32), n_columns


def attend(backend, arena, case, matrices, rows=(0, N_ROWS)):
    """(state, sums, out) after all parts."""
    state, sums, out = (arena.garbage((N_ROWS, width))
                        for width in (3 * case.heads, 2 * case.width, case.width))
    x, source, target = map(arena.put, (case.x, case.source, case.target))
    for k, matrix in enumerate(matrices):
        backend.attend(arena.csr(matrix), x, source, target, state, sums, out, rows, k == 0,
                       k == len(matrices) - 1, case.dropout(arena))
    return state, sums, out


def nearly(actual, wanted, terms=400):
    scale = np.abs(wanted).max() if wanted.size else 1
    np.testing.assert_allclose(actual, wanted, rtol=0,
                               atol=terms * np.finfo(actual.dtype).eps * scale)


@pytest.mark.thread_orders
@pytest.mark.parametrize("n_parts", [1, 2])
@pytest.mark.parametrize("drop", [False, True], ids=["all", "dropped"])
def test_rows_are_weighted_by_their_softmax(backend, arena, width, drop, n_parts):
    case = Case(*shapes(width), drop)
    _, sums, out = attend(backend, arena, case, case.parts(n_parts))
    wanted = case.forward()[2]
    nearly(arena.get(out), wanted)
    both = arena.get(sums).reshape(N_ROWS, 2, case.width)
    nearly(both.sum(axis=1), wanted)


@pytest.mark.thread_orders
@pytest.mark.parametrize("drop", [False, True], ids=["all", "dropped"])
def test_gradients_of_rows_and_logits(backend, arena, width, drop):
    case = Case(*shapes(width), drop)
    state, sums, _ = attend(backend, arena, case, case.parts(1))
    dx, dsource, dtarget = case.backward()
    dout, x, source, target = map(arena.put, (case.dout, case.x, case.source, case.target))
    facts, found_target = (arena.garbage((N_ROWS, 3 * case.heads)),
                           arena.garbage((N_ROWS, case.heads)))
    for rows in (slice(0, 20), slice(20, N_ROWS)):
        backend.attention_gradients(dout[rows], sums[rows], state[rows], target[rows], facts[rows],
                                    found_target[rows])
    nearly(arena.get(found_target), dtarget)
    transposed = csr_of(case.column, case.row, N_COLUMNS, N_ROWS)
    before, found_source = numbers(N_COLUMNS, case.width, seed=9), arena.garbage(dsource.shape)
    found = arena.put(before)
    for rows in ((3, N_COLUMNS), (0, 3)):
        backend.attend_backward(arena.csr(transposed), dout, facts, x, source, found, found_source,
                                rows, rows[0] == 0, case.dropout(arena, True))
    nearly(arena.get(found_source), dsource)
    nearly(arena.get(found), dx + np.where(np.arange(N_COLUMNS) < 3, 1, 0)[:, None] * before)


def test_entries_past_the_end_of_a_row_do_not_count(backend, arena):
    case = Case(3, 5, False)
    indptr, indices, _ = case.csr
    ends = indptr[:-1] + np.diff(indptr) // 2
    kept = case.entry < ends[case.row]
    case.row, case.column = case.row[kept], case.column[kept]
    state, sums, out = (arena.garbage((N_ROWS, 9)), arena.garbage((N_ROWS, 30)),
                        arena.put(np.full((N_ROWS, 15), 7.0)))
    backend.attend(arena.csr(case.csr, ends), *map(arena.put, (case.x, case.source, case.target)),
                   state, sums, out, (2, 30), True, True)
    wanted = case.forward()[2]
    nearly(arena.get(out)[2:30], wanted[2:30])
    assert (arena.get(out)[30:] == 7).all() and (arena.get(out)[:2] == 7).all()


def test_logits_far_apart_do_not_overflow(backend, arena):
    case = Case(2, 8, False)
    case.source, case.target = 300 * case.source, 300 * case.target
    _, _, out = attend(backend, arena, case, case.parts(2))
    logit = case.source[case.column] + case.target[case.row]
    e, most = np.where(logit > 0, logit, 0.2 * logit), np.full((N_ROWS, 2), -np.inf)
    np.maximum.at(most, case.row, e)
    weight, total = np.exp(e - most[case.row]), np.zeros((N_ROWS, 2))
    np.add.at(total, case.row, weight)
    wanted = np.zeros((N_ROWS, 2, 8))
    np.add.at(wanted, case.row, (weight / total[case.row])[:, :, None]
              * case.x.reshape(N_COLUMNS, 2, 8)[case.column])
    nearly(arena.get(out), wanted.reshape(N_ROWS, 16), 8000)


@pytest.mark.thread_orders
@pytest.mark.parametrize("n", [0, 3, 700])
def test_products_of_heads_and_their_gradients(backend, arena, width, n):
    heads, columns = shapes(width)
    x, vector, dout = (numbers(n, heads * columns), numbers(heads * columns, seed=1),
                       numbers(n, heads, seed=2))
    out, dx, dvector = (arena.garbage((n, heads)), arena.put(numbers(*x.shape, seed=3)),
                        arena.put(numbers(len(vector), seed=4)))
    backend.head_dots(arena.put(x), arena.put(vector), out)
    nearly(arena.get(out), (x * vector).reshape(n, heads, columns).sum(axis=2))
    backend.head_dots_backward(arena.put(x), arena.put(vector), arena.put(dout), dx, dvector)
    wide = np.repeat(dout, columns, axis=1)
    nearly(arena.get(dx), numbers(*x.shape, seed=3) + wide * vector)
    nearly(arena.get(dvector), numbers(len(vector), seed=4) + (wide * x).sum(axis=0), 2000)
