"""The transpose of a pattern: the same by sorting (small ones) and by SciPy (large ones)."""

import subprocess
import sys

import numpy as np
import pytest

from hpcgcn.parallel import local_graph
from hpcgcn.parallel.local_graph import Structure


def random_structure(n_rows, n_columns, n_entries, seed=0):
    rng = np.random.default_rng(seed)
    keys = np.unique(rng.integers(0, n_rows * n_columns, n_entries))
    counts = np.bincount(keys // max(n_columns, 1), minlength=n_rows)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Structure(indptr, (keys % max(n_columns, 1)).astype(np.int32), n_columns)


@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 5, 20), (100, 3, 150), (3, 100, 150), (4, 6, 0),
                                   (0, 0, 0)])
def test_both_ways_agree_and_are_the_dense_transpose(shape, monkeypatch):
    found = random_structure(*shape) if shape[2] else Structure(
        np.zeros(shape[0] + 1, np.int64), np.zeros(0, np.int32), shape[1])
    by_sorting = found.transposed()
    monkeypatch.setattr(local_graph, "SORTED_ENTRIES", -1)
    by_scipy = found.transposed()
    for one, other in ((by_sorting.indptr, by_scipy.indptr),
                       (by_sorting.indices, by_scipy.indices)):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
    assert by_sorting.n_columns == by_scipy.n_columns == found.n_rows

    def dense(structure):
        matrix = np.zeros((structure.n_rows, structure.n_columns))
        matrix[np.repeat(np.arange(structure.n_rows),
                         np.diff(structure.indptr)), structure.indices] = 1
        return matrix
    np.testing.assert_array_equal(dense(by_sorting), dense(found).T)


def test_training_loads_no_scipy():
    code = "import sys, hpcgcn.train.run, hpcgcn.backend.native; print('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True,
                          text=True).stdout == "False\n"
