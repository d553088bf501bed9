"""Layers across ranks without history: the numbers of one rank, the bytes of the formula, checkpoints for all strategies."""

import numpy as np
import pytest
from many_runs import job, run_many
from small_graphs import small_graph

from hpcgcn.graph.generate import generate_sbm
from hpcgcn.graph.partition import partition_graph, statistics
from hpcgcn.graph.store import write_graph, write_partition

pytestmark = [pytest.mark.mpi_skip, pytest.mark.timeout(600)]

MODELS = ("gcn", "sage", "gcnii", "resgcn")
COMMON = {"epochs": 20, "dropout": 0.5, "lr": 0.02, "layers": 5, "eval_every": 20}
EXACT = {"method": "gnnpipe", "history": "none"}
N_NODES, HIDDEN, CLASSES, WAYS_CHUNKS = 220, 16, 5, 4
# name: (graph, settings that both sides have)
STRANGE = {"sparse": ("sparse", {}), "directed": ("directed", {}), "multilabel": ("multilabel", {}),
           "inductive": ("plain", {"inductive": True}), "not-precomputed": ("plain", {"precompute": "no", "hidden": 40}),
           "linear-end": ("plain", {"linear_layers": 1, "layers": 6}), "norm": ("plain", {"norm": "yes"}),
           "decay-clip": ("plain", {"weight_decay": 0.01, "weight_decay_conv": 0.02, "clip": 0.1}),
           "precise": ("plain", {"backend": "reference", "dtype": "float64"})}
TOLERANCE = {"precise": 1e-10}


def models_of(name: str) -> tuple:
    return {"linear-end": ("gcn", "sage"), "not-precomputed": ("gcn", "sage"), "norm": ("gcn",)}.get(name, ("sage", "gcnii"))


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    plain = generate_sbm(N_NODES, 8, 12, CLASSES, seed=2)
    write_graph(folder / "plain.h5", plain)
    for n_parts in (2, 8):
        write_partition(folder / f"plain-{n_parts}.h5", plain, partition_graph(plain, n_parts, "metis", "volume"), settings={})
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
    jobs = [job(f"{model}-{chunks}", sources / "plain.h5", model=model, chunks=chunks, **EXACT, **COMMON)
            for model in MODELS for chunks in (1, 4, 16)]
    jobs += [job(f"{model}.{name}-6", sources / f"{graph}.h5", model=model, chunks=6, **EXACT, **COMMON | settings)
             for name, (graph, settings) in STRANGE.items() for model in models_of(name)]
    jobs += [job(f"{model}-file", sources / "plain-8.h5", model=model, **EXACT, **COMMON) for model in MODELS]
    compare(run_many(n_ranks, jobs, tmp_path), alone)


@pytest.mark.parametrize("n_ranks, ways", [(2, 2), (4, 2), (4, 4)])
def test_ways_equal_one_rank_without_history(n_ranks, ways, sources, alone, tmp_path):
    exact = {**EXACT, "method": "gnnpipe-hybrid", "ways": ways}
    jobs = [job(f"{model}-{chunks}", sources / "plain.h5", model=model, chunks=chunks, **exact, **COMMON)
            for model in MODELS for chunks in (4, 16)]
    jobs += [job(f"{model}.{name}-8", sources / f"{graph}.h5", model=model, chunks=8, **exact, **COMMON | settings)
             for name, (graph, settings) in STRANGE.items() for model in models_of(name)]
    jobs += [job(f"{model}-file", sources / "plain-8.h5", model=model, **exact, **COMMON) for model in MODELS]
    compare(run_many(n_ranks, jobs, tmp_path), alone)


def compare(runs: dict, alone: dict):
    for label, run in runs.items():
        assert "losses" in run, (label, run)
        kind = label.rpartition("-")[0]
        expected = alone[kind]
        np.testing.assert_allclose(run["losses"], expected["losses"], rtol=TOLERANCE.get(kind.partition(".")[2], 1e-4),
                                   err_msg=label)
        assert float(run["rows"][-1]["test"]) == pytest.approx(float(expected["rows"][-1]["test"]), abs=0.03), label
