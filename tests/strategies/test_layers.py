"""Layers across ranks without history: the numbers of one rank, the bytes of the formula,
checkpoints for all strategies."""

import pytest
from many_runs import job, run_many
from same_losses import assert_same_losses
from small_graphs import few_train, needed_rows, small_graph

from hpcgcn.graph.generate import generate_sbm
from hpcgcn.graph.partition import partition_graph, statistics
from hpcgcn.graph.store import write_graph, write_partition

pytestmark = [pytest.mark.mpi_skip, pytest.mark.timeout(600)]

MODELS = ("gcn", "sage", "gcnii", "resgcn")
COMMON = {"epochs": 20, "dropout": 0.5, "lr": 0.02, "layers": 5, "eval_every": 20}
EXACT = {"method": "gnnpipe", "history": "none"}
N_NODES, HIDDEN, CLASSES = 220, 16, 5
# name: (graph, settings that both sides have)
STRANGE = {"few": ("few", {}), "sparse": ("sparse", {}),
           "directed": ("directed", {}), "multilabel": ("multilabel", {}),
           "inductive": ("plain", {"inductive": True}),
           "not-precomputed": ("plain", {"precompute": "no", "hidden": 40}),
           "linear-end": ("plain", {"linear_layers": 1, "layers": 6}),
           "norm": ("plain", {"norm": "yes"}),
           "decay-clip": ("plain", {"weight_decay": 0.01, "weight_decay_conv": 0.02, "clip": 0.1}),
           "precise": ("plain", {"backend": "reference", "dtype": "float64"})}


def models_of(name: str) -> tuple:
    return {"linear-end": ("gcn", "sage"), "not-precomputed": ("gcn", "sage"),
            "norm": ("gcn",), "few": ("gcn", "gcnii", "resgcn")}.get(name, ("sage", "gcnii"))


def few_graph():
    return few_train(generate_sbm(N_NODES, 4, 12, CLASSES, seed=2), 6)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    plain = generate_sbm(N_NODES, 8, 12, CLASSES, seed=2)
    write_graph(folder / "plain.h5", plain)
    write_graph(folder / "few.h5", few_graph())
    for n_parts in (2, 8):
        write_partition(folder / f"plain-{n_parts}.h5", plain,
                        partition_graph(plain, n_parts, "metis", "volume"), settings={})
    for name in ("sparse", "directed", "multilabel"):
        write_graph(folder / f"{name}.h5", small_graph(150, 500, 12, 5, **{name: True}))
    return folder


@pytest.fixture(scope="module")
def alone(sources, tmp_path_factory):
    jobs = [job(model, sources / "plain.h5", model=model, **COMMON) for model in MODELS]
    jobs += [job(f"{model}.{name}", sources / f"{graph}.h5", model=model, **COMMON | settings)
             for name, (graph, settings) in STRANGE.items() for model in models_of(name)]
    return run_many(1, jobs, tmp_path_factory.mktemp("alone"))


@pytest.mark.parametrize("n_ranks", [1, 2, 3, 4])
def test_equals_one_rank_without_history(n_ranks, sources, alone, tmp_path):
    jobs = [job(f"{model}-{chunks}", sources / "plain.h5", model=model, chunks=chunks, **EXACT,
                **COMMON) for model in MODELS for chunks in (1, 4, 16)]
    if n_ranks in (1, 3):
        jobs += [job(f"{model}.{name}-6", sources / f"{graph}.h5", model=model, chunks=6, **EXACT,
                     **COMMON | settings)
                 for name, (graph, settings) in STRANGE.items() for model in models_of(name)]
        jobs += [job(f"{model}-file", sources / "plain-8.h5", model=model, **EXACT, **COMMON)
                 for model in MODELS]
    compare(run_many(n_ranks, jobs, tmp_path), alone)


@pytest.mark.parametrize("n_ranks, per_stage", [(3, 3), (4, 2)])
def test_partitions_per_stage_equal_one_rank_without_history(n_ranks, per_stage, sources, alone,
                                                             tmp_path):
    exact = {**EXACT, "method": "gnnpipe-hybrid", "partitions_per_stage": per_stage}
    jobs = [job(f"{model}-{chunks}", sources / "plain.h5", model=model, chunks=chunks, **exact,
                **COMMON) for model in MODELS for chunks in (per_stage, 12)]
    if per_stage == 2:
        jobs += [job(f"{model}.{name}-8", sources / f"{graph}.h5", model=model, chunks=8, **exact,
                     **COMMON | settings)
                 for name, (graph, settings) in STRANGE.items() for model in models_of(name)]
        jobs += [job(f"{model}-file", sources / "plain-8.h5", model=model, **exact, **COMMON)
                 for model in MODELS]
    compare(run_many(n_ranks, jobs, tmp_path), alone)


