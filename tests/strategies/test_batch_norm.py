"""BatchNorm over all nodes of all ranks: the same losses, scores and running statistics on 1 to 4
ranks with every strategy that has it, resumed runs, and what is refused."""

import os

import h5py
import numpy as np
import pytest
from many_runs import job, run_many
from same_losses import assert_same_losses
from small_graphs import graph_files, make_trainer, small_graph

from hpcgcn.config import make_config
from hpcgcn.errors import ConfigError

pytestmark = [pytest.mark.mpi_skip, pytest.mark.timeout(600)]

BATCH = {"norm": "batch", "dropout": 0.5, "lr": 0.02, "epochs": 20, "eval_every": 5}
EXACT = {"gcn": {"model": "gcn"}, "sage": {"model": "sage"}, "resgcn": {"model": "resgcn"},
         "gat": {"model": "gat", "heads": 4, "attention_dropout": 0.4},
         "gcn-not-precomputed": {"model": "gcn", "precompute": "no", "hidden": 40},
         "sage-linear-end": {"model": "sage", "layers": 4, "linear_layers": 2},
         "gcn-inductive": {"model": "gcn", "inductive": True},
         "precise": {"model": "sage", "backend": "reference", "dtype": "float64"},
         "sparse": {"model": "gcn"}, "directed": {"model": "sage", "precompute": "no"},
         "vanilla": {"model": "gcn", "method": "vanilla"}}
# Of two models, the other ways to divide the work.
DIVIDED = {"columns": {"method": "mixgcn"}, "roles": {"method": "mixgcn-moa"},
           "hosts": {"parallel": "hosts", "ranks_per_host": 2}}
TAKEN_APART = ("gcn", "sage", "precise", "sparse")


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    return graph_files(tmp_path_factory.mktemp("graphs"))


def jobs_of(sources, n_ranks: int) -> list[dict]:
    jobs = [job(name, sources.get(name, sources["plain"]), **BATCH | settings)
            for name, settings in EXACT.items()]
    for division, settings in DIVIDED.items() if n_ranks > 1 else ():
        if division == "hosts" and n_ranks % 2:
            continue
        jobs += [job(f"{name}.{division}", sources.get(name, sources["plain"]),
                     **BATCH | EXACT[name] | settings) for name in TAKEN_APART]
    return jobs


def statistics(folder, name: str) -> dict[str, np.ndarray]:
    """The running statistics in the last checkpoint of a run."""
    with h5py.File(os.path.join(folder, "runs", name, "checkpoints", "epoch-000020",
                                "model.h5")) as file:
        values, layout = file["parameters"][...], file["layout"]
        return {key: values[entry[0]:entry[0] + entry[1]] for key, entry in layout.items()
                if key.endswith((".mean", ".deviation"))}


@pytest.fixture(scope="module")
def alone(sources, tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    return run_many(1, jobs_of(sources, 1), folder), folder


@pytest.mark.parametrize("n_ranks", [2, 3, 4])
def test_losses_and_statistics_are_those_of_one_rank(n_ranks, sources, alone, tmp_path):
    control, folder = alone
    for label, run in run_many(n_ranks, jobs_of(sources, n_ranks), tmp_path).items():
        name, precise = label.split(".")[0], label.startswith("precise")
        assert "losses" in run, f"{label}: {run}"
        assert_same_losses(run, control[name], label, precise=precise)
        found, expected = statistics(tmp_path, label), statistics(folder, name)
        assert found.keys() == expected.keys() and len(found) >= 4
        for key, values in found.items():    # float32: as far apart as losses may be
            np.testing.assert_allclose(values, expected[key], rtol=1e-9 if precise else 2e-2,
                                       atol=1e-9 if precise else 2e-3, err_msg=f"{label} {key}")


def test_statistics_are_those_of_all_nodes_however_few_are_in_the_loss(sources):
    """One training node: its neighbourhood is a part of the graph, the statistics are not."""
    graph = small_graph(150, 300, 9, 5)
    graph.split[0, np.flatnonzero(graph.split[0] == 1)[1:]] = 0
    runs = [make_trainer(graph, model="gcn", norm="batch", dtype="float64", layers=3,
                         needed_rows=needed) for needed in (True, False)]
    for trainer in runs:
        for _ in range(3):
            trainer.run_epoch()
    few, all_rows = runs
    needed = few.engine.aggregations.n_needed
    assert needed(1) == graph.n_nodes > needed(2), "after the last norm only needed rows are run"
    np.testing.assert_allclose(few.parameters.value, all_rows.parameters.value, rtol=1e-9,
                               atol=1e-12)


def test_a_resumed_run_has_the_same_statistics(sources, tmp_path):
    settings = BATCH | {"model": "sage", "checkpoint_every": 10}
    jobs = [job("whole", sources["plain"], **settings), job("cut", sources["plain"], **settings),
            job("cut", sources["plain"], forget_after=10, **settings | {"resume": "must"})]
    found = run_many(2, jobs, tmp_path)
    assert found["cut"]["losses"][-1] == found["whole"]["losses"][-1]
    whole, cut = statistics(tmp_path, "whole"), statistics(tmp_path, "cut")
    assert all((whole[key] == cut[key]).all() for key in whole)
    assert all((values != 0).any() and (values != 1).any() for values in whole.values())


def test_every_preset_of_a_partition_runs(sources, tmp_path):
    methods = ("pipegcn", "sylvie-s", "sylvie-a", "varco", "bns", "no-communication")
    jobs = [job(method, sources["plain"], **BATCH | {"model": "sage", "method": method})
            for method in methods]
    for label, run in run_many(3, jobs, tmp_path).items():
        losses = run["losses"]
        assert np.isfinite(losses).all() and losses[-1] < 0.9 * losses[0], f"{label}: {losses}"


@pytest.mark.parametrize("settings, reason", [
    ({"model": "sage", "method": "gnnpipe"}, "sums of all rows before any row"),
    ({"model": "resgcn", "parallel": "layers"}, "use norm = 'yes'")])
def test_a_pipeline_refuses_it_with_the_reason(settings, reason):
    with pytest.raises(ConfigError, match=reason):
        make_config(settings | {"norm": "batch"})


def test_a_model_without_a_norm_refuses_it():
    with pytest.raises(ConfigError, match="gcnii has no norm"):
        make_trainer(small_graph(), model="gcnii", norm="batch")
