"""Stale runs against a serial run written by hand, and the settings that must change nothing."""

import numpy as np
import pytest
from many_runs import job, run_many
from serial_staleness import Rules, Serial
from small_graphs import dense_adjacency, dense_features, small_graph

from hpcgcn.graph.data import TRAIN
from hpcgcn.graph.partition import partition_graph
from hpcgcn.graph.store import write_graph, write_partition

pytestmark = [pytest.mark.mpi_skip, pytest.mark.timeout(600)]

EPOCHS = 10
PRECISE = {"backend": "reference", "dtype": "float64", "epochs": EPOCHS, "dropout": 0.5, "lr": 0.02,
           "seed": 5, "norm": "no"}
# name: (the hand-written rules, the settings that should mean the same)
CASES = {
    "pipegcn": (Rules(narrow_too=False, stale_error=0.4), {"method": "pipegcn"}),
    "narrow-fresh": (Rules(narrow_too=False), {"staleness": "1,narrow=0"}),
    "everything": (Rules(), {"staleness": "1"}),
    "features-only": (Rules(gradients=False), {"staleness": "features=1"}),
    "gradients-only": (Rules(features=False), {"staleness": "gradients=1"}),
    "features-old": (Rules(gradients=False), {"staleness_features": 1}),
    "pipegcn-f": (Rules(gamma_features=0.95, narrow_too=False, stale_error=0.4),
                  {"method": "pipegcn-f"}),
    "pipegcn-g": (Rules(gamma_gradients=0.95, narrow_too=False, stale_error=0.4),
                  {"method": "pipegcn-g"}),
    "pipegcn-gf": (Rules(gamma_features=0.95, gamma_gradients=0.95, narrow_too=False,
                         stale_error=0.4), {"method": "pipegcn-gf"}),
    "everything-gf": (Rules(gamma_features=0.95, gamma_gradients=0.95),
                      {"staleness": "1", "smoothing": "0.95"}),
    "two-gammas": (Rules(gamma_features=0.5, gamma_gradients=0.8),
                   {"staleness": "1", "smoothing": "features=0.5,gradients=0.8"}),
    "corrected": (Rules(gamma_features=0.6, gamma_gradients=0.7, correct=True),
                  {"staleness": "1", "smoothing": "0.6,gradients=0.7", "smooth_correction": True}),
    "first-sync": (Rules(first_sync=True), {"staleness": "1", "first_epoch": "sync"}),
    "bounded-3": (Rules(refresh_every=3), {"staleness": "1", "refresh_every": 3}),
    "bounded-3-smooth": (Rules(refresh_every=3, gamma_features=0.5, gamma_gradients=0.5,
                               narrow_too=False, stale_error=0.4),
                         {"method": "pipegcn", "refresh_every": 3, "smoothing": 0.5}),
    "silent": (Rules(silent=True), {"method": "no-communication"}),
    "synchronous": (Rules(features=False, gradients=False), {"method": "vanilla"}),
}
GRAPHS = {"undirected": {}, "directed": {"directed": True}}


def graph_of(kind: str):
    return small_graph(40, 110, 6, 4, seed=7, **GRAPHS[kind])


def cut_of(graph, n_ranks: int) -> np.ndarray:
    return partition_graph(graph, n_ranks, "random", seed=1)


def serial_losses(kind: str, model: str, n_ranks: int, hidden: int, rules: Rules) -> list[float]:
    graph = graph_of(kind)
    labels = np.where(graph.split[0] == TRAIN, graph.labels, -1)
    run = Serial(dense_adjacency(graph), dense_features(graph), labels, cut_of(graph, n_ranks),
                 model, hidden, 3,
                 graph.n_classes, PRECISE["dropout"], PRECISE["lr"], PRECISE["seed"], rules)
    return [run.epoch(t) for t in range(EPOCHS)]


