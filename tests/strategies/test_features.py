"""Feature parallelism: the numbers of one rank, the bytes of the formula, with and without
roles."""

import numpy as np
import pytest
from many_runs import job, run_many
from same_losses import assert_same_losses
from small_graphs import few_train, needed_rows, small_graph

from hpcgcn.graph.generate import generate_grid, generate_rmat, generate_sbm
from hpcgcn.graph.store import write_graph

pytestmark = [pytest.mark.mpi_skip, pytest.mark.timeout(600)]

MODELS = ("gcn", "sage", "gcnii", "resgcn")
COMMON = {"epochs": 20, "dropout": 0.5, "lr": 0.02, "eval_every": 20}
N_NODES, HIDDEN, CLASSES = 220, 16, 5
# Two hops with nothing but an activation between them: the transposes there cancel.
PAIRED = {"pair-sparse": ("sparse.h5", {"model": "gcn"}), "pair-directed": ("directed.h5", {
    "model": "gcn", "precompute": "no", "hidden": 7}), "pair-inductive": ("plain.h5", {
        "model": "gcn", "precompute": "no", "hidden": 11, "inductive": True, "layers": 4})}
# Few training nodes: later hops need few rows, and between two hops on columns, too.
FEW = {"few-resgcn": ("few.h5", {"model": "resgcn"}), "few-gcnii": ("few.h5", {"model": "gcnii"}),
       "few-pair": ("few.h5", {"model": "gcn", "precompute": "no", "layers": 2})}


@pytest.fixture(scope="module")
def graph():
    return generate_sbm(N_NODES, 6, 12, CLASSES, seed=2)


