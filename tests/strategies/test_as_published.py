"""The variants `...-paper` against PipeGCN written from its description, without a line of ours."""

import os

import h5py
import numpy as np
import pytest
from many_runs import job, run_many
from small_graphs import dense_features, small_graph

from hpcgcn.graph.data import TRAIN
from hpcgcn.graph.partition import partition_graph
from hpcgcn.graph.store import write_graph, write_partition

pytest.importorskip("torch")
from serial_pipegcn import PipeGCN

pytestmark = [pytest.mark.mpi_skip, pytest.mark.timeout(600)]

EPOCHS, LAYERS = 12, 4
SETTINGS = {"backend": "reference", "dtype": "float64", "epochs": EPOCHS, "dropout": 0.0,
            "lr": 0.02, "seed": 3, "model": "sage", "self_loops": "yes", "layers": LAYERS,
            "hidden": 8}
# name: (settings, decays of features and gradients)
CASES = {"paper": ({"method": "pipegcn-paper"}, (0.0, 0.0)),
         "paper-gf": ({"method": "pipegcn-paper", "smoothing": "0.95"}, (0.95, 0.95)),
         "paper-f": ({"method": "pipegcn-paper", "smoothing": "features=0.7"}, (0.7, 0.0)),
         "sylvie-32-bits": ({"method": "sylvie-paper", "codec": "bits", "rate": "32"}, (0.0, 0.0))}


def initial_parameters(folder) -> dict[str, np.ndarray]:
    """Those of a run that did not learn."""
    checkpoints = os.path.join(folder, "runs", "start", "checkpoints")
    with h5py.File(os.path.join(checkpoints, os.listdir(checkpoints)[0], "model.h5")) as file:
        flat, layout = file["parameters"][...], {k: v[...] for k, v in file["layout"].items()}
    return {name: flat[at:at + int(np.prod(shape))].reshape(shape)
            for name, (at, *shape) in layout.items()}


@pytest.fixture(scope="module", params=[2, 3, 4])
def found(request, tmp_path_factory):
    """(graph, part of each node, initial parameters, results of the engine)."""
    folder, n_ranks = tmp_path_factory.mktemp("published"), request.param
    graph = small_graph(36, 90, 6, 4, seed=5, directed=n_ranks == 3)
    owner = partition_graph(graph, n_ranks, "random", seed=2)
    write_graph(folder / "g.h5", graph)
    write_partition(folder / "g-p.h5", graph, owner, settings={})
    jobs = [job("start", folder / "g-p.h5", **SETTINGS | {"epochs": 1, "lr": 0.0})]
    jobs += [job(name, folder / "g-p.h5", **SETTINGS | settings)
             for name, (settings, _) in CASES.items()]
    jobs += [job("pipegcn", folder / "g-p.h5", **SETTINGS | {"method": "pipegcn"})]
    # Every hop sends the same rows, so that bytes tell the widths.
    jobs += [job("all rows", folder / "g-p.h5", **SETTINGS | {
        "method": "pipegcn-paper", "needed_rows": False, "halo": "rows"})]
    results = run_many(n_ranks, jobs, folder)
    assert not {label: run for label, run in results.items() if "losses" not in run}
    return graph, owner, initial_parameters(folder), results


def reference_losses(graph, owner, parameters, decays) -> list[float]:
    reads = [graph.indices[graph.indptr[v]:graph.indptr[v + 1]].tolist()
             for v in range(graph.n_nodes)]
    run = PipeGCN(graph.n_nodes, reads, dense_features(graph), graph.labels.astype(np.int64),
                  (graph.split[0] == TRAIN) & (graph.labels >= 0), owner, parameters, LAYERS,
                  SETTINGS["lr"], *decays)
    return [run.epoch() for _ in range(EPOCHS)]


@pytest.mark.parametrize("name", CASES)
def test_equals_the_published_algorithm(found, name):
    graph, owner, parameters, results = found
    np.testing.assert_allclose(results[name]["losses"],
                               reference_losses(graph, owner, parameters, CASES[name][1]),
                               rtol=1e-9)


def test_every_hop_is_stale_and_carries_the_hidden_width(found):
    *_, results = found
    assert {float(row["stale_share"]) for row in results["paper"]["rows"]} == {1.0}
    last = results["all rows"]["rows"][0]
    assert last[f"bytes_forward_{LAYERS - 1}"] == last["bytes_forward_1"]
    assert results["paper"]["losses"] != results["pipegcn"]["losses"]