@pytest.fixture(scope="module", params=[2, 3])
def runs(request, tmp_path_factory):
    """(ranks, results of all runs on that many)."""
    folder, n_ranks = tmp_path_factory.mktemp("stale"), request.param
    for kind in GRAPHS:
        graph = graph_of(kind)
        write_graph(folder / f"{kind}.h5", graph)
        write_partition(folder / f"{kind}-{n_ranks}.h5", graph, cut_of(graph, n_ranks), settings={})

    def of(label, kind="undirected", model="gcn", hidden=8, **settings):
        if settings.get("method", "").startswith("pipegcn"):     # some epochs stale, some not
            settings = {"stale_error": 0.4} | settings
        return job(label, folder / f"{kind}-{n_ranks}.h5", model=model,
                   **(PRECISE | {"hidden": hidden} | settings))

    # The reference measures drift on all halo rows: where it decides, the engine sends these, too.
    all_rows = {"needed_rows": False, "halo": "rows"}
    jobs = [of(f"{name}.{model}.{kind}", kind, model,
               **settings | (all_rows if np.isfinite(rules.stale_error) else {}))
            for name, (rules, settings) in CASES.items() for model in ("gcn", "sage")
            for kind in GRAPHS
            if kind == "undirected" or name in ("pipegcn", "bounded-3-smooth")]
    jobs += [of("wide", hidden=3, staleness="1"),  # 4 classes: the last layer aggregates first
             of("refresh-1", method="pipegcn", refresh_every=1), of("overlap", method="overlap"),
             of("refresh-1-smooth", method="pipegcn-gf", refresh_every=1),
             of("gamma-0", method="pipegcn", smoothing=0.0),
             of("by-hop", staleness="1,last=0"), of("by-number", staleness="0,1=1"),
             of("error-0", method="pipegcn", stale_error=0),
             of("bounded-error", staleness="1", stale_error=0.6),
             of("error-0-coded", method="sylvie-a", refresh_every=0, stale_error=0),
             of("sync-coded", method="sylvie-s"),
             of("error-inf", method="pipegcn", stale_error="inf"),
             of("unmeasured", method="pipegcn", measure_error="none"),
             of("all-measured", method="pipegcn", measure_error="all"),
             of("blocking", method="pipegcn", blocking=True),
             of("default", method="pipegcn"),
             of("pipegcn-rows", method="pipegcn", halo="rows"),      # as `nodes` sends them
             of("evaluated", method="pipegcn", eval_every=1, checkpoint_every=1),
             of("deaf", method="pipegcn", eval_every=0),
             of("inductive", method="pipegcn", inductive=True),
             of("inductive-evaluated", method="pipegcn", inductive=True, eval_every=1)]
    for name, settings in {"bits-32": {"codec": "bits", "rate": "32"},
                           "subset-1": {"codec": "subset", "rate": "1"},
                           "subset-1-rescaled": {"codec": "subset", "rate": "1", "rescale": True},
                           "nodes-1": {"codec": "nodes", "rate": "1"}}.items():
        jobs.append(of(name, method="pipegcn", **settings))
        if name in ("bits-32", "subset-1"):
            jobs += [of(f"{name}-feedback", method="pipegcn", error_feedback=True, **settings),
                     of(f"{name}-residual", method="pipegcn", residual=True, **settings),
                     of(f"{name}-residual-sync", method="overlap", residual=True, **settings)]
    results = run_many(n_ranks, jobs, folder)
    broken = {label: run for label, run in results.items() if "losses" not in run}
    assert not broken
    return n_ranks, results


@pytest.mark.parametrize("name", CASES)
def test_equals_the_serial_reference(runs, name):
    n_ranks, results = runs
    rules = CASES[name][0]
    for model in ("gcn", "sage"):
        for kind in GRAPHS:
            label = f"{name}.{model}.{kind}"
            if label in results:
                np.testing.assert_allclose(results[label]["losses"],
                                           serial_losses(kind, model, n_ranks, 8, rules), rtol=1e-9,
                                           err_msg=label)


