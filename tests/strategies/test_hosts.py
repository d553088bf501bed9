"""One part per host and columns within it: the numbers of one rank, halos that count hosts, and
codecs and staleness as on as many ranks as there are hosts.

Hosts are declared: groups of ranks on one machine."""

import re

import numpy as np
import pytest
from many_runs import job, run_many
from same_losses import assert_same_losses
from small_graphs import few_train, small_graph

from hpcgcn.graph.generate import generate_sbm
from hpcgcn.graph.store import write_graph

pytestmark = [pytest.mark.mpi_skip, pytest.mark.timeout(600), pytest.mark.one_machine]

MODELS = ("gcn", "sage", "gcnii", "resgcn")
COMMON = {"epochs": 20, "dropout": 0.5, "lr": 0.02, "eval_every": 20}
HIDDEN, CLASSES = 16, 5
# two ranks per host; as on two ranks with one part each
AS_PARTS = {"pipegcn": {"method": "pipegcn"}, "smoothed": {"method": "pipegcn-gf"},
            "bns": {"method": "bns", "rate": "2"}, "vanilla": {"method": "vanilla"},
            "stored": {"precision": "bf16", "model": "gcn"}}
CODED = {"8bit": {"codec": "8bit"}, "adaptive": {"codec": "adaptive", "rate": "8"},
         "1bit": {"method": "sylvie-s"}, "subset": {"codec": "subset"},
         "fed-back": {"codec": "4bit", "error_feedback": True},
         "residual": {"codec": "8bit", "residual": True}, "stale-bits": {"method": "sylvie-a"}}
STRANGE = {"sparse": {"model": "gcn"}, "directed": {"model": "sage"},
           "multilabel": {"model": "gcnii"}, "few": {"model": "resgcn"},
           "two-classes": {"model": "gcn", "hidden": 3},
           "precise": {"model": "sage", "backend": "reference", "dtype": "float64"},
           "inductive": {"model": "resgcn", "inductive": True}}


@pytest.fixture(scope="module")
def graph():
    return generate_sbm(601, 8, 12, CLASSES, seed=2)


