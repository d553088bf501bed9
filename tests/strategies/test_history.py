"""Pipelines with history against a serial run written by hand; what resumes, what changes nothing,
what is told about it."""

import numpy as np
import pytest
from many_runs import job, run_many
from serial_history import Rules, Serial
from small_graphs import dense_adjacency, dense_features, few_train, small_graph

from hpcgcn.graph.data import TRAIN
from hpcgcn.graph.partition import partition_graph
from hpcgcn.graph.store import write_graph, write_partition

pytestmark = [pytest.mark.mpi_skip, pytest.mark.timeout(600)]

EPOCHS, LAYERS, CHUNKS = 12, 5, 8
PRECISE = {"backend": "reference", "dtype": "float64", "epochs": EPOCHS, "dropout": 0.5, "lr": 0.02,
           "seed": 5, "hidden": 8, "layers": LAYERS, "method": "gnnpipe"}
# name: (the rules by hand, the settings that should mean the same)
CASES = {
    "paper": (Rules(), {}),
    "short": (Rules(hold=3), {"history_hold": 3}),
    "every": (Rules(hold=1), {"history_hold": 1}),
    "ordered": (Rules(hold=3, shuffle=False), {"history_hold": 3, "shuffle_chunks": False}),
    "stale": (Rules(hold=3, zero_gradients=False),
              {"history_hold": 3, "history_gradients": "stale"}),
    "none-of-them": (Rules(hold=1, shuffle=False, zero_gradients=False),
                     {"history_hold": 1, "shuffle_chunks": False, "history_gradients": "stale"}),
}
GRIDS = [(1, 1), (2, 1), (3, 1), (4, 1), (2, 2), (4, 2)]       # (ranks, partitions per stage)


def graph_of(kind: str):
    return small_graph(60, 200, 6, 4, seed=7, directed=kind == "directed")


