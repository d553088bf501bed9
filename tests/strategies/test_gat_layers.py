"""GAT in pipelines: exact without history, and with history the numbers of a serial run written by
hand."""

import numpy as np
import pytest
from many_runs import job, run_many
from same_losses import assert_same_losses
from serial_history import Rules
from small_graphs import few_train, small_graph

from hpcgcn.config import make_config
from hpcgcn.errors import ConfigError
from hpcgcn.graph.generate import generate_sbm
from hpcgcn.graph.partition import partition_graph
from hpcgcn.graph.store import write_graph, write_partition

torch = pytest.importorskip("torch")
from serial_history_gat import SerialGat  # noqa: E402 - needs torch

pytestmark = [pytest.mark.mpi_skip, pytest.mark.timeout(600)]

CHUNKS, EPOCHS = 8, 10
GAT = {"model": "gat", "heads": 2, "output_heads": 2, "attention_dropout": 0.4, "dropout": 0.5,
       "hidden": 8, "layers": 4, "lr": 0.02, "seed": 5, "epochs": EPOCHS}
PRECISE = {"backend": "reference", "dtype": "float64"}
HISTORY = {"short": (Rules(hold=3), {"history_hold": 3}),
           "ordered": (Rules(hold=2, shuffle=False), {"history_hold": 2, "shuffle_chunks": False})}
EXACT = {"plain": {}, "precise": PRECISE, "few": {}, "norm": {"norm": "yes"}}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    write_graph(folder / "plain.h5", generate_sbm(220, 8, 12, 5, seed=2))
    write_graph(folder / "few.h5", few_train(generate_sbm(220, 4, 12, 5, seed=2), 6))
    for kind in ("undirected", "directed"):
        write_partition(folder / f"{kind}.h5", graph_of(kind),
                        partition_graph(graph_of(kind), CHUNKS, "random", seed=1), settings={})
    return folder


def graph_of(kind: str):
    return small_graph(60, 200, 6, 4, seed=7, directed=kind == "directed")


def chunk_of(graph, partitions: int) -> np.ndarray:
    return partition_graph(graph, CHUNKS, "random", seed=1) % (CHUNKS // partitions)


@pytest.fixture(scope="module")
def alone(sources, tmp_path_factory):
    jobs = [job(name, sources / f"{'few' if name == 'few' else 'plain'}.h5", **GAT | settings)
            for name, settings in EXACT.items()]
    return run_many(1, jobs, tmp_path_factory.mktemp("alone"))


@pytest.mark.parametrize("n_ranks, partitions", [(1, 1), (3, 1), (4, 2)])
def test_pipelines(n_ranks, partitions, sources, alone, tmp_path):
    common = {"chunks": CHUNKS, "partitions_per_stage": partitions,
              "method": "gnnpipe" if partitions == 1 else "gnnpipe-hybrid"}
    jobs = [job(name, sources / f"{'few' if name == 'few' else 'plain'}.h5", history="none",
                **GAT | common | settings) for name, settings in EXACT.items()]
    jobs += [job(f"{name}.{kind}", sources / f"{kind}.h5", **GAT | PRECISE | common | settings)
             for name, (_, settings) in HISTORY.items() for kind in ("undirected", "directed")]
    jobs += [job(f"native.{needed}", sources / "few.h5", history_hold=3, needed_rows=needed,
                 **GAT | common) for needed in (True, False)]
    found = run_many(n_ranks, jobs, tmp_path)
    for name in EXACT:
        assert_same_losses(found[name], alone[name], name, precise=name == "precise")
    for name, (rules, _) in HISTORY.items():
        for kind in ("undirected", "directed"):
            run = found[f"{name}.{kind}"]
            assert "losses" in run, run
            graph = graph_of(kind)
            serial = SerialGat(graph, make_config(GAT | PRECISE), chunk_of(graph, partitions),
                               rules)
            expected = [serial.run_epoch(t) for t in range(EPOCHS)]
            np.testing.assert_allclose(run["losses"], expected, rtol=1e-9, err_msg=f"{name} {kind}")
    np.testing.assert_allclose(found["native.True"]["losses"], found["native.False"]["losses"],
                               rtol=1e-5)


def test_a_resumed_run_ends_as_one_that_was_not_stopped(sources, tmp_path):
    settings = GAT | {"method": "gnnpipe", "checkpoint_every": 5, "history_hold": 3}
    jobs = [job("straight", sources / "plain.h5", **settings),
            job("resumed", sources / "plain.h5", **settings | {"name": "straight"}, resume="must",
                forget_after=5)]
    found = run_many(2, jobs, tmp_path)
    assert found["resumed"]["losses"] == found["straight"]["losses"]
    assert found["resumed"]["digest"] == found["straight"]["digest"]


def test_stale_gradients_are_refused():
    with pytest.raises(ConfigError, match="snapshot"):
        make_config({"model": "gat", "method": "gnnpipe", "history_gradients": "stale"})
