"""Partitions: every node in one part, no part empty, costs counted right, awkward graphs
included."""

import subprocess
import sys
import time

import networkx as nx
import numpy as np
import pytest
from graphs import edges_graph, random_graph
from hypothesis import given, settings, strategies as st
from small_graphs import small_graph

from hpcgcn.errors import ConfigError, GraphError
from hpcgcn.graph import csr, reorder
from hpcgcn.graph.data import TEST, TRAIN
from hpcgcn.graph.divide import divide
from hpcgcn.graph.generate import generate_grid, generate_sbm
from hpcgcn.graph.partition import BALANCES, METHODS, OBJECTIVES, partition_graph, statistics
from hpcgcn.graph.reorder import local_order
from hpcgcn.graph.store import header, read_graph, read_part
from hpcgcn.info.verify import verify

COMMUNITIES = generate_sbm(2000, 10, 4, 8, seed=0, homophily=0.95)


def counted(graph, parts):
    """Cut entries and halo rows, the slow and obvious way."""
    cut, halo = 0, set()
    for node in range(graph.n_nodes):
        for other in graph.indices[graph.indptr[node]:graph.indptr[node + 1]]:
            if parts[node] != parts[other]:
                cut += 1
                halo.add((int(parts[node]), int(other)))
    return cut, len(halo)


