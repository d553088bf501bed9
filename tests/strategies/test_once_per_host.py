"""A part per rank, and rows that several ranks of a host read sent to it once: the numbers of one
rank, staleness and coded values as without, and bytes between hosts that are counted elsewhere.

Hosts are declared: groups of ranks on one machine."""

import networkx as nx
import numpy as np
import pytest
from many_runs import job, run_many
from same_losses import assert_same_losses
from small_graphs import few_train, small_graph

from hpcgcn.config import make_config
from hpcgcn.errors import ConfigError
from hpcgcn.graph.divide import divide
from hpcgcn.graph.generate import generate_sbm
from hpcgcn.graph.store import read_part, write_graph

pytestmark = [pytest.mark.mpi_skip, pytest.mark.timeout(600), pytest.mark.one_machine]

COMMON = {"epochs": 20, "dropout": 0.5, "lr": 0.01, "partition_method": "random", "eval_every": 20}
ONCE = {"once_per_host": True, "ranks_per_host": 2, "parallel": "partition"}
HIDDEN, CLASSES, LAYERS = 16, 5, 3
EXACT = {"gcn": {"model": "gcn", "halo": "cover"}, "sage": {"model": "sage", "halo": "auto"},
         "gcnii": {"model": "gcnii", "method": "vanilla", "halo": "rows"},
         "resgcn": {"model": "resgcn", "halo": "cover"}, "gin": {"model": "gin"},
         "appnp": {"model": "appnp", "halo": "cover"}, "gat": {"model": "gat", "heads": 2},
         "sparse": {"model": "gcn"}, "multilabel": {"model": "gcnii"},
         "weighted-directed": {"model": "gcn", "halo": "cover", "precompute": "no"},
         "few": {"model": "sage", "halo": "cover"}, "far": {"model": "gat", "heads": 2},
         "inductive": {"model": "resgcn", "inductive": True},
         "precise": {"model": "sage", "backend": "reference", "dtype": "float64", "halo": "cover"}}
# Values are coded alike, whoever decodes them; gradients are not: a host's are added up first. And
# drift is measured on what is sent, which is less here: so no bound.
SAME_AS_PLAIN = {"pipegcn": {"method": "pipegcn", "staleness": "1", "stale_error": "inf"},
                 "smoothed": {"method": "pipegcn-gf", "stale_error": "inf"},
                 "vanilla": {"method": "vanilla"},
                 "values in 1 bit": {"codec": "fp32,features=1bit"},
                 "stale values in 4 bits": {"codec": "fp32,features=4bit", "staleness": "1"},
                 "residual values": {"codec": "fp32,features=8bit", "residual": True}}
CODED = {"sylvie-a": {"method": "sylvie-a"}, "adaptive": {"codec": "adaptive", "rate": "4"},
         "adaptive sums": {"codec": "adaptive", "rate": "4", "halo": "cover"},
         "varco": {"method": "varco"}, "bf16": {"codec": "bf16", "halo": "cover"},
         "stored": {"precision": "bf16"},
         "feedback": {"codec": "4bit", "error_feedback": True},
         "nodes": {"method": "bns", "rate": "2"},
         "moved": {"codec": "8bit", "residual": True, "change_threshold": 0.05}}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    graphs = {"plain": generate_sbm(301, 8, 12, CLASSES, seed=2),
              "sparse": small_graph(149, 500, 20, 5, sparse=True),
              "multilabel": small_graph(150, 500, 9, 5, multilabel=True),
              "weighted-directed": small_graph(150, 500, 9, 5, weighted=True, directed=True),
              "few": few_train(generate_sbm(301, 8, 12, CLASSES, seed=2), 6),
              "far": small_graph(200, 150, 9, 5, train_share=0.02)}
    for name, graph in graphs.items():
        write_graph(folder / f"{name}.h5", graph)
    return lambda name: folder / f"{name if name in graphs else 'plain'}.h5"


def jobs_of(cases: dict, sources, suffix: str = "", **settings) -> list[dict]:
    return [job(name + suffix, sources(name), **COMMON | own | settings)
            for name, own in cases.items()]


def stale_jobs(sources) -> list[dict]:
    stale = ONCE | {"method": "pipegcn-g", "staleness": "1", "checkpoint_every": 7, "model": "sage"}
    return [job("straight", sources("plain"), **stale), job("halved", sources("plain"), **stale),
            job("halved", sources("plain"), forget_after=7, resume="must", **stale)]


@pytest.fixture(scope="module")
def alone(sources, tmp_path_factory):
    return run_many(1, jobs_of(EXACT, sources), tmp_path_factory.mktemp("alone"))


@pytest.fixture(scope="module")
def two_hosts(sources, tmp_path_factory):
    """Two hosts with two ranks each; what is coded or stale also without passing rows on."""
    plain = {"halo": "rows", "ranks_per_host": 2}
    jobs = (jobs_of(EXACT, sources, **ONCE) + jobs_of(CODED, sources, **ONCE)
            + jobs_of(SAME_AS_PLAIN, sources, **ONCE | {"halo": "rows"})
            + jobs_of(SAME_AS_PLAIN, sources, ", plain", **plain) + stale_jobs(sources))
    return run_many(4, jobs, tmp_path_factory.mktemp("hosts"))