def test_equals_the_serial_reference_where_layers_widen(runs):
    n_ranks, results = runs
    np.testing.assert_allclose(results["wide"]["losses"],
                               serial_losses("undirected", "gcn", n_ranks, 3, Rules()), rtol=1e-9)


def test_without_communication_nothing_is_sent_and_evaluation_is_exact(runs):
    _, results = runs
    run = results["silent.gcn.undirected"]
    assert {row["bytes_sent"] for row in run["rows"]} == {"0"}
    assert run["summary"]["compression"] == 1.0 and run["summary"]["final"]["val"] is not None
    assert {float(row["coding_error_forward_1"]) for row in run["rows"]} == {1.0}


def test_staleness_shows(runs):
    _, results = runs
    losses = {name: results[f"{name}.gcn.undirected"]["losses"] for name in CASES
              if name != "features-old"}
    assert len({tuple(x) for x in losses.values()}) == len(
        losses), "two settings that should differ gave the same losses"


SAME = {"error-0": "overlap", "error-0-coded": "sync-coded",
        "error-inf": "narrow-fresh.gcn.undirected", "unmeasured": "default",
        "all-measured": "default",
        "by-hop": "narrow-fresh.gcn.undirected", "by-number": "narrow-fresh.gcn.undirected",
        "features-old.gcn.undirected": "features-only.gcn.undirected", "refresh-1": "overlap",
        "refresh-1-smooth": "overlap", "gamma-0": "default",
        "blocking": "default", "evaluated": "deaf",
        "inductive-evaluated": "inductive", "synchronous.gcn.undirected": "overlap",
        "bits-32": "default", "subset-1": "default",
        "subset-1-rescaled": "default", "nodes-1": "pipegcn-rows",
        "bits-32-feedback": "default", "subset-1-feedback": "default"}


@pytest.mark.parametrize("label", SAME)
def test_settings_that_change_nothing_change_no_bit(runs, label):
    _, results = runs
    assert results[label]["losses"] == results[SAME[label]]["losses"]
    assert results[label]["digest"] == results[SAME[label]]["digest"]


@pytest.mark.parametrize("label", ["bits-32-residual", "subset-1-residual"])
def test_residual_coding_without_loss_changes_nothing_but_roundings(runs, label):
    _, results = runs
    np.testing.assert_allclose(results[label]["losses"],
                               results["default"]["losses"], rtol=1e-11)
    np.testing.assert_allclose(results[f"{label}-sync"]["losses"], results["overlap"]["losses"],
                               rtol=1e-11)


def test_epochs_are_synchronous_after_a_drift_above_the_bound(runs):
    """A hop and direction is stale in an epoch just if the one before drifted little."""
    _, results = runs
    rows = results["bounded-error"]["rows"]
    drifts = [name for name in rows[0] if name.startswith("drift_")]
    assert len(drifts) == 4
    stale = [0.0] + [sum(float(row[name]) <= 0.6 for name in drifts) / 4 for row in rows[:-1]]
    assert [float(row["stale_share"]) for row in rows] == stale
    assert 0 < sum(stale) < EPOCHS, "both kinds of epochs must occur"


def test_the_share_of_stale_epochs_is_told(runs):
    _, results = runs
    shares = {label: [float(row["stale_share"]) for row in results[label]["rows"]]
              for label in ("narrow-fresh.gcn.undirected", "everything.gcn.undirected",
                            "bounded-3.gcn.undirected",
                            "first-sync.gcn.undirected", "features-only.gcn.undirected", "overlap")}
    assert shares["narrow-fresh.gcn.undirected"] == [0.5] * EPOCHS
    assert shares["everything.gcn.undirected"] == [1.0] * EPOCHS
    assert shares["bounded-3.gcn.undirected"] == [0.0 if t % 3 == 2 else 1.0 for t in range(EPOCHS)]
    assert shares["first-sync.gcn.undirected"] == [0.0] + [1.0] * (EPOCHS - 1)
    assert shares["features-only.gcn.undirected"] == [0.5] * EPOCHS
    assert shares["overlap"] == [0.0] * EPOCHS
