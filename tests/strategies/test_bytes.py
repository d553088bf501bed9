"""Bytes on the wire, as metrics.csv tells them, against formulas worked out from the partition."""

import networkx as nx
import numpy as np
import pytest
from many_runs import job, run_many

from hpcgcn.graph.data import TRAIN
from hpcgcn.graph.generate import generate_sbm
from hpcgcn.graph.partition import partition_graph, statistics
from hpcgcn.graph.store import write_graph

pytestmark = [pytest.mark.mpi_skip, pytest.mark.timeout(600)]

HIDDEN, CLASSES, EPOCHS, RANKS = 128, 5, 12, 3
METHODS = ("vanilla", "overlap", "pipegcn", "sylvie-s", "sylvie-a", "varco", "bns")
BUDGETS = {"bits": 500_000, "subset": 500_000, "nodes": 400_000, "bits-feedback": 500_000}
CODECS = {"fp16": {}, "bf16": {}, "8bit": {}, "2bit": {}, "4bit": {"code_parameters": "fp32"},
          "subset": {"rate": "5"}, "bits": {"rate": "step:1@0,2@2,4@4,8@6,16@8,32@10"}}


# Only what the loss needs, as rows or sums.
LEAST = {"rows": {"halo": "rows"}, "cover": {"halo": "cover"}, "auto": {},
         "all-cover": {"halo": "cover", "needed_rows": False},
         "1bit": {"halo": "cover", "method": "sylvie-s"},
         "stale": {"halo": "cover", "method": "pipegcn"},
         "budget": {"halo": "cover", "codec": "bits", "byte_budget": "150000"}}


@pytest.fixture(scope="module")
def graph():
    return generate_sbm(150, 8, 12, CLASSES, seed=2)


@pytest.fixture(scope="module")
def halo_rows(graph):
    """Rows that one exchange moves, over all ranks."""
    return statistics(graph, partition_graph(graph, RANKS, "metis", "volume"))["halo_rows"]