def chunk_of(graph, per_stage: int) -> np.ndarray:
    """The parts of a file of CHUNKS parts are those of one partition after the other: part p is
    chunk p % (CHUNKS / per_stage) of its partition."""
    return partition_graph(graph, CHUNKS, "random", seed=1) % (CHUNKS // per_stage)


def serial_losses(kind: str, model: str, per_stage: int, rules: Rules) -> list[float]:
    graph = graph_of(kind)
    labels = np.where(graph.split[0] == TRAIN, graph.labels, -1)
    run = Serial(dense_adjacency(graph), dense_features(graph), labels, chunk_of(graph, per_stage),
                 model, PRECISE["hidden"], LAYERS,
                 graph.n_classes, PRECISE["dropout"], PRECISE["lr"], PRECISE["seed"], rules)
    return [run.epoch(t) for t in range(EPOCHS)]


FEW = {"zeroed": {"history_hold": 3}, "stale": {"history_hold": 3, "history_gradients": "stale"},
       "kept": {"history_hold": 2, "recompute": False}}


@pytest.mark.parametrize("n_ranks, per_stage", [(3, 1), (4, 2)])
def test_rows_that_no_chunk_reads_change_nothing(n_ranks, per_stage, tmp_path):
    """Neither now nor from a snapshot: chunks skip them."""
    write_graph(tmp_path / "few.h5", few_train(small_graph(300, 450, 6, 4, seed=7), 4))
    common = PRECISE | {"chunks": CHUNKS, "partitions_per_stage": per_stage, "eval_every": 5}
    jobs = [job(f"{name}-{model}-{needed}", tmp_path / "few.h5", model=model, needed_rows=needed,
                **common | settings) for name, settings in FEW.items()
            for model in ("gcn", "gcnii", "resgcn") for needed in (True, False)]
    found = run_many(n_ranks, jobs, tmp_path)
    for label in (label for label in found if label.endswith("True")):
        run, other = found[label], found[label.replace("True", "False")]
        np.testing.assert_allclose(run["losses"], other["losses"], rtol=1e-9, err_msg=label)
        assert run["rows"][-1]["test"] == other["rows"][-1]["test"], label
        assert int(run["rows"][0]["bytes_sent"]) < int(other["rows"][0]["bytes_sent"]), label


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    for kind in ("undirected", "directed"):
        graph = graph_of(kind)
        write_graph(folder / f"{kind}.h5", graph)
        write_partition(folder / f"{kind}-{CHUNKS}.h5", graph,
                        partition_graph(graph, CHUNKS, "random", seed=1), settings={})
    return folder


@pytest.mark.parametrize("n_ranks, per_stage", GRIDS)
def test_equals_the_serial_reference(n_ranks, per_stage, sources, tmp_path):
    wanted = [(name, "gcnii", "undirected") for name in CASES]
    wanted += [("short", "gcnii", "directed"), ("stale", "resgcn", "directed"),
               ("short", "resgcn", "undirected"),
               ("short", "gcn", "undirected"), ("stale", "gcn", "directed")]
    jobs = [job(".".join(key), sources / f"{key[2]}-{CHUNKS}.h5", model=key[1], chunks=CHUNKS,
                partitions_per_stage=per_stage, **PRECISE | CASES[key[0]][1]) for key in wanted]
    found = run_many(n_ranks, jobs, tmp_path)
    for key in wanted:
        run = found[".".join(key)]
        assert "losses" in run, run
        expected = serial_losses(key[2], key[1], per_stage, CASES[key[0]][0])
        np.testing.assert_allclose(run["losses"], expected, rtol=1e-9, err_msg=str(key))
    losses = {tuple(found[f"{name}.gcnii.undirected"]["losses"]) for name in CASES}
    assert len(losses) == len(CASES), "two settings that should differ gave the same losses"


# -- the whole exchange family, resumed ------------------------------------------------------------

WAYS = {"plain": {}, "short": {"history_hold": 3},
        "stale-gradients": {"history_gradients": "stale", "history_hold": 4},
        "coded": {"codec": "4bit"}, "moving": {"codec": "bits", "rate": "step:2@0,8@5"},
        "resgcn": {"model": "resgcn"}, "sage": {"model": "sage", "codec": "bf16"},
        "first-exact": {"first_epoch": "sync"},
        "inductive": {"inductive": True}, "clipped": {"clip": 0.05, "history": "none"}}
HYBRID = {"hybrid": {},
          "hybrid-stale": {"staleness_features": 1, "staleness_gradients": 1, "history_hold": 3},
          "hybrid-smooth": {"staleness_features": 1, "smooth_features": 0.5, "codec": "8bit"}}
DIED_AFTER = 7


@pytest.fixture(scope="module", params=[(3, WAYS), (4, HYBRID)], ids=["3-ranks", "2x2"])
def resumed(request, sources, tmp_path_factory):
    n_ranks, cases = request.param
    folder, jobs = tmp_path_factory.mktemp("resumed"), []
    for name, more in cases.items():
        settings = {"model": "gcnii", "layers": LAYERS, "epochs": EPOCHS,
                    "checkpoint_every": DIED_AFTER, "eval_every": 3,
                    "method": "gnnpipe-hybrid" if name in HYBRID else "gnnpipe"} | more
        jobs += [job(f"{name}.straight", sources / "undirected.h5", **settings),
                 job(f"{name}.resumed", sources / "undirected.h5", **settings
                     | {"name": f"{name}.straight"}, resume="must", forget_after=DIED_AFTER)]
    return cases, run_many(n_ranks, jobs, folder)


def test_resumed_equals_uninterrupted(resumed):
    cases, found = resumed
    for name in cases:
        straight, again = found[f"{name}.straight"], found[f"{name}.resumed"]
        assert "losses" in straight and len(straight["losses"]) == EPOCHS, straight
        assert again["losses"] == straight["losses"] and again["digest"] == straight["digest"], name
        for column in ("val", "test", "bytes_sent", "history_share"):
            assert [row[column]
                    for row in again["rows"]] == [row[column]
                                                  for row in straight["rows"]], (name, column)


def test_the_first_epoch_waits_if_it_is_to_be_synchronous(sources, tmp_path):
    settings = {"model": "gcnii", "layers": LAYERS, "epochs": 4}
    jobs = [job("exact", sources / "undirected.h5", method="overlap", **settings),
            job("zeros", sources / "undirected.h5", method="gnnpipe", **settings),
            job("sync", sources / "undirected.h5", method="gnnpipe", first_epoch="sync",
                **settings)]
    found = run_many(2, jobs, tmp_path)
    shares = [float(row["history_share"]) for row in found["sync"]["rows"]]
    assert shares[0] == 0 and min(shares[1:]) > 0.2
    assert found["sync"]["losses"][0] == pytest.approx(found["exact"]["losses"][0], rel=1e-5)
    assert found["zeros"]["losses"][0] != pytest.approx(found["exact"]["losses"][0], rel=1e-5)


def test_without_its_snapshots_a_run_goes_on_with_an_exact_epoch(sources, tmp_path):
    settings = {"model": "gcnii", "layers": LAYERS, "checkpoint_every": 4, "lr": 0.005}
    jobs = [job("a", sources / "undirected.h5", method="overlap", epochs=30, **settings),
            job("b", sources / "undirected.h5", method="gnnpipe", epochs=40, resume="must",
                **settings | {"name": "a"})]
    run = run_many(2, jobs, tmp_path)["b"]
    shares = [float(row["history_share"]) for row in run["rows"][30:]]
    assert shares[0] == 0 and min(shares[1:]) > 0.2
    before = run["losses"][:30]
    assert abs(run["losses"][30] - before[-1]) < 3 * np.abs(np.diff(before)).max() + 0.05


def test_what_is_made_again_in_backward_changes_nothing(sources, tmp_path):
    """Not a bit: activations are made again by the same kernels from the same rows.

    Stages are divided by measured cost. Three layers leave four stages no choice; where two stages
    of the hybrid came out differently, sums of gradients are made in another order.
    """
    cases = {"history": {"history_hold": 2, "layers": 3}, "exact": {"history": "none", "layers": 3},
             "hybrid": {"history_hold": 2, "method": "gnnpipe-hybrid"}}
    common = {"model": "gcnii", "method": "gnnpipe", "layers": LAYERS, "dropout": 0.5, "epochs": 6,
              "checkpoint_every": 6}
    jobs = [job(f"{name}.{recompute}", sources / "undirected.h5", recompute=recompute,
                **common | more) for name, more in cases.items() for recompute in (True, False)]
    found = run_many(4, jobs, tmp_path)
    for name in cases:
        again, kept = found[f"{name}.True"], found[f"{name}.False"]
        divisions = [run["summary"]["pipeline"]["units_end"] for run in (again, kept)]
        assert divisions[0] == divisions[1] or name == "hybrid"
        if divisions[0] == divisions[1]:
            assert again["losses"] == kept["losses"] and again["digest"] == kept["digest"], name
        else:
            np.testing.assert_allclose(again["losses"], kept["losses"], rtol=1e-6)


# -- what is told ----------------------------------------------------------------------------------

def test_the_age_of_what_is_read_is_told(sources, tmp_path):
    jobs = [job("a", sources / f"undirected-{CHUNKS}.h5", model="resgcn", method="gnnpipe",
                chunks=CHUNKS, history_hold=3, epochs=9, layers=LAYERS),
            job("b", sources / "undirected.h5", model="resgcn", method="gnnpipe", history="none",
                layers=LAYERS)]
    found = run_many(2, jobs, tmp_path)
    told = found["a"]["summary"]["pipeline"]
    assert set(told["reads_by_age"]) == {"current", "zeros", "1", "2", "3"}
    assert sum(told["reads_by_age"].values()) == pytest.approx(1)
    graph = graph_of("undirected")
    chunk, matrix = chunk_of(graph, 1), dense_adjacency(graph) + np.eye(graph.n_nodes)
    across = (matrix * (chunk[:, None] != chunk[None, :])).sum() / matrix.sum()
    shares = [float(row["history_share"]) for row in found["a"]["rows"]]
    # Undirected: of the two entries of an edge between chunks one reads history, whatever the
    # order.
    assert shares == pytest.approx([across / 2] * 9)
    assert (told["bubble_predicted"] == pytest.approx(1 / 9) and 0 <= told["bubble_measured"] < 1
            and told["balance"] >= 1)
    assert found["b"]["summary"]["pipeline"]["reads_by_age"] == {"current": 1}