def compare(runs: dict, alone: dict):
    for label, run in runs.items():
        assert "losses" in run, (label, run)
        kind = label.rpartition("-")[0]
        expected = alone[kind]
        assert_same_losses(run, expected, label, precise=kind.endswith(".precise"))
        assert float(run["rows"][-1]["test"]) == pytest.approx(float(expected["rows"][-1]["test"]),
                                                               abs=0.03), label


# -- bytes -----------------------------------------------------------------------------------------

def sent(run) -> set:
    return {int(row["bytes_sent"]) for row in run["rows"]}


@pytest.mark.parametrize("n_ranks", [2, 4])
def test_bytes_are_those_of_the_formula_whatever_the_depth(n_ranks, sources, tmp_path):
    """2 (S - 1) N d elements an epoch, of four bytes; GCNII sends its initial rows along."""
    short = {"epochs": 3, "dropout": 0.5, "needed_rows": False}
    jobs = [job(f"{model}-{layers}-{history}", sources / "plain.h5", model=model, layers=layers,
                history=history, method="gnnpipe", **short) for model in ("gcnii", "resgcn")
            for layers in (9, 16) for history in ("none", "snapshot")]
    jobs += [job(codec, sources / "plain.h5", model="resgcn", method="gnnpipe", codec=codec,
                 layers=5, **short) for codec in ("bf16", "8bit", "1bit", "subset")]
    found = run_many(n_ranks, jobs, tmp_path)
    whole = 2 * (n_ranks - 1) * N_NODES * HIDDEN * 4
    rows = 2 * (n_ranks - 1) * N_NODES
    coded = {"bf16": whole // 2, "8bit": rows * (4 + HIDDEN), "1bit": rows * (4 + HIDDEN // 8),
             "subset": rows * HIDDEN}
    for label, run in found.items():
        wanted = coded.get(label) or whole * (2 if label.startswith("gcnii") else 1)
        assert sent(run) == {wanted}, label
        by_exchange = [name for name in run["rows"][0] if name.startswith("bytes_stage_")]
        assert len(by_exchange) == 2 * (n_ranks - 1)
        assert sum(int(run["rows"][0][name]) for name in by_exchange) == wanted
        assert set(run["rows"][0]["bytes_received"].split()) == {str(wanted)}


@pytest.mark.parametrize("history", ["none", "snapshot"])
def test_links_send_needed_rows(history, sources, tmp_path):
    """What the first hop behind a link reads, and gradients of that."""
    needed = [int(mask.sum()) for mask in needed_rows(few_graph(), 6)]
    assert needed[6] < needed[5] < needed[4] < N_NODES
    jobs = [job(model, sources / "few.h5", model=model, layers=6, method="gnnpipe", epochs=3,
                history=history) for model in ("gcnii", "resgcn")]
    for model, run in run_many(3, jobs, tmp_path).items():
        fields = 2 if model == "gcnii" else 1
        links = [name for name in run["rows"][0] if name.startswith("bytes_stage_")]
        assert len(links) == 4, "two ways between three stages"
        for name in links:
            hop = int(name.rpartition("_")[2])
            assert {int(row[name]) for row in run["rows"]} == {
                4 * HIDDEN * fields * needed[hop - 1]}, (model, name)


def test_the_halo_bytes_of_a_hybrid_are_those_of_the_plan(sources, tmp_path):
    graph = generate_sbm(N_NODES, 8, 12, CLASSES, seed=2)
    halo = statistics(graph, partition_graph(graph, 2, "metis", "volume"))["halo_rows"]
    hybrid = job("a", sources / "plain-2.h5", model="resgcn", layers=6, method="gnnpipe-hybrid",
                 epochs=3, needed_rows=False)
    run = run_many(4, [hybrid], tmp_path)["a"]
    first = run["rows"][0]
    assert {int(first[f"bytes_{direction}_{hop}"]) for direction in ("forward", "backward")
            for hop in range(1, 7)} == {halo * HIDDEN * 4}
    stages = [name for name in first if name.startswith("bytes_stage_")]
    assert sum(int(first[name]) for name in stages) == 2 * N_NODES * HIDDEN * 4
    assert sent(run) == {6 * 2 * halo * HIDDEN * 4 + 2 * N_NODES * HIDDEN * 4}