@pytest.fixture(scope="module")
def sources(graph, tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    write_graph(folder / "plain.h5", graph)
    write_graph(folder / "directed.h5", small_graph(151, 500, 9, 5, directed=True))
    write_graph(folder / "sparse.h5", small_graph(149, 500, 20, 5, sparse=True))
    write_graph(folder / "multilabel.h5", small_graph(150, 500, 9, 5, multilabel=True))
    write_graph(folder / "two-classes.h5", small_graph(150, 500, 9, 2))
    write_graph(folder / "few.h5", few_train(generate_sbm(601, 8, 12, CLASSES, seed=2), 12))
    return folder


def exact_jobs(sources, **settings) -> list[dict]:
    jobs = [job(model, sources / "plain.h5", model=model, **COMMON, **settings) for model in MODELS]
    for name, own in STRANGE.items():
        file = sources / f"{name}.h5"
        jobs.append(job(name, file if file.exists() else sources / "plain.h5",
                        **COMMON | own | settings))
    return jobs


def coded_jobs(sources, **settings) -> list[dict]:
    return [job(name, sources / "plain.h5", **COMMON | own | settings)
            for name, own in (AS_PARTS | CODED).items()]


def stale_jobs(sources, **settings) -> list[dict]:
    stale = settings | {"method": "pipegcn-g", "checkpoint_every": 7, "parallel": "hosts"}
    return [job("straight", sources / "plain.h5", **stale),
            job("halved", sources / "plain.h5", **stale),
            job("halved", sources / "plain.h5", forget_after=7, resume="must", **stale)]


@pytest.fixture(scope="module")
def alone(sources, tmp_path_factory):
    return run_many(1, exact_jobs(sources), tmp_path_factory.mktemp("alone"))


@pytest.fixture(scope="module")
def two_hosts(sources, tmp_path_factory):
    """Two hosts with two ranks each."""
    hosts = {"parallel": "hosts", "ranks_per_host": 2}
    jobs = exact_jobs(sources, **hosts) + coded_jobs(sources, **hosts)
    return run_many(4, jobs + stale_jobs(sources, ranks_per_host=2),
                    tmp_path_factory.mktemp("hosts"))


def assert_same_as_one_rank(found: dict, alone: dict):
    for label, control in alone.items():
        run = found[label]
        assert "losses" in run, f"{label}: {run}"
        assert_same_losses(run, control, label, precise=label == "precise")
        assert float(run["rows"][-1]["test"]) == pytest.approx(
            float(control["rows"][-1]["test"]), abs=0.03), label


def test_losses_are_those_of_one_rank(two_hosts, alone):
    assert_same_as_one_rank(two_hosts, alone)


@pytest.mark.parametrize("n_ranks, per_host", [(2, 1), (3, 3), (3, 1)])
def test_one_host_or_one_rank_per_host_changes_nothing(n_ranks, per_host, sources, alone, tmp_path):
    jobs = exact_jobs(sources, parallel="hosts", ranks_per_host=per_host)
    assert_same_as_one_rank(run_many(n_ranks, jobs, tmp_path), alone)


@pytest.fixture(scope="module")
def two_parts(sources, tmp_path_factory):
    """The same hosts with one rank each: a rank per part."""
    exact = ("gcn", "resgcn", "few")
    jobs = [task for task in coded_jobs(sources) if task["label"] in AS_PARTS]
    jobs += [task for task in exact_jobs(sources) if task["label"] in exact]
    return run_many(2, jobs, tmp_path_factory.mktemp("parts"))


@pytest.mark.parametrize("label", AS_PARTS)
def test_staleness_and_samples_are_those_of_one_rank_per_host(two_hosts, two_parts, label):
    """What is sent is another thing than with one rank, but the same as with a rank per host."""
    apart = np.abs(np.array(two_hosts[label]["losses"]) / two_parts[label]["losses"] - 1)
    assert apart.max() < (1e-2 if label == "stored" else 1e-4), apart


@pytest.mark.parametrize("name", CODED)
def test_codecs_train(two_hosts, name):
    losses = two_hosts[name]["losses"]
    assert losses[-1] < 0.9 * losses[0] and losses != two_hosts["sage"]["losses"]


def halo_bytes(run: dict) -> list[list[int]]:
    """Of each epoch, by hop and direction."""
    names = [name for name in run["rows"][0] if re.fullmatch("bytes_(for|back)ward_[0-9]", name)]
    return [[int(row[name]) for name in names] for row in run["rows"]]


def test_bytes_between_hosts_are_those_of_a_rank_per_host(two_hosts, two_parts):
    for label, run in two_parts.items():
        assert halo_bytes(two_hosts[label]) == halo_bytes(run), label
        for row, by_hop in zip(two_hosts[label]["rows"], halo_bytes(run)):
            assert int(row["bytes_network"]) == sum(by_hop), label
            within = [int(n) for name, n in row.items() if "_to_columns" in name
                      or "_to_rows" in name]
            assert int(row["bytes_sent"]) == sum(within) + sum(by_hop)


def test_every_slice_of_a_row_has_its_own_scale(two_hosts):
    """1 bit: four bytes of scale and offset, and whole bytes of codes, for each slice."""
    plain, coded = two_hosts["sage"]["rows"][0], two_hosts["1bit"]["rows"][0]
    for hop, width in ((1, HIDDEN), (2, CLASSES)):
        rows = int(plain[f"bytes_forward_{hop}"]) // (4 * width)
        slices = (width // 2, width - width // 2)
        assert int(coded[f"bytes_forward_{hop}"]) == rows * sum(4 + -(-n // 8) for n in slices)


def test_a_stale_run_resumes_bit_for_bit(two_hosts):
    assert two_hosts["halved"]["digest"] == two_hosts["straight"]["digest"]


REFUSED = {"uneven": ({"ranks_per_host": 2}, "does not divide"),
           "parts": ({"ranks_per_host": 1, "source": "plain-2.h5"}, "needs one per host"),
           "budget": ({"ranks_per_host": 1, "codec": "bits", "byte_budget": "9MB"}, "byte_budget")}


def test_what_does_not_fit_is_refused(sources, graph, tmp_path):
    from hpcgcn.graph.divide import divide
    divide(graph, sources / "plain-2.h5", 2, "metis", "volume")
    jobs = [job(name, sources / settings.pop("source", "plain.h5"), parallel="hosts", **settings)
            for name, (settings, _) in REFUSED.items()]
    found = run_many(3, jobs, tmp_path)
    for name, (_, words) in REFUSED.items():
        assert (found[name].get("error") == "ConfigError"
                and words in found[name]["message"]), found[name]