def assert_same_as_one_rank(found: dict, alone: dict, names=tuple(EXACT)):
    for label in names:
        assert "losses" in found[label], f"{label}: {found[label]}"
        assert_same_losses(found[label], alone[label], label, precise=label == "precise")
        assert float(found[label]["rows"][-1]["test"]) == pytest.approx(
            float(alone[label]["rows"][-1]["test"]), abs=0.03), label


def test_losses_are_those_of_one_rank(two_hosts, alone):
    assert_same_as_one_rank(two_hosts, alone)


@pytest.mark.parametrize("n_ranks, per_host", [(6, 3), (3, 1), (3, 3)])
def test_any_number_of_ranks_per_host(n_ranks, per_host, sources, alone, tmp_path):
    names = ("gcn", "sage", "few", "precise")
    jobs = jobs_of({name: EXACT[name] for name in names}, sources,
                   **ONCE | {"ranks_per_host": per_host})
    assert_same_as_one_rank(run_many(n_ranks, jobs, tmp_path), alone, names)


@pytest.mark.parametrize("name", SAME_AS_PLAIN)
def test_stale_and_coded_values_are_those_without_passing_on(two_hosts, name):
    once, plain = two_hosts[name], two_hosts[f"{name}, plain"]
    # The first epoch has equal parameters; later a last bit may round a code to the other side.
    apart = np.abs(np.array(once["losses"]) / plain["losses"] - 1)
    assert apart[0] < 1e-6 and apart[:3].max() < 1e-4 and apart.max() < 1e-2, apart
    network = [int(run["rows"][-1]["bytes_network"]) for run in (once, plain)]
    assert network[0] < 0.9 * network[1]


@pytest.mark.parametrize("name", CODED)
def test_codecs_train(two_hosts, name):
    losses = two_hosts[name]["losses"]
    assert losses[-1] < 0.9 * losses[0]


def test_a_stale_run_resumes_bit_for_bit(two_hosts):
    assert two_hosts["halved"]["digest"] == two_hosts["straight"]["digest"]


# -- bytes -----------------------------------------------------------------------------------------
def rows_to_hosts(path, per_host: int, covered: bool) -> int:
    """Rows and sums that all ranks send to other hosts if all rows are needed: the size of a cover,
    or the rows that are read."""
    n_parts, total = 4, 0
    parts = [read_part(path, rank, n_parts) for rank in range(n_parts)]
    for host in range(n_parts // per_host):
        by_sender: dict[int, set] = {}
        for part in parts[host * per_host:(host + 1) * per_host]:
            owner = np.searchsorted(part.offsets, part.indices, "right") - 1
            reader = np.repeat(np.arange(part.n_owned), np.diff(part.indptr))
            for source, row, sender in zip(part.indices, reader, owner):
                if sender // per_host != host:
                    by_sender.setdefault(int(sender), set()).add(
                        (f"s{source}", f"r{part.rank}.{row}"))
        for edges in by_sender.values():
            tops = {source for source, _ in edges}
            matching = nx.bipartite.hopcroft_karp_matching(nx.Graph(list(edges)), tops)
            total += len(matching) // 2 if covered else len(tops)
    return total


def test_bytes_between_hosts_are_those_of_an_independent_count(tmp_path):
    """Of a model whose layers all train on all rows: each direction of each hop sends the cover."""
    graph = small_graph(160, 700, 9, CLASSES, train_share=1.0)
    path = tmp_path / "p.h5"
    divide(graph, path, 4, "random")
    settings = {"model": "sage", "epochs": 2, "needed_rows": False, "parallel": "partition",
                "ranks_per_host": 2, "precompute": "no", "weights_first": False}
    jobs = [job(f"{halo}.{once}", path, halo=halo, once_per_host=once, **settings)
            for halo in ("rows", "cover") for once in (True, False)]
    found = run_many(4, jobs, tmp_path)
    widths = 4 * (9 + 2 * 2 * HIDDEN)            # the input has no gradient
    network = {label: int(run["rows"][-1]["bytes_network"]) for label, run in found.items()}
    for halo in ("rows", "cover"):
        wanted = rows_to_hosts(path, 2, covered=halo == "cover") * widths
        assert network[f"{halo}.True"] == wanted < network[f"{halo}.False"], halo
    within = [name for name in found["rows.True"]["rows"][0] if "within_host" in name]
    assert len(within) == 5 and all(int(found["rows.True"]["rows"][-1][name]) for name in within)


@pytest.mark.parametrize("settings, reason", [
    ({"parallel": "hosts"}, "crosses once per host anyway"), ({"method": "mixgcn"}, "'features'"),
    ({"transport": "nccl", "backend": "cuda"}, "same order")])
def test_what_it_does_not_go_with_is_refused(settings, reason):
    with pytest.raises(ConfigError, match=reason):
        make_config({"once_per_host": True, **settings})