# -- evaluation ------------------------------------------------------------------------------------

def test_evaluation_is_exact_whatever_training_reads(sources, tmp_path):
    """With weights that stay where they began, scores are those of parts: neither code nor history
    nor staleness is in them."""
    still = {"model": "gcnii", "layers": 5, "epochs": 3, "eval_every": 1, "lr": 1e-9,
             "dropout": 0.5}
    inexact = {"coded": {"method": "gnnpipe", "codec": "1bit"},
               "stale": {"method": "gnnpipe-hybrid", "codec": "2bit", "staleness_features": 1,
                         "staleness_gradients": 1}}
    jobs = [job(name, sources / "plain.h5", **still | more)
            for name, more in {"parts": {}, **inexact}.items()]
    found = run_many(4, jobs, tmp_path)
    scores = {name: [[row[column] for column in ("train", "val", "test")] for row in run["rows"]]
              for name, run in found.items()}
    assert scores["coded"] == scores["stale"] == scores["parts"]
    assert found["coded"]["losses"] != found["parts"]["losses"]


# -- checkpoints -----------------------------------------------------------------------------------

def test_a_checkpoint_of_one_strategy_resumes_under_another(sources, tmp_path):
    """The exact strategies take turns; together they end like any of them alone."""
    settings = {"model": "gcnii", "checkpoint_every": 5, "layers": 5, "dropout": 0.5, "lr": 0.02}
    turns = [("overlap", {}), ("gnnpipe", {"history": "none"}), ("mixgcn", {}),
             ("gnnpipe-hybrid", {"history": "none"}), ("overlap", {})]
    jobs = [job("turns" if k == 0 else f"turns-{k}", sources / "plain.h5", method=method,
                epochs=4 * (k + 1), **settings | more | {"name": "turns", "resume": "auto"})
            for k, (method, more) in enumerate(turns)]
    jobs.append(job("alone", sources / "plain.h5", method="overlap", epochs=20, **settings))
    found = run_many(2, jobs, tmp_path)
    last = found[f"turns-{len(turns) - 1}"]
    assert len(last["losses"]) == 20
    assert_same_losses(last, found["alone"], "turns", equal_until=4)


# -- what is refused -------------------------------------------------------------------------------

REFUSED = {"deep": ({"stages": 2, "layers": 1, "model": "gcn"}, "can be cut into 1 at most"),
           "grid": ({"stages": 3}, "3 stages need 3 ranks, but 2 were started"),
           "partitions": ({"partitions_per_stage": 3}, "3 partitions x 1 stages"),
           "odd": ({"partitions_per_stage": 2, "chunks": 3}, "multiple of 2"),
           "many": ({"chunks": 500}, "500 chunks of a graph with 220 nodes"),
           "nodes": ({"codec": "nodes"}, "needs every one"),
           "none": ({"codec": "none"}, "sends nothing"),
           "stale": ({"staleness_features": 1}, "one partition per stage"),
           "feedback": ({"codec": "4bit", "error_feedback": True}, "two chunks"),
           "budget": ({"codec": "subset", "byte_budget": "1MB"}, "byte_budget"),
           "stored": ({"precision": "bf16"}, "precision"),
           "blocking": ({"blocking": True}, "blocking"),
           "no-history": ({"history": "none", "history_hold": 5}, "no effect"),
           "elsewhere": ({"method": "overlap", "chunks": 8}, "for parallel = 'layers' only")}


def test_what_cannot_be_done_is_refused(sources, tmp_path):
    jobs = [job(name, sources / "plain.h5", **{"method": "gnnpipe", "model": "gcnii"} | settings)
            for name, (settings, _) in REFUSED.items()]
    jobs += [job("parts", sources / "plain-8.h5", method="gnnpipe", chunks=12),
             job("shared", sources / "plain-8.h5", method="gnnpipe-hybrid"),
             job("fits", sources / "plain-8.h5", method="gnnpipe", chunks=16)]
    found = run_many(2, jobs, tmp_path)
    for name, (_, words) in REFUSED.items():
        assert (found[name].get("error") == "ConfigError"
                and words in found[name]["message"]), (name, found[name])
    assert "multiple of 8" in found["parts"]["message"]
    assert "losses" in found["shared"] and "losses" in found["fits"]
