"""GAT: the same losses on 1 to 4 ranks, with every preset of the partitioned graph, and what is
refused."""

import numpy as np
import pytest
from many_runs import job, run_many
from same_losses import assert_same_losses
from small_graphs import graph_files, small_graph

from hpcgcn.config import make_config
from hpcgcn.errors import ConfigError
from hpcgcn.exchange.presets import PRESETS
from hpcgcn.graph.partition import partition_graph
from hpcgcn.graph.store import write_partition

pytestmark = [pytest.mark.mpi_skip, pytest.mark.timeout(600)]

GAT = {"model": "gat", "heads": 4, "output_heads": 2, "attention_dropout": 0.4, "lr": 0.02,
       "epochs": 20}
EXACT = {"overlap": {}, "vanilla": {"method": "vanilla"}, "all-rows": {"needed_rows": False},
         "precise": {"backend": "reference", "dtype": "float64"}, "inductive": {"inductive": True},
         "random": {"partition_method": "random"}, "cover": {"halo": "cover"},
         "norm": {"norm": "yes"}, "directed": {}, "sparse": {}}
ON_PARTITIONS = [name for name, preset in PRESETS.items()
                 if preset.settings.get("parallel") in (None, "partition")]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    return graph_files(tmp_path_factory.mktemp("graphs"))


def exact_jobs(sources):
    return [job(name, sources.get(name, sources["plain"]), **GAT | settings)
            for name, settings in EXACT.items()]


@pytest.fixture(scope="module")
def alone(sources, tmp_path_factory):
    return run_many(1, exact_jobs(sources), tmp_path_factory.mktemp("alone"))


def test_one_rank_of_a_partition_is_the_single_strategy(sources, alone, tmp_path):
    jobs = [job(f"{task['label']}", task["source"], **task["settings"] | {"parallel": "partition"})
            for task in exact_jobs(sources)]
    for label, run in run_many(1, jobs, tmp_path).items():
        assert run["losses"] == alone[label]["losses"], label


@pytest.mark.parametrize("n_ranks", [2, 3, 4])
def test_losses_are_those_of_one_rank(n_ranks, sources, alone, tmp_path):
    jobs = exact_jobs(sources)
    if n_ranks == 3:
        jobs += [job(f"preset-{name}", sources["plain"], **GAT | {"method": name})
                 for name in ON_PARTITIONS]
    found = run_many(n_ranks, jobs, tmp_path)
    for label, run in found.items():
        assert "losses" in run, f"{label}: {run}"
        if label in alone:
            assert_same_losses(run, alone[label], label, precise=label == "precise")
    if n_ranks == 3:
        presets_learn_and_differ({name: found[f"preset-{name}"] for name in ON_PARTITIONS},
                                 alone["overlap"])


def presets_learn_and_differ(found, exact):
    """Every preset runs, and those made for few labels learn (1 bit and stale from the first epoch
    on is not); those that are not exact are no copies of exact ones."""
    for name, run in found.items():
        losses = run["losses"]
        bound = np.inf if name == "sylvie-paper" else 0.95 * losses[0]
        assert np.isfinite(losses).all() and losses[-1] < bound, f"{name}: {losses}"
        is_exact = name in ("overlap", "vanilla")
        assert (abs(losses[5] - exact["losses"][5]) < 1e-5) == is_exact, f"{name}: {losses}"


LATE = {"1": (True, True), "features=1": (True, False), "gradients=1": (False, True),
        "0": (False, False)}


def test_stale_rows_are_those_of_a_serial_run(tmp_path):
    """Rows, their logits and what the vectors learn from them; gradients an epoch late."""
    pytest.importorskip("torch")
    from serial_stale_gat import StaleGat
    settings = GAT | {"backend": "reference", "dtype": "float64", "epochs": 8, "layers": 3,
                      "hidden": 8, "dropout": 0.5, "seed": 5}
    graphs = {"undirected": small_graph(40, 110, 6, 4, seed=7),
              "directed": small_graph(40, 110, 6, 4, seed=7, directed=True)}
    for kind, graph in graphs.items():
        write_partition(tmp_path / f"{kind}.h5", graph, partition_graph(graph, 3, "random", seed=1),
                        settings={})
    found = run_many(3, [job(f"{kind}.{late}", tmp_path / f"{kind}.h5", staleness=late, **settings)
                         for kind in graphs for late in LATE], tmp_path)
    for kind, graph in graphs.items():
        part = partition_graph(graph, 3, "random", seed=1)
        for late, (features, gradients) in LATE.items():
            serial = StaleGat(graph, make_config(settings), part, features, gradients)
            expected = [serial.run_epoch(t) for t in range(settings["epochs"])]
            run = found[f"{kind}.{late}"]
            assert "losses" in run, run
            np.testing.assert_allclose(run["losses"], expected, rtol=1e-9, err_msg=f"{kind} {late}")


@pytest.mark.parametrize("settings, reason", [
    ({"method": "mixgcn"}, "some columns"),
    ({"parallel": "hosts"}, "some columns"), ({"precision": "bf16"}, "reads rows in fp32")])
def test_what_attention_does_not_go_with_is_refused(settings, reason):
    with pytest.raises(ConfigError, match=reason):
        make_config({"model": "gat", **settings})
