"""Training on needed rows alone, exchanged as rows or partial sums, gives the losses of one rank
that computes all rows: 20 epochs with dropout with every strategy on 2 to 5 ranks, and bit for bit
on one. Evaluations in between take the memory of training and give it back."""

import numpy as np
import pytest
from many_runs import job, run_many
from small_graphs import small_graph

from hpcgcn.graph.store import write_graph

pytestmark = [pytest.mark.mpi_skip, pytest.mark.timeout(600)]

MODELS = ("gcn", "sage", "gcnii", "resgcn", "gat", "gin", "appnp")
SHARES = {"few": 0.01, "all": 1.0}               # of the nodes that train
KINDS = {"undirected": {}, "directed": {"directed": True}}
ARITHMETIC = {"fp32": ({"backend": "native"}, 1e-4),
              "fp64": ({"backend": "reference", "dtype": "float64"}, 1e-9)}
COMMON = {"epochs": 20, "dropout": 0.5, "layers": 3, "hidden": 16, "eval_every": 7}
# Each cell is run in one of the first three ways, and in one of the others where its model can be.
PARTITIONED = {"metis": {"partition_method": "metis", "method": "overlap", "halo": "cover"},
               "random": {"partition_method": "random", "method": "vanilla", "halo": "auto"},
               "rows": {"partition_method": "random", "method": "overlap", "halo": "rows"}}
OTHERS = {"features": {"parallel": "features", "feature_blocks": 3},
          "hosts": {"parallel": "hosts", "partition_method": "random"},
          "layers": {"method": "gnnpipe", "history": "none", "chunks": 10}}
# Steps that amplify no rounding: Adam moves a parameter whose gradient is one of rounding.
STEADY = {"lr": 0.002}
CELLS = [(model, share, kind, arithmetic) for model in MODELS for share in SHARES for kind in KINDS
         for arithmetic in ARITHMETIC]


def settings_of(cell) -> dict:
    model, _, kind, arithmetic = cell
    return COMMON | STEADY | ARITHMETIC[arithmetic][0] | {
        "model": model, "precompute": "no" if kind == "directed" else "auto"}


def label_of(cell) -> str:
    return ".".join(cell)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    found = {}
    for share, part in SHARES.items():
        for kind, changes in KINDS.items():
            path = found[share, kind] = folder / f"{share}-{kind}.h5"
            write_graph(path, small_graph(300, 420, 8, 4, train_share=part, seed=3, **changes))
    return found


@pytest.fixture(scope="module")
def alone(sources, tmp_path_factory):
    """One rank that computes all rows, and one that does not."""
    jobs = [job(f"{label_of(cell)}.{rows}", sources[cell[1:3]], needed_rows=rows == "needed",
                **settings_of(cell)) for cell in CELLS for rows in ("needed", "all")]
    return run_many(1, jobs, tmp_path_factory.mktemp("alone"))


def test_one_rank_gives_the_same_bits_with_and_without(alone):
    for cell in CELLS:
        label = label_of(cell)
        few, everything = (alone[f"{label}.{rows}"] for rows in ("needed", "all"))
        assert few["losses"] == everything["losses"], label
        assert few["digest"] == everything["digest"], label
        work = [run["summary"]["multiply_adds"]["all_ranks"] for run in (few, everything)]
        assert work[0] < 0.5 * work[1] if cell[1] == "few" else work[0] == work[1], label


def groups_of_ranks(way: str, n_ranks: int) -> dict:
    """Two hosts where ranks can be divided so; a pipeline of no more stages than the model has."""
    if way == "hosts":
        return {"ranks_per_host": 2 if n_ranks == 4 else n_ranks}
    if way == "layers" and n_ranks > 3:
        return {"partitions_per_stage": {4: 2, 5: 5}[n_ranks]}
    return {}


def jobs_of(n_ranks: int, sources: dict) -> dict[str, dict]:
    """Each cell in one or two ways; all ways and numbers of ranks meet all kinds of cells."""
    jobs = {}
    for k, cell in enumerate(CELLS):
        ways = PARTITIONED | ({} if cell[0] == "gat" else OTHERS)
        for kinds in (PARTITIONED, OTHERS):
            name = list(kinds)[(k + k // 4 + n_ranks) % 3]
            if name not in ways or (k + n_ranks) % 2:
                continue
            own = ways[name] | groups_of_ranks(name, n_ranks)
            label = f"{label_of(cell)}.{name}"
            jobs[label] = job(label, sources[cell[1:3]], **settings_of(cell) | own)
    return jobs


def test_every_way_meets_every_model_and_kind_of_graph():
    sources = {(share, kind): "" for share in SHARES for kind in KINDS}
    met = {tuple(label.split(".")) for n_ranks in (2, 3, 4, 5) for label in jobs_of(n_ranks,
                                                                                   sources)}
    for model in MODELS:
        for name in PARTITIONED | (OTHERS if model != "gat" else {}):
            assert {(way[0], way[4]) for way in met} >= {(model, name)}, (model, name)
    for name in PARTITIONED | OTHERS:
        assert {way[1:4] for way in met if way[4] == name} == {
            (share, kind, arithmetic) for share in SHARES for kind in KINDS
            for arithmetic in ARITHMETIC}, name


@pytest.mark.parametrize("n_ranks", [2, 3, 4, 5])
def test_losses_are_those_of_one_rank_that_computes_all_rows(n_ranks, sources, alone, tmp_path):
    for label, run in run_many(n_ranks, list(jobs_of(n_ranks, sources).values()),
                               tmp_path).items():
        assert "losses" in run, f"{label}: {run}"
        cell = label.rsplit(".", 1)[0]
        tolerance = ARITHMETIC[cell.split(".")[3]][1]
        control = alone[f"{cell}.all"]
        np.testing.assert_allclose(run["losses"], control["losses"], rtol=tolerance, err_msg=label)
        split = "val" if ".few." in label else "train"
        scores, those = ([float(row[split]) for row in one["rows"] if row[split]]
                         for one in (run, control))
        assert len(scores) >= 2, label
        np.testing.assert_allclose(scores, those, atol=0.02, err_msg=label)


def test_stale_rows_of_another_halo_start_anew(sources, tmp_path):
    """A checkpoint of stale rows is not taken for one of sums, nor one of all rows for one of
    needed rows: what follows is what follows without any stale rows."""
    stale = COMMON | {"model": "sage", "method": "pipegcn", "staleness": "1", "epochs": 8,
                      "checkpoint_every": 4, "keep": 2}
    first = {"rows": {"halo": "rows"}, "all": {"halo": "rows", "needed_rows": False},
             "cover": {"halo": "cover"}}
    jobs = [job(name, sources["few", "undirected"], partition_method="random", **stale | settings)
            for name, settings in first.items()]
    jobs += [job(name, sources["few", "undirected"], partition_method="random", forget_after=4,
                 resume="must", **stale | {"halo": "cover"}) for name in first]
    ran = run_many(2, [task | {"label": f"{task['label']}-{k}"} for k, task in enumerate(jobs)],
                   tmp_path)
    assert all(run.get("code") == 0 for run in ran.values()), ran
    assert ran["cover-5"]["losses"] == ran["cover-2"]["losses"], "the same halo goes on"
    for label, before in (("rows-3", "rows-0"), ("all-4", "all-1")):
        assert ran[label]["losses"][:4] == ran[before]["losses"][:4]
        assert ran[label]["losses"][4:] != ran[before]["losses"][4:], label
        np.testing.assert_allclose(ran[label]["losses"][4:6], ran[before]["losses"][4:6], rtol=0.2)
