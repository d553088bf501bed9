"""Features made from the graph, where there are none."""

from __future__ import annotations

import numpy as np

from hpcgcn.errors import ConfigError
from hpcgcn.graph.data import SparseRows

MADE = ("degree", "identity")
_LARGEST_DEGREE = 127      # more neighbours than this share the last column


def make_features(kind: str, indptr: np.ndarray) -> SparseRows:
    """identity: one column per node; degree: one column for each number of
    in-neighbours."""
    n_nodes = len(indptr) - 1
    one_each = np.arange(n_nodes + 1, dtype=np.int64)
    if kind == "identity":
        return SparseRows(one_each, np.arange(n_nodes, dtype=np.int32), None, n_nodes)
    if kind != "degree":
        raise ConfigError(f"--make-features {kind}: expected one of {', '.join(MADE)}")
    return SparseRows(one_each, np.minimum(np.diff(indptr), _LARGEST_DEGREE).astype(np.int32), None,
                      _LARGEST_DEGREE + 1)