@pytest.mark.parametrize("directed", [False, True])
def test_statistics_against_counting(directed, monkeypatch):
    monkeypatch.setattr(csr, "BLOCK_EDGES", 11)
    graph = random_graph(n_nodes=60, n_edges=200, directed=directed)
    parts = np.random.default_rng(0).integers(0, 4, 60)
    found = statistics(graph, parts)
    cut, halo = counted(graph, parts)
    assert found["edge_cut"] == (cut if directed else cut // 2) and found["halo_rows"] == halo
    assert found["halo_ratio"] == halo / 60 and sum(found["parts"]["halo"]) == halo
    assert found["parts"]["nodes"] == np.bincount(parts).tolist()
    assert sum(found["parts"]["edges"]) == graph.n_edges
    assert sum(found["parts"]["train"]) == np.count_nonzero(graph.split == TRAIN)
    assert found["balance"]["nodes"] == pytest.approx(np.bincount(parts).max() / 15)


def test_statistics_of_a_bare_csr():
    graph = random_graph()
    parts = np.arange(41) % 3
    whole, bare = statistics(graph, parts), statistics((graph.indptr, graph.indices), parts)
    assert bare["edge_cut"] == whole["edge_cut"] and bare["halo_rows"] == whole["halo_rows"]


def test_one_part_costs_nothing():
    found = statistics(COMMUNITIES, partition_graph(COMMUNITIES, 1))
    assert (found["edge_cut"], found["halo_rows"], found["balance"]["nodes"]) == (0, 0, 1.0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("balance", BALANCES)
@pytest.mark.parametrize("n_parts", [2, 3, 8])
def test_balance(method, balance, n_parts):
    parts = partition_graph(COMMUNITIES, n_parts, method, balance=balance)
    assert parts.dtype == np.int32 and parts.shape == (2000,)
    assert statistics(COMMUNITIES, parts)["balance"][balance] < 1.12


def test_training_nodes_of_one_class_are_spread():
    """The hard case: all training nodes in one community; nodes stay balanced too."""
    graph = generate_sbm(2000, 10, 4, 8, seed=0, homophily=0.95)
    graph.split[0] = np.where(graph.labels == 0, TRAIN, TEST)
    even = statistics(graph, partition_graph(graph, 4, balance="train"))["balance"]
    assert even["train"] < 1.05 and even["nodes"] < 1.05
    assert statistics(graph, partition_graph(graph, 4))["balance"]["train"] > 2


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_metis_finds_communities(objective):
    metis = statistics(COMMUNITIES, partition_graph(COMMUNITIES, 4, objective=objective))
    random = statistics(COMMUNITIES, partition_graph(COMMUNITIES, 4, "random"))
    assert (metis["edge_cut"] < 0.35 * random["edge_cut"]
            and metis["halo_rows"] < 0.5 * random["halo_rows"])


@pytest.mark.parametrize("method", METHODS)
def test_the_seed_decides(method):
    def parts(seed):
        return partition_graph(COMMUNITIES, 4, method, seed=seed)

    np.testing.assert_array_equal(parts(1), parts(1))
    assert np.array_equal(parts(1), parts(2)) == (method == "block")


def test_block_is_contiguous():
    assert (np.diff(partition_graph(COMMUNITIES, 7, "block", balance="edges")) >= 0).all()


AWKWARD = {
    "star": lambda n: (np.zeros(n, int), np.arange(n)),
    "path": lambda n: (np.arange(n - 1), np.arange(1, n)),
    "no edges": lambda n: ([], []),
    "one edge": lambda n: ([0], [n - 1]),
    "complete": lambda n: np.nonzero(np.ones((n, n))),
    "two halves": lambda n: np.nonzero(np.arange(n)[:, None] * 2 // n == np.arange(n) * 2 // n),
}


@pytest.mark.parametrize("shape", AWKWARD)
@pytest.mark.parametrize("n_nodes", [1, 2, 3, 7, 40])
def test_awkward_graphs(shape, n_nodes):
    """Disconnected, isolated, star-shaped, as many parts as nodes: every part has a node, with
    every choice."""
    graph = edges_graph(n_nodes, *AWKWARD[shape](n_nodes))
    for n_parts in {1, 2, 3, 5, n_nodes // 2, n_nodes - 1, n_nodes} & set(range(1, n_nodes + 1)):
        for method in METHODS:
            for balance in BALANCES:
                parts = partition_graph(graph, n_parts, method, balance=balance)
                assert set(parts) == set(range(n_parts))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_graphs(data):
    """Any graph, directed or not: all parts are there, and the halo is what counting finds."""
    n_nodes = data.draw(st.integers(1, 60))
    edges = data.draw(st.lists(st.tuples(st.integers(0, n_nodes - 1), st.integers(0, n_nodes - 1)),
                               max_size=150))
    graph = edges_graph(n_nodes, *np.array(edges, int).reshape(-1, 2).T,
                        directed=data.draw(st.booleans()))
    n_parts = data.draw(st.integers(1, n_nodes))
    parts = partition_graph(graph, n_parts, data.draw(st.sampled_from(METHODS)),
                            data.draw(st.sampled_from(OBJECTIVES)),
                            data.draw(st.sampled_from(BALANCES)),
                            seed=data.draw(st.integers(0, 2 ** 40)))
    assert set(parts) == set(range(n_parts))
    assert statistics(graph, parts)["halo_rows"] == counted(graph, parts)[1]


def test_metis_says_nothing_on_tiny_graphs():
    """Its complaints go to standard output, where --json must be alone."""
    code = """if True:
        import numpy as np
        from graphs import edges_graph
        from hpcgcn.graph.partition import partition_graph
        for n_nodes in (8, 17, 40, 100):
            for sources in (np.zeros(n_nodes, int), np.arange(n_nodes) // 2):
                graph = edges_graph(n_nodes, sources, np.arange(n_nodes))
                for n_parts in range(1, n_nodes + 1):
                    partition_graph(graph, n_parts, balance="edges")
        """
    run = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)},
                         capture_output=True)
    assert (run.returncode, run.stdout, run.stderr) == (0, b"", b"")


@pytest.mark.parametrize("n_parts", [0, -1, 42])
def test_more_parts_than_nodes(n_parts):
    with pytest.raises(ConfigError, match="between 1 and 41"):
        partition_graph(random_graph(), n_parts)


@pytest.mark.parametrize("settings",
                         [dict(method="magic"), dict(objective="beauty"), dict(balance="mood")])
def test_unknown_choices(settings):
    with pytest.raises(ConfigError, match="known are"):
        partition_graph(random_graph(), 2, **settings)


def test_metis_never_sees_a_bad_graph():
    graph = random_graph()
    graph.indices = graph.indices.copy()
    graph.indices[0] = 1000
    with pytest.raises(GraphError, match="cannot be partitioned.*0..40"):
        partition_graph(graph, 2)
    lopsided = random_graph(directed=True)
    lopsided.directed = False
    with pytest.raises(GraphError, match="one way only"):
        partition_graph(lopsided, 2)


@pytest.mark.parametrize("method", reorder.METHODS)
@pytest.mark.parametrize("directed", [False, True])
def test_orders_keep_the_parts(method, directed, monkeypatch):
    monkeypatch.setattr(reorder, "CLUSTER_NODES", 16)
    graph = random_graph(n_nodes=200, n_edges=500, directed=directed)
    parts = partition_graph(graph, 3)
    order = local_order(graph, parts, method)
    np.testing.assert_array_equal(np.sort(order), np.arange(200))
    assert (np.diff(parts[order]) >= 0).all()


def test_degree_order_and_none():
    parts = np.arange(2000) % 2
    order = local_order(COMMUNITIES, parts, "none")
    assert order.tolist() == [*range(0, 2000, 2), *range(1, 2000, 2)]
    order = local_order(COMMUNITIES, parts, "degree")
    rows = csr.row_numbers(COMMUNITIES.indptr)
    within = np.bincount(rows[parts[rows] == parts[COMMUNITIES.indices]], minlength=2000)
    assert all((np.diff(within[order[parts[order] == part]]) <= 0).all() for part in (0, 1))


@pytest.mark.parametrize("method", ["rcm", "cluster"])
def test_orders_bring_neighbours_together(method, monkeypatch):
    """A shuffled grid: the mean distance between neighbours in the order falls."""
    monkeypatch.setattr(reorder, "CLUSTER_NODES", 64)
    grid = generate_grid(1600, 4, 1, 1, 0)
    shuffled = np.random.default_rng(0).permutation(1600)
    graph = edges_graph(1600, shuffled[csr.row_numbers(grid.indptr)], shuffled[grid.indices])

    def distance(order):
        place = csr.invert(order)
        return np.abs(place[csr.row_numbers(graph.indptr)] - place[graph.indices]).mean()

    parts = np.zeros(1600, np.int32)
    assert distance(local_order(graph, parts,
                                method)) < 0.5 * distance(local_order(graph, parts, "none"))


def test_unknown_order():
    with pytest.raises(ConfigError, match="none, degree, rcm, cluster"):
        local_order(random_graph(), np.zeros(41, int), "beauty")


@pytest.mark.parametrize("method", reorder.METHODS)
def test_divide_keeps_settings_and_costs(method, tmp_path):
    graph = random_graph(n_nodes=100, n_edges=300, uuid="the-graph")
    costs = divide(graph, tmp_path / "p.h5", 3, balance="edges", reorder=method, seed=5)
    facts = header(tmp_path / "p.h5")
    assert verify(tmp_path / "p.h5") == [] and facts["source_uuid"] == "the-graph"
    assert {"method": "metis", "objective": "volume", "balance": "edges", "reorder": method,
            "seed": 5, "n_parts": 3}.items() <= facts["settings"].items()
    assert facts["settings"]["statistics"]["halo_rows"] == costs["halo_rows"]
    assert sum(read_part(tmp_path / "p.h5", rank, 3).n_owned for rank in range(3)) == 100
    np.testing.assert_array_equal(read_graph(tmp_path / "p.h5").indices, graph.indices)


def fewest_per_host(graph, parts, readers) -> int:
    """Rows and sums from each part to each other host of two, by an independent matching."""
    edges: dict = {}
    for node in readers:
        for source in graph.indices[graph.indptr[node]:graph.indptr[node + 1]].tolist():
            if parts[source] // 2 != parts[node] // 2:
                edges.setdefault((int(parts[source]), int(parts[node]) // 2), []).append(
                    (f"s{source}", f"r{node}"))
    return sum(len(nx.bipartite.hopcroft_karp_matching(nx.Graph(pairs), {s for s, _ in pairs})) // 2
               for pairs in edges.values())


def test_rows_between_hosts_are_counted_once_per_reader_and_once_per_host():
    graph, rng = small_graph(90, 300, train_share=0.1), np.random.default_rng(1)
    parts = rng.integers(0, 5, 90)                   # hosts of parts 0 and 1, 2 and 3, 4
    hops = statistics(graph, parts, ranks_per_host=2)["hops_from_loss"]
    readers = {node for node in range(90) if graph.split[0, node] == TRAIN}
    for hop in hops:
        by_part, by_host = set(), set()
        for node in readers:
            for source in graph.indices[graph.indptr[node]:graph.indptr[node + 1]].tolist():
                if parts[source] // 2 != parts[node] // 2:
                    by_part.add((source, int(parts[node])))
                    by_host.add((source, int(parts[node]) // 2))
        assert (hop["between_hosts"], hop["once_per_host"]) == (len(by_part), len(by_host))
        assert hop["once_per_host"] < hop["between_hosts"] < hop["needed"]
        assert hop["cover_per_host"] == fewest_per_host(graph, parts, readers)
        readers |= {source for node in readers for source in
                    graph.indices[graph.indptr[node]:graph.indptr[node + 1]].tolist()}
    assert "once_per_host" not in statistics(graph, parts)["hops_from_loss"][0]


SIGTERM_IN_METIS = """
import signal
from hpcgcn.errors import GraphError
from hpcgcn.graph.generate import generate_sbm
from hpcgcn.graph.partition import partition_graph
signal.signal(signal.SIGTERM, signal.SIG_IGN)        # between two calls
graph = generate_sbm(20000, 20, 4, 8, seed=0)
print("ready", flush=True)
try:
    while True:
        partition_graph(graph, 8)
except GraphError as error:
    print(error)
"""


def test_a_sigterm_while_metis_works_is_one_message():
    """METIS has a handler of its own, which ends its work with an error."""
    process = subprocess.Popen([sys.executable, "-c", SIGTERM_IN_METIS], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    while process.poll() is None:
        process.terminate()
        time.sleep(0.05)
    said, errors = process.communicate()
    assert process.returncode == 0 and "METIS ended without a result" in said, errors
