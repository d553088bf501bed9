"""GIN and APPNP: the same losses on 1, 3 and 4 ranks with every strategy, logits of PyG's GINConv
and APPNP, and runs that are read back."""

import numpy as np
import pytest
from many_runs import job, run_many
from same_losses import assert_same_losses
from small_graphs import dense_features, make_trainer, small_graph

from hpcgcn.graph.csr import row_numbers
from hpcgcn.graph.generate import generate_sbm
from hpcgcn.graph.store import write_graph

pytestmark = [pytest.mark.mpi_skip, pytest.mark.timeout(600)]

COMMON = {"epochs": 10, "dropout": 0.5, "lr": 0.01}
MODELS = {"gin": {"model": "gin", "norm": "yes"}, "gin-batch": {"model": "gin", "norm": "batch"},
          "appnp": {"model": "appnp", "layers": 6, "alpha": 0.2}}
STRATEGIES = {"partition": {"method": "vanilla"}, "columns": {"method": "mixgcn"},
              "stages": {"parallel": "layers", "history": "none", "chunks": 6}}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("graphs") / "g.h5"
    write_graph(path, generate_sbm(200, 8, 12, 5, seed=2))
    return path


@pytest.fixture(scope="module")
def alone(source, tmp_path_factory):
    jobs = [job(name, source, **COMMON | settings) for name, settings in MODELS.items()]
    return run_many(1, jobs, tmp_path_factory.mktemp("alone"))


@pytest.mark.parametrize("n_ranks", [3, 4])
def test_losses_are_those_of_one_rank(n_ranks, source, alone, tmp_path):
    jobs = [job(f"{name}.{how}", source, **COMMON | settings | strategy)
            for name, settings in MODELS.items() for how, strategy in STRATEGIES.items()
            if n_ranks == 3 or how == "partition"]
    jobs = [task for task in jobs if task["label"] != "gin-batch.stages"]        # is refused
    found = run_many(n_ranks, jobs, tmp_path)
    assert len(found) == len(jobs)
    for label, run in found.items():
        assert "losses" in run, f"{label}: {run}"
        assert_same_losses(run, alone[label.split(".")[0]], label)


def pyg_logits(trainer, graph):
    """The same weights in PyG's own layers."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    nn = pytest.importorskip("torch_geometric.nn", reason="PyG is not installed")
    p = {name: torch.from_numpy(value) for name, value in trainer.parameters.host_values().items()}
    edges = torch.from_numpy(np.stack([graph.indices.astype(np.int64), row_numbers(graph.indptr)]))
    h = torch.from_numpy(dense_features(graph))

    def linear(weight, bias):
        return lambda x: x @ p[weight] + p[bias]

    if trainer.config.model == "appnp":
        h = linear("output.weight", "output.bias")(linear("input.weight", "input.bias")(h).relu())
        return nn.APPNP(trainer.config.layers, trainer.config.alpha)(h, edges)
    for layer in range(1, trainer.config.layers + 1):
        first, second = (linear(f"conv{layer}.weight{k}", f"conv{layer}.bias{k}")
                         for k in ("", "2"))
        h = nn.GINConv(lambda x, first=first, second=second: second(first(x).relu()))(h, edges)
        h = h.relu() if layer < trainer.config.layers else h
    return h


@pytest.mark.parametrize("model", ["gin", "appnp"])
@pytest.mark.parametrize("directed", [False, True])
def test_logits_are_those_of_pyg(model, directed):
    graph = small_graph(directed=directed)
    trainer = make_trainer(graph, model=model, dtype="float64", layers=3, hidden=7)
    wanted = np.asarray(pyg_logits(trainer, graph))[trainer.engine.local.order]
    assert np.abs(wanted).max() > 0.01
    np.testing.assert_allclose(trainer.engine.evaluate(), wanted, rtol=1e-6,
                               atol=1e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("name", MODELS)
def test_a_run_is_read_back(name, source, alone, tmp_path):
    """Evaluated, and its weights written under our own names; PyG's files cannot hold them."""
    from hpcgcn import open_model, train_model
    from hpcgcn.cli import main
    result = train_model(source, COMMON | MODELS[name] | {"output": str(tmp_path), "name": "run",
                                                          "quiet": True, "hidden": 16})
    scores = open_model(result.folder, source, "last").scores()
    assert scores["test"] == pytest.approx(result.summary["final"]["test"])
    weights = str(tmp_path / "w.safetensors")
    assert main(["weights", "export", result.folder, "-o", weights]) == 2
    assert main(["weights", "export", result.folder, "-o", weights, "--to", "hpcgcn"]) == 0
    if name.startswith("gin"):               # how often APPNP propagates no weight tells
        assert main(["weights", "import", weights, "-o", str(tmp_path / "again")]) == 0
        again = open_model(str(tmp_path / "again"), source).scores()
        best = open_model(result.folder, source, "best").scores()
        assert again["test"] == pytest.approx(best["test"])
    else:
        assert main(["weights", "import", weights, "-o", str(tmp_path / "again")]) == 2
