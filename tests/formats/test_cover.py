"""The fewest rows and partial sums that serve a set of edges, against an independent matching."""

import networkx as nx
import numpy as np
import pytest

from hpcgcn.backend.native.library import available
from hpcgcn.graph.cover import cover_by_scipy, minimum_cover

KINDS = ("sparse", "dense", "skewed", "stars", "paths", "one source", "no edges", "nothing")


def edges_of(kind: str, seed: int) -> tuple[np.ndarray, np.ndarray, int]:
    """(indptr, indices, number of destinations); sources without edges among them."""
    rng = np.random.default_rng(seed)
    n, m = rng.integers(1, 60, 2)
    if kind == "one source":
        pairs = [(0, d) for d in range(m)]
    elif kind == "stars":                # a hub on each side: the cover is two nodes
        pairs = [(0, d) for d in range(m)] + [(s, 0) for s in range(n)]
    elif kind == "paths":                # alternating paths of any length
        pairs = [(k, k) for k in range(min(n, m))] + [(k + 1, k) for k in range(min(n - 1, m))]
    elif kind in ("no edges", "nothing"):
        pairs = []
    elif kind == "skewed":
        count = 3 * int(n)
        pairs = list(zip((n * rng.random(count) ** 3).astype(int),
                         (m * rng.random(count) ** 3).astype(int)))
    else:
        count = int(n * m * (0.5 if kind == "dense" else 2 / m))
        pairs = list(zip(rng.integers(0, n, count), rng.integers(0, m, count)))
    if kind == "nothing":
        n = m = 0
    table = np.array(sorted(set(pairs)), np.int64).reshape(-1, 2)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(table[:, 0], minlength=n))])
    return indptr.astype(np.int64), table[:, 1].astype(np.int32), int(m)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", KINDS)
def test_the_cover_is_as_small_as_the_largest_matching(kind, seed):
    indptr, indices, m = edges_of(kind, seed)
    covers, served = cover_by_scipy(indptr, indices, m)
    source = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    assert (covers[source] | served[indices]).all(), "an edge is not served"
    graph = nx.Graph((f"s{s}", f"d{d}") for s, d in zip(source, indices))
    tops = [node for node in graph if node.startswith("s")]
    matching = nx.bipartite.hopcroft_karp_matching(graph, tops)
    assert covers.sum() + served.sum() == len(matching) // 2
    if available()[0]:
        native = minimum_cover(indptr, indices, m)
        np.testing.assert_array_equal(native[0], covers)
        np.testing.assert_array_equal(native[1], served)


def test_the_cover_of_a_large_graph():
    """Long searches: many phases, queues and paths that are longer than a few nodes."""
    if not available()[0]:
        pytest.skip("no compiled kernels")
    rng = np.random.default_rng(3)
    n, m, count = 3000, 2500, 9000
    table = np.unique(np.stack([(n * rng.random(count) ** 2).astype(int),
                                rng.integers(0, m, count)], axis=1), axis=0)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(table[:, 0], minlength=n))]).astype(
        np.int64)
    wanted = cover_by_scipy(indptr, table[:, 1].astype(np.int32), m)
    found = minimum_cover(indptr, table[:, 1].astype(np.int32), m)
    np.testing.assert_array_equal(found[0], wanted[0])
    np.testing.assert_array_equal(found[1], wanted[1])