@pytest.fixture(scope="module")
def sources(graph, tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    write_graph(folder / "plain.h5", generate_sbm(N_NODES, 8, 12, CLASSES, seed=2))
    write_graph(folder / "few.h5", few_train(graph, 4))
    write_graph(folder / "directed.h5", small_graph(151, 500, 9, 5, directed=True))
    write_graph(folder / "sparse.h5", small_graph(149, 500, 20, 5, sparse=True))
    return folder


@pytest.fixture(scope="module")
def alone(sources, tmp_path_factory):
    jobs = [job(model, sources / "plain.h5", model=model, **COMMON) for model in MODELS]
    jobs += [job(f"{model}-inductive", sources / "plain.h5", model=model, inductive=True, **COMMON)
             for model in ("gcn", "sage")]
    jobs += [job(kind, sources / f"{kind}.h5", model="sage", **COMMON)
             for kind in ("directed", "sparse")]
    jobs += [job(name, sources / source, **settings, **COMMON)
             for name, (source, settings) in (PAIRED | FEW).items()]
    return run_many(1, jobs, tmp_path_factory.mktemp("alone"))


def feature_jobs(sources, **settings):
    settings = COMMON | {"method": "mixgcn"} | settings
    jobs = [job(model, sources / "plain.h5", model=model, **settings) for model in MODELS]
    jobs += [job(f"{model}-inductive", sources / "plain.h5", model=model, inductive=True,
                 **settings) for model in ("gcn", "sage")]
    jobs += [job(kind, sources / f"{kind}.h5", model="sage", **settings)
             for kind in ("directed", "sparse")]
    return jobs + [job(name, sources / source, **own, **settings)
                   for name, (source, own) in (PAIRED | FEW).items()]


@pytest.mark.parametrize("n_ranks, sparse",
                         [(1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (2, 1), (3, 2), (3, 1), (4, 2)])
def test_losses_are_those_of_one_rank(n_ranks, sparse, sources, alone, tmp_path):
    found = run_many(n_ranks, feature_jobs(sources, sparse_ranks=sparse,
                                           feature_blocks=1 + n_ranks), tmp_path)
    for label, run in found.items():
        assert "losses" in run, f"{label}: {run}"
        assert_same_losses(run, alone[label], label)
        assert float(run["rows"][-1]["test"]) == pytest.approx(
            float(alone[label]["rows"][-1]["test"]), abs=0.03), label


@pytest.mark.parametrize("sparse", [0, 1])
def test_one_after_the_other_changes_nothing(sparse, sources, alone, tmp_path):
    settings = COMMON | {"method": "mixgcn", "sparse_ranks": sparse, "blocking": True,
                         "feature_blocks": 1}
    found = run_many(2, [job(model, sources / "plain.h5", model=model, **settings)
                         for model in ("gcn", "gcnii")], tmp_path)
    for model, run in found.items():
        assert_same_losses(run, alone[model], model)


def slice_widths(width, n_ranks):
    return [width * (k + 1) // n_ranks - width * k // n_ranks for k in range(n_ranks)]


def transpose_elements(width, n_ranks, needed=None):
    """What one transpose moves between ranks: the columns of needed rows (all, if not given) that
    another rank aggregates."""
    needed = np.ones(N_NODES, bool) if needed is None else needed
    rows = [int(needed[N_NODES * k // n_ranks:N_NODES * (k + 1) // n_ranks].sum())
            for k in range(n_ranks)]
    return sum(n * w for k, n in enumerate(rows)
               for j, w in enumerate(slice_widths(width, n_ranks)) if j != k)


@pytest.mark.parametrize("n_ranks", [2, 3, 4])
def test_bytes_are_those_of_the_formula(n_ranks, graph, sources, tmp_path):
    """GCN of three layers with layer 1 precomputed: hop 1 at the hidden width, hop 2 (transform
    first) at the classes. Rows that a hop reads go there, rows that it makes come back."""
    settings = {"model": "gcn", "method": "mixgcn", "hidden": HIDDEN}
    found = run_many(n_ranks, [job("needed", sources / "few.h5", **settings),
                               job("all", sources / "few.h5", needed_rows=False, **settings)],
                     tmp_path)
    needed = needed_rows(few_train(graph, 4), 2)
    assert needed[2].sum() < needed[1].sum() < needed[0].sum() < N_NODES
    for hop, width in ((1, HIDDEN), (2, CLASSES)):
        read, made = (4 * transpose_elements(width, n_ranks, needed[hop - k]) for k in (1, 0))
        for row in found["needed"]["rows"]:
            assert int(row[f"bytes_forward_{hop}"]) == read
            assert int(row[f"bytes_forward_return_{hop}"]) == made
            assert int(row[f"bytes_backward_{hop}"]) == made
            assert int(row[f"bytes_backward_return_{hop}"]) == read
    entries = np.diff(few_train(graph, 4).indptr) + 1           # with self loops
    assert found["needed"]["summary"]["multiply_adds"]["all_ranks"] == 2 * sum(
        width * int(entries[needed[hop]].sum()) for hop, width in ((1, HIDDEN), (2, CLASSES)))
    # bytes, 2 ways, 2 directions
    expected = 4 * 2 * 2 * sum(transpose_elements(width, n_ranks) for width in (HIDDEN, CLASSES))
    assert all(int(row["bytes_sent"]) == expected for row in found["all"]["rows"])
    if N_NODES % n_ranks == 0:
        whole = 4 * 2 * 2 * N_NODES * (HIDDEN + CLASSES)
        assert expected == pytest.approx(whole * (n_ranks - 1) / n_ranks, rel=0.05)


def test_fewer_bytes_than_parts_exactly_where_the_crossover_says(tmp_path):
    """Partitioning sends M rows per hop and direction, transposes 2 N (P - 1) / P."""
    n_ranks, made = 4, {"dense": generate_sbm(200, 40, 12, CLASSES, seed=0),
                        "grid": generate_grid(400, 4, 12, CLASSES, seed=0)}
    jobs = []
    for name, graph in made.items():
        write_graph(tmp_path / f"{name}.h5", graph)
        jobs += [job(f"{name}-{method}", tmp_path / f"{name}.h5", model="gcn", method=method,
                     epochs=1, needed_rows=False, halo="rows")
                 for method in ("overlap", "mixgcn")]
    found = {name: run["summary"] for name, run in run_many(n_ranks, jobs, tmp_path).items()}
    for name, graph in made.items():
        ratio = found[f"{name}-overlap"]["halo_rows"] / graph.n_nodes
        fewer = found[f"{name}-mixgcn"]["bytes_sent"] < found[f"{name}-overlap"]["bytes_sent"]
        assert fewer == (ratio > 2 * (n_ranks - 1) / n_ranks) == (name == "dense")


def test_transposes_around_element_wise_work_are_not_sent(sources, tmp_path):
    settings = {"method": "mixgcn", "hidden": 10, "precompute": "no", "epochs": 2,
                "needed_rows": False}
    jobs = [job("gcn", sources / "plain.h5", model="gcn", **settings),
            job("norm", sources / "plain.h5", model="gcn", norm="yes", **settings),
            job("sage", sources / "plain.h5", model="sage", norm="no", **settings)]
    sent = {name: run["summary"]["bytes_by_exchange"]
            for name, run in run_many(2, jobs, tmp_path).items()}
    moved = {name: {key.removeprefix("bytes_"): n // (2 * 4 * N_NODES // 2)
                    for key, n in by.items()} for name, by in sent.items()}
    assert moved["gcn"] == {"forward_1": 10, "backward_return_1": 10, "forward_return_2": 10,
                            "backward_2": 10,
                            **{f"{way}_3": CLASSES for way in ("forward", "forward_return",
                                                               "backward", "backward_return")}}
    for name in ("norm", "sage"):
        assert len(moved[name]) == 12, "two transposes for each of three hops and two directions"


def test_aggregation_is_balanced_where_parts_are_not(tmp_path):
    """On a power-law graph METIS's parts of equal size hold very different numbers of edges;
    columns all hold the same."""
    graph, n_ranks = generate_rmat(600, 10, 12, CLASSES, seed=0), 4
    write_graph(tmp_path / "power.h5", graph)
    jobs = [job(name, tmp_path / "power.h5", model="gcn", method=name, hidden=10, epochs=2,
                needed_rows=False, halo="rows") for name in ("overlap", "mixgcn", "mixgcn-moa")]
    work = {name: [rank["multiply_adds"] for rank in run["summary"]["by_rank"]]
            for name, run in run_many(n_ranks, jobs, tmp_path).items()}
    entries = graph.n_edges + graph.n_nodes                                        # with self loops
    both_ways = 2 * entries * (10 + CLASSES)
    assert sum(work["mixgcn"]) == sum(work["mixgcn-moa"]) == sum(work["overlap"]) == both_ways
    assert work["mixgcn"] == [2 * entries * (a + b)
                              for a, b in zip(slice_widths(10, 4), slice_widths(CLASSES, 4))]
    mean_width = (10 + CLASSES) / 2 / n_ranks
    assert max(work["overlap"]) > 1.5 * sum(work["overlap"]) / n_ranks
    assert max(work["mixgcn"]) <= (1 + 1 / mean_width) * both_ways / n_ranks
    assert work["mixgcn-moa"] == [2 * entries * (5 + 2), 2 * entries * (5 + 3), 0, 0]


def test_the_summary_tells_what_each_role_did(sources, tmp_path):
    settings = {"model": "gcn", "epochs": 3, "hidden": HIDDEN, "needed_rows": False}
    found = run_many(3, [job("roles", sources / "plain.h5", method="mixgcn", sparse_ranks=1,
                             **settings),
                         job("mixed", sources / "plain.h5", method="mixgcn", sparse_ranks=1,
                             sparse_backend="reference", **settings),
                         job("none", sources / "plain.h5", method="mixgcn", **settings)], tmp_path)
    np.testing.assert_allclose(found["mixed"]["losses"], found["roles"]["losses"], rtol=1e-5)
    summary = found["roles"]["summary"]
    assert {role: facts["ranks"]
            for role, facts in summary["roles"].items()} == {"sparse": 1, "dense": 2}
    for facts in summary["roles"].values():
        assert (0 < facts["busy_share"] < 1
                and facts["idle_share"] == pytest.approx(1 - facts["busy_share"]))
    assert [rank["role"] for rank in summary["by_rank"]] == ["sparse", "dense", "dense"]
    assert summary["multiply_adds"]["max_over_mean"] == 1.0, "one rank does all of it"
    assert list(found["none"]["summary"]["roles"]) == ["both"]
    # Transposes by name: there and back, of values and of gradients, for each of the two hops.
    moved = {name: n // (4 * N_NODES * settings["epochs"])
             for name, n in summary["bytes_by_exchange"].items()}
    assert moved == {f"bytes_{way}_{hop}": width
                     for way in ("forward", "forward_return", "backward", "backward_return")
                     for hop, width in ((1, HIDDEN), (2, CLASSES))}


def test_the_exchange_family_applies_to_transposes(sources, tmp_path):
    ways = {"bf16": {"codec": "bf16"}, "8bit": {"codec": "8bit"},
            "stale": {"staleness_features": 1, "staleness_gradients": 1},
            "1bit": {"codec": "1bit", "error_feedback": True, "rounding": "nearest"},
            "adaptive": {"codec": "adaptive", "rate": "8"},
            "moving": {"codec": "bits", "rate": "step:4@0,32@6"},
            "subset": {"codec": "subset", "rate": "2", "residual": True}}
    jobs = [job("exact", sources / "plain.h5", method="mixgcn")]
    jobs += [job(name, sources / "plain.h5", method="mixgcn", **settings)
             for name, settings in ways.items()]
    found = run_many(3, jobs, tmp_path)
    exact = found["exact"]
    for name in ("bf16", "8bit", "adaptive"):
        np.testing.assert_allclose(found[name]["losses"], exact["losses"], rtol=0.05, err_msg=name)
    assert (found["stale"]["losses"] != exact["losses"]
            and found["stale"]["losses"][-1] < found["stale"]["losses"][0])
    size = {name: int(run["rows"][0]["bytes_sent"]) for name, run in found.items()}
    assert 2 * size["bf16"] == size["exact"] and size["1bit"] < size["8bit"] < size["exact"]
    assert int(found["moving"]["rows"][-1]["bytes_sent"]) == size["exact"] > size["moving"]


def test_a_stale_run_resumes_bit_for_bit(sources, tmp_path):
    stale = {"method": "mixgcn", "staleness_features": 1, "staleness_gradients": 1,
             "checkpoint_every": 7}
    jobs = [job("straight", sources / "plain.h5", **stale),
            job("halved", sources / "plain.h5", **stale),
            job("halved", sources / "plain.h5", forget_after=7, resume="must", **stale)]
    found = run_many(2, jobs, tmp_path)
    assert found["halved"]["digest"] == found["straight"]["digest"]


def test_a_number_of_blocks_that_was_measured_is_kept(sources, tmp_path):
    """The choice depends on the machine; what follows from it must not, and a resumed run must not
    choose again."""
    stale = {"method": "mixgcn", "staleness_features": 1, "staleness_gradients": 1,
             "checkpoint_every": 7}
    tuned = job("tuned", sources / "plain.h5", feature_blocks=0, **stale)
    again = job("tuned", sources / "plain.h5", feature_blocks=0, forget_after=7, resume="must",
                **stale)
    first = run_many(3, [tuned], tmp_path)["tuned"]
    n_blocks = first["summary"]["feature_blocks"]
    assert n_blocks in (1, 2, 4, 8, 16)
    found = run_many(3,
                     [again, job("fixed", sources / "plain.h5", feature_blocks=n_blocks, **stale)],
                     tmp_path)
    assert found["tuned"]["summary"]["feature_blocks"] == n_blocks
    assert found["tuned"]["digest"] == found["fixed"]["digest"] == first["digest"]


REFUSED = {"nodes": ({"codec": "nodes"}, "moves every row"),
           "none": ({"codec": "none"}, "sends nothing"),
           "smooth": ({"staleness_features": 1, "smooth_features": 0.9}, "smoothing"),
           "budget": ({"codec": "subset", "byte_budget": "1MB"}, "byte_budget"),
           "roles": ({"sparse_ranks": 2}, "leaves no rank"),
           "stored": ({"precision": "bf16"}, "precision"),
           "blocking": ({"blocking": True, "feature_blocks": 4}, "feature_blocks = 1"),
           "halo": ({"method": "overlap", "sparse_ranks": 1}, "for parallel = 'features'")}


def test_what_cannot_be_combined_is_refused(sources, tmp_path):
    jobs = [job(name, sources / "plain.h5", **({"method": "mixgcn"} | settings))
            for name, (settings, _) in REFUSED.items()]
    found = run_many(2, jobs, tmp_path)
    for name, (_, words) in REFUSED.items():
        assert (found[name].get("error") == "ConfigError"
                and words in found[name]["message"]), found[name]