@pytest.fixture(scope="module")
def runs(graph, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bytes")
    write_graph(folder / "g.h5", graph)
    whole = {"hidden": HIDDEN, "epochs": EPOCHS, "layers": 3, "model": "sage"}
    common = whole | {"halo": "rows", "needed_rows": False}
    jobs = [job(name, folder / "g.h5", method=name, **common) for name in METHODS]
    jobs += [job(f"codec-{name}", folder / "g.h5", codec=name, **common, **settings)
             for name, settings in CODECS.items()]
    fed_back = {"error_feedback": True, "rounding": "nearest"}
    jobs += [job(f"budget-{name}", folder / "g.h5", codec=name.split("-")[0],
                 byte_budget=str(budget), **common, **(fed_back if "feedback" in name else {}))
             for name, budget in BUDGETS.items()]
    jobs += [job("evaluated", folder / "g.h5", method="sylvie-a", **common | {"eval_every": 1})]
    jobs += [job("narrow", folder / "g.h5", method="vanilla",
                 **common | {"model": "gcn", "layers": 2}),
             job("deep", folder / "g.h5", method="vanilla", **common | {"model": "resgcn"})]
    jobs += [job(f"least-{name}", folder / "g.h5", **whole | settings)
             for name, settings in LEAST.items()]
    results = run_many(RANKS, jobs, folder)
    assert not {label: run for label, run in results.items() if "rows" not in run}
    return results


def column(run, name) -> np.ndarray:
    return np.array([int(row[name]) for row in run["rows"]])


def of_exchanges(halo_rows: int, row_bytes) -> int:
    """Layer 1 is precomputed; layer 2 moves 128 columns there and back, layer 3 (transformed first)
    its 5 classes."""
    return 2 * halo_rows * (row_bytes(HIDDEN) + row_bytes(CLASSES))


@pytest.mark.parametrize("name", ["vanilla", "overlap", "pipegcn"])
def test_plain_exchanges_move_four_bytes_an_element(runs, halo_rows, name):
    assert set(column(runs[name], "bytes_sent")) == {of_exchanges(halo_rows, lambda d: 4 * d)}


def test_columns_by_exchange_add_up(runs, halo_rows):
    for run in runs.values():
        by_exchange = [name for name in run["rows"][0]
                       if name.startswith(("bytes_forward", "bytes_backward"))]
        assert (sum(column(run, name) for name in by_exchange) == column(run, "bytes_sent")).all()
        assert (column(run, "bytes_received") == column(run, "bytes_sent")).all()
    first = runs["vanilla"]["rows"][0]
    assert int(first["bytes_forward_1"]) == int(first["bytes_backward_1"]) == halo_rows * HIDDEN * 4
    assert int(first["bytes_forward_2"]) == int(
        first["bytes_backward_2"]) == halo_rows * CLASSES * 4


def test_the_narrow_side_is_sent(runs, halo_rows):
    assert set(column(runs["narrow"], "bytes_sent")) == {2 * halo_rows * CLASSES * 4}
    assert set(column(runs["deep"], "bytes_sent")) == {3 * 2 * halo_rows * HIDDEN * 4}


@pytest.mark.parametrize("name", ["sylvie-s", "sylvie-a"])
def test_sylvie_moves_a_twentieth_of_vanilla(runs, halo_rows, name):
    sent = column(runs[name], "bytes_sent")
    assert set(sent) == {of_exchanges(halo_rows, lambda d: 4 + -(-d // 8))}
    assert set(column(runs[name], "bytes_parameters")) == {4 * 4 * halo_rows}
    wide = runs[name]["rows"][0]
    for exchange in ("forward_1", "backward_1"):
        assert 20 * int(wide[f"bytes_{exchange}"]) <= int(
            runs["vanilla"]["rows"][0][f"bytes_{exchange}"])
    assert 20 * sent.sum() <= column(runs["vanilla"], "bytes_sent").sum()
    assert runs[name]["summary"]["compression"] > 20


def test_evaluation_is_not_counted(runs):
    assert list(column(runs["evaluated"],
                       "bytes_sent")) == list(column(runs["sylvie-a"], "bytes_sent"))


def test_varco_moves_what_its_formula_says(runs, halo_rows):
    """Layer 2: max(1, floor(128 / c)) columns with c = max(128 - 5 k 127 / (K - 2), 1); the last
    layer is left whole."""
    wanted = []
    for epoch in range(EPOCHS):
        ratio = max(128 - 5 * epoch * 127 / (EPOCHS - 2), 1)
        wanted.append(2 * halo_rows * 4 * (max(1, int(HIDDEN / ratio)) + CLASSES))
    assert list(column(runs["varco"], "bytes_sent")) == wanted
    assert [float(row["rate"]) for row in runs["varco"]["rows"]][:2] == [128.0, 128 - 63.5]


@pytest.mark.parametrize("name", CODECS)
def test_codecs_move_what_their_formulas_say(runs, halo_rows, name):
    sent, bits_at = column(runs[f"codec-{name}"], "bytes_sent"), [1, 1, 2, 2, 4, 4, 8, 8, 16, 16,
                                                                  32, 32]

    def quantised(bits, header=4):
        return of_exchanges(halo_rows,
                            lambda d: header + -(-d * bits // 8) if bits < 16 else d * bits // 8)
    wanted = {"fp16": [quantised(16)] * EPOCHS, "bf16": [quantised(16)] * EPOCHS,
              "8bit": [quantised(8)] * EPOCHS,
              "2bit": [quantised(2)] * EPOCHS, "4bit": [quantised(4, header=8)] * EPOCHS,
              "subset": [of_exchanges(halo_rows, lambda d: 4 * max(1, d // 5))] * EPOCHS,
              "bits": [quantised(b) for b in bits_at]}
    assert list(sent) == wanted[name]


def test_bns_moves_about_a_tenth(runs, halo_rows):
    sent = column(runs["bns"], "bytes_sent")
    assert (sent % (2 * 4 * (HIDDEN + CLASSES))
            == 0).all(), "the same nodes in all layers and directions"
    whole = of_exchanges(halo_rows, lambda d: 4 * d)
    # A tenth of each of six messages, rounded down.
    slack = 6 * of_exchanges(1, lambda d: 4 * d)
    assert 0.1 * whole - slack <= sent[0] <= 0.1 * whole and len(set(sent)) == 1


@pytest.mark.parametrize("name", BUDGETS)
def test_budgets_are_kept_and_nearly_spent(runs, name):
    spent = column(runs[f"budget-{name}"], "bytes_sent").sum()
    # Bits move in six steps, and the last one doubles what an epoch sends; nodes are drawn, with a
    # margin for bad luck.
    assert (0.75 if name == "nodes" else 0.85) * BUDGETS[name] < spent <= BUDGETS[name]


def test_what_fp32_would_have_sent_is_told(runs, halo_rows):
    for name in ("vanilla", "sylvie-a", "varco", "bns"):
        assert set(column(runs[name],
                          "bytes_uncompressed")) == {of_exchanges(halo_rows, lambda d: 4 * d)}


@pytest.fixture(scope="module")
def least(graph):
    """{what: (rows of hop 1, rows of hop 2)}, over all pairs of ranks, counted one by one."""
    part = partition_graph(graph, RANKS, "metis", "volume")
    edges = [(int(u), v) for v in range(graph.n_nodes)
             for u in graph.indices[graph.indptr[v]:graph.indptr[v + 1]] if part[u] != part[v]]
    readers = {v for v in range(graph.n_nodes) if graph.split[0][v] == TRAIN}
    found = {"needed": [], "cover": [], "all": []}
    for last in (True, False):
        needed = edges_between([(u, v) for u, v in edges if v in readers], part)
        found["needed"].insert(0, sum(len({u for u, _ in pairs}) for pairs in needed))
        found["cover"].insert(0, sum(largest_matching(pairs) for pairs in needed))
        found["all"].insert(0, sum(map(largest_matching, edges_between(edges, part))))
        if last:                         # the hop before makes what the last one reads
            readers |= {int(u) for v in readers
                        for u in graph.indices[graph.indptr[v]:graph.indptr[v + 1]]}
    return found


def edges_between(edges: list, part) -> list[list]:
    """The edges of each ordered pair of parts."""
    return [[(u, v) for u, v in edges if (part[u], part[v]) == pair]
            for pair in {(part[u], part[v]) for u, v in edges}]


def largest_matching(edges: list) -> int:
    """By an independent implementation; the size of a minimum vertex cover."""
    graph = nx.Graph((("source", u), ("destination", v)) for u, v in edges)
    sources = [node for node in graph if node[0] == "source"]
    return len(nx.bipartite.hopcroft_karp_matching(graph, sources)) // 2


def of_hops(rows, row_bytes) -> int:
    """128 columns in hop 1 and 5 in hop 2, there and back."""
    return 2 * (rows[0] * row_bytes(HIDDEN) + rows[1] * row_bytes(CLASSES))


@pytest.mark.parametrize("name, what, row_bytes", [
    ("rows", "needed", lambda d: 4 * d), ("cover", "cover", lambda d: 4 * d),
    ("all-cover", "all", lambda d: 4 * d), ("stale", "cover", lambda d: 4 * d),
    ("1bit", "cover", lambda d: 4 + -(-d // 8))])
def test_only_what_the_loss_needs_is_sent(runs, least, halo_rows, name, what, row_bytes):
    sent = column(runs[f"least-{name}"], "bytes_sent")
    assert set(sent) == {of_hops(least[what], row_bytes)}
    assert least["cover"][1] < least["needed"][1] < halo_rows, "a graph that shows nothing"
    assert least["cover"][0] < halo_rows


def test_auto_sends_what_is_counted_when_a_graph_is_partitioned(runs, least, graph):
    """Sums where they save enough and leave the work balanced."""
    counted = statistics(graph, partition_graph(graph, RANKS, "metis", "volume"))["hops_from_loss"]
    sent = set(column(runs["least-auto"], "bytes_sent"))
    assert sent == {of_hops([counted[1]["auto"], counted[0]["auto"]], lambda d: 4 * d)}
    for name, what in (("needed", "needed"), ("cover", "cover")):
        assert [counted[1][name], counted[0][name]] == least[what]
    for hop in counted:
        assert hop["cover"] <= hop["auto"] <= hop["needed"] <= hop["all"]


def test_a_budget_counts_what_is_sent(runs):
    spent = column(runs["least-budget"], "bytes_sent").sum()
    assert 0.85 * 150_000 < spent <= 150_000
