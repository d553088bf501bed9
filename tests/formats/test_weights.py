"""Weights of PyG and DGL models in and out: names, layouts, logits on 1 and 3 ranks, and files that
are refused."""

import os
import sys

import h5py
import numpy as np
import pytest
from graphs import random_graph, with_weights
from launch import launch

from hpcgcn.cli import main
from hpcgcn.errors import ConfigError, FileError
from hpcgcn.graph.csr import row_numbers
from hpcgcn.graph.store import write_graph
from hpcgcn.nn.models import Shape, parameter_specs
from hpcgcn.weights.files import read_weights, run_parameters, write_weights
from hpcgcn.weights.layouts import to_theirs

pytestmark = [pytest.mark.one_machine, pytest.mark.mpi_skip]

MODELS = ("gcn", "sage", "gcnii")
LAYERS, HIDDEN, FEATURES, CLASSES, ALPHA, THETA = 3, 8, 5, 3, 0.2, 0.7


@pytest.fixture(scope="module")
def graph():
    return random_graph(n_nodes=60, n_edges=150, seed=4, features=np.random.default_rng(0).normal(
        size=(60, FEATURES)).astype(np.float32), labels=np.arange(60, dtype=np.int32) % CLASSES,
                        split=np.ones((1, 60), np.uint8))


@pytest.fixture(scope="module")
def graph_file(graph, tmp_path_factory):
    path = tmp_path_factory.mktemp("graph") / "g.h5"
    write_graph(path, graph)
    return path


def pyg_model(kind, seed=0):
    """A stack as PyG's users write it."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    nn = pytest.importorskip("torch_geometric.nn", reason="PyG is not installed")

    class Stack(torch.nn.Module):
        def __init__(self):
            super().__init__()
            if kind == "gcnii":
                self.lins = torch.nn.ModuleList([torch.nn.Linear(FEATURES, HIDDEN),
                                                 torch.nn.Linear(HIDDEN, CLASSES)])
                self.convs = torch.nn.ModuleList([nn.GCN2Conv(HIDDEN, ALPHA, THETA, layer)
                                                  for layer in range(1, LAYERS + 1)])
                return
            widths = [FEATURES, *[HIDDEN] * (LAYERS - 1), CLASSES]
            layer = nn.SAGEConv if kind == "sage" else nn.GCNConv
            self.convs = torch.nn.ModuleList([layer(a, b) for a, b in zip(widths, widths[1:])])
            if kind == "batch":
                self.bns = torch.nn.ModuleList([torch.nn.BatchNorm1d(HIDDEN)
                                                for _ in range(LAYERS - 1)])
            if kind == "sage":
                self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(HIDDEN)
                                                  for _ in range(LAYERS - 1)])

        def forward(self, x, edges):
            if kind == "gcnii":
                x = first = self.lins[0](x).relu()
                for conv in self.convs:
                    x = conv(x, first, edges).relu()
                return self.lins[1](x)
            for number, conv in enumerate(self.convs):
                x = conv(x, edges)
                if number < LAYERS - 1:
                    norm = {"sage": "norms", "batch": "bns"}.get(kind)
                    x = (getattr(self, norm)[number](x) if norm else x).relu()
            return x

    torch.manual_seed(seed)
    model = Stack().eval()
    for value in model.parameters():
        torch.nn.init.normal_(value, std=0.5)
    for value in model.buffers():        # running statistics of BatchNorm
        if value.is_floating_point():
            torch.nn.init.uniform_(value, 0.5, 2.0)
    return model


def pyg_logits(model, graph):
    import torch
    edges = torch.from_numpy(np.stack([graph.indices.astype(np.int64), row_numbers(graph.indptr)]))
    with torch.no_grad():
        return model(torch.from_numpy(graph.features), edges).numpy()


def predicted(path):
    with h5py.File(path) as file:
        return file["logits"][...]


def constants(kind):
    return ["--alpha", str(ALPHA), "--lambda", str(THETA)] if kind == "gcnii" else []


def assert_close(found, wanted):
    np.testing.assert_allclose(found, wanted, atol=1e-4 * max(1.0, np.abs(wanted).max()), rtol=0)


def assert_pyg_logits_here(model, graph, graph_file, folder, *flags):
    """A model of PyG predicts the same here, on 1 and 3 ranks."""
    from safetensors.torch import save_file
    save_file(model.state_dict(), folder / "w.safetensors")
    command = ["predict", "--weights", str(folder / "w.safetensors"), str(graph_file), "--what",
               "logits", *flags]
    assert main([*command, "-o", str(folder / "one.h5")]) == 0
    launch(3, [sys.executable, "-m", "hpcgcn", *command, "-o", str(folder / "three.h5")],
           timeout=120).check()
    expected = pyg_logits(model, graph)
    assert np.abs(expected).max() > 0.1
    assert_close(predicted(folder / "one.h5"), expected)
    assert_close(predicted(folder / "three.h5"), expected)


@pytest.mark.parametrize("kind", [*MODELS, "batch"])
def test_a_pyg_model_gives_its_logits_here(kind, graph, graph_file, tmp_path):
    assert_pyg_logits_here(pyg_model(kind), graph, graph_file, tmp_path, *constants(kind))


def weighted_pyg_logits(kind, model, graph):
    """The same stack where edges have weights; for GraphSAGE's weighted mean PyG's GraphConv gets
    the share of each weight in its row."""
    import torch
    from torch_geometric.nn import GraphConv
    rows = row_numbers(graph.indptr)
    weights = torch.from_numpy(graph.edge_weights)
    if kind == "sage":
        sums = np.bincount(rows, graph.edge_weights, graph.n_nodes)[rows]
        weights = torch.from_numpy((graph.edge_weights / np.where(sums > 0, sums, 1))
                                   .astype(np.float32))
        for k, conv in enumerate(model.convs):
            summed = GraphConv(conv.in_channels, conv.out_channels, aggr="add")
            summed.lin_rel, summed.lin_root = conv.lin_l, conv.lin_r
            model.convs[k] = summed
    for conv in model.convs:
        conv.register_forward_pre_hook(lambda _, given: (*given, weights))
    return pyg_logits(model, graph)


@pytest.mark.parametrize("directed", (False, True))
@pytest.mark.parametrize("kind", MODELS)
def test_weighted_edges_give_pyg_logits(kind, directed, graph, tmp_path):
    from safetensors.torch import save_file
    graph = with_weights(random_graph(n_nodes=60, n_edges=150, seed=4, directed=directed,
                                      features=graph.features, labels=graph.labels,
                                      split=graph.split))
    write_graph(tmp_path / "g.h5", graph)
    model = pyg_model(kind)
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    command = ["predict", "--weights", str(tmp_path / "w.safetensors"), str(tmp_path / "g.h5"),
               "--what", "logits", *constants(kind)]
    assert main([*command, "-o", str(tmp_path / "one.h5")]) == 0
    wanted = weighted_pyg_logits(kind, model, graph)
    assert_close(predicted(tmp_path / "one.h5"), wanted)
    if not directed:
        launch(3, [sys.executable, "-m", "hpcgcn", *command, "-o", str(tmp_path / "three.h5")],
               timeout=120).check()
        assert_close(predicted(tmp_path / "three.h5"), wanted)


@pytest.mark.parametrize("kind", [*MODELS, "batch"])
def test_a_model_trained_here_gives_its_logits_in_pyg(kind, graph, graph_file, tmp_path):
    import torch
    from safetensors.torch import load_file
    model = pyg_model(kind)
    chosen = ["gcn", "--norm", "batch"] if kind == "batch" else [kind]
    settings = ["--model", *chosen, "--layers", str(LAYERS), "--hidden", str(HIDDEN), "--alpha",
                str(ALPHA), "--lambda", str(THETA), "--epochs", "5", "--output", str(tmp_path),
                "--name", "run", "--quiet", "--precompute", "no"]
    launch(3, [sys.executable, "-m", "hpcgcn", "train", str(graph_file), *settings],
           timeout=120).check()
    run, weights = str(tmp_path / "run"), str(tmp_path / "w.safetensors")
    assert main(["weights", "export", run, "-o", weights, "--which", "last"]) == 0
    model.load_state_dict(load_file(weights), strict=True)
    wanted = pyg_logits(model, graph)
    command = ["predict", run, str(graph_file), "--which", "last", "--what", "logits", "-o"]
    assert main([*command, str(tmp_path / "p.h5")]) == 0
    launch(3, [sys.executable, "-m", "hpcgcn", *command, str(tmp_path / "three.h5")],
           timeout=120).check()
    assert_close(predicted(tmp_path / "p.h5"), wanted)
    assert_close(predicted(tmp_path / "three.h5"), wanted)
    # And home again: the file's own notes bring alpha and lambda along; a torch file needs them
    # said.
    assert main(["weights", "import", weights, "-o", str(tmp_path / "again")]) == 0
    assert main(["predict", str(tmp_path / "again"), str(graph_file), "--what", "logits", "-o",
                 str(tmp_path / "q.h5")]) == 0
    assert_close(predicted(tmp_path / "q.h5"), wanted)
    torch.save(model.state_dict(), tmp_path / "w.pt")
    assert main(["predict", "--weights", str(tmp_path / "w.pt"), str(graph_file), "--what",
                 "logits", "-o", str(tmp_path / "r.h5"), *constants(kind)]) == 0
    assert_close(predicted(tmp_path / "r.h5"), wanted)


@pytest.mark.parametrize("kind", MODELS)
def test_a_dgl_model_gives_its_logits_here(kind, graph, graph_file, tmp_path):
    dgl = pytest.importorskip("dgl", reason="DGL is not installed")
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    shape = Shape(kind, FEATURES, CLASSES, LAYERS, HIDDEN, alpha=ALPHA, lambda_=THETA,
                  self_loops=kind != "sage")
    parameters = random_parameters(shape)
    write_weights(tmp_path / "w.safetensors", "dgl", shape, parameters)
    assert main(["predict", "--weights", str(tmp_path / "w.safetensors"), str(graph_file), "--what",
                 "logits", "-o", str(tmp_path / "p.h5")]) == 0
    edges = [torch.from_numpy(np.array(ends, np.int64))
             for ends in (graph.indices, row_numbers(graph.indptr))]
    wanted = dgl_logits(dgl, torch, kind, to_theirs("dgl", shape, parameters), edges,
                        torch.from_numpy(graph.features))
    assert_close(predicted(tmp_path / "p.h5"), wanted)


def dgl_logits(dgl, torch, kind, tensors, edges, x):
    """Logits of a stack of DGL's layers with these tensors; strict loading checks every name."""
    made = dgl.graph(tuple(edges), num_nodes=len(x))
    made = made if kind == "sage" else dgl.add_self_loop(made)
    widths = [FEATURES, *[HIDDEN] * (LAYERS - 1), CLASSES]
    layers = {"gcn": lambda a, b, k: dgl.nn.GraphConv(a, b),
              "sage": lambda a, b, k: dgl.nn.SAGEConv(a, b, "mean"),
              "gcnii": lambda a, b, k: dgl.nn.GCN2Conv(HIDDEN, k, ALPHA, THETA)}
    stack = torch.nn.Module()
    stack.layers = torch.nn.ModuleList([layers[kind](a, b, k)
                                        for k, (a, b) in enumerate(zip(widths, widths[1:]), 1)])
    if kind == "gcnii":
        stack.lins = torch.nn.ModuleList([torch.nn.Linear(FEATURES, HIDDEN),
                                          torch.nn.Linear(HIDDEN, CLASSES)])
    stack.load_state_dict({name: torch.from_numpy(value) for name, value in tensors.items()},
                          strict=True)
    with torch.no_grad():
        if kind == "gcnii":
            x = first = stack.lins[0](x).relu()
            for layer in stack.layers:
                x = layer(made, x, first).relu()
            return stack.lins[1](x).numpy()
        for number, layer in enumerate(stack.layers):
            x = layer(made, x)
            x = x.relu() if number < LAYERS - 1 else x
        return x.numpy()


def random_parameters(shape):
    rng = np.random.default_rng(1)
    return {spec.name: rng.normal(size=spec.shape).astype(np.float32)
            for spec in parameter_specs(shape)}


SHAPES = {"gcn": Shape("gcn", 5, 3, 12, 8), "gcn-norm": Shape("gcn", 5, 3, 3, 8, norm=True),
          "gcn-batch-norm": Shape("gcn", 5, 3, 3, 8, norm=True, batch_norm=True),
          "one-layer": Shape("gcn", 5, 3, 1, 1),
          "gcn-linear": Shape("gcn", 5, 3, 4, 8, linear_layers=2),
          "sage": Shape("sage", 5, 3, 3, 8, norm=True, self_loops=False),
          "sage-linear": Shape("sage", 5, 3, 4, 8, linear_layers=1, self_loops=False),
          "gcnii": Shape("gcnii", 5, 3, 11, 8),
          "square": Shape("gcn", 8, 8, 2, 8), "resgcn": Shape("resgcn", 5, 3, 3, 8)}


@pytest.mark.parametrize("framework", ["pyg", "dgl", "hpcgcn"])
@pytest.mark.parametrize("name", SHAPES)
def test_there_and_back(name, framework, tmp_path):
    shape = SHAPES[name]
    if shape.model == "resgcn" and framework != "hpcgcn":
        pytest.skip("no such layout")
    parameters = random_parameters(shape)
    write_weights(tmp_path / "w.safetensors", framework, shape, parameters)
    found, metadata = read_weights(tmp_path / "w.safetensors")
    assert (found.shape.model, found.shape.layers, found.shape.hidden, found.shape.norm,
            found.shape.linear_layers) == (
                shape.model, shape.layers, shape.hidden, shape.norm, shape.linear_layers)
    assert list(found.parameters) == [spec.name for spec in parameter_specs(shape)]
    for key, value in parameters.items():    # a deviation goes through its square
        wanted = abs(value) if key.endswith(".deviation") and framework != "hpcgcn" else value
        np.testing.assert_allclose(found.parameters[key], wanted,
                                   rtol=1e-6 if key.endswith(".deviation") else 0)
    assert metadata["model"] == shape.model and os.listdir(tmp_path) == ["w.safetensors"]


def test_files_that_are_refused(tmp_path, graph_file, capsys):
    path = tmp_path / "w.safetensors"
    write_weights(path, "pyg", SHAPES["gcn"], random_parameters(SHAPES["gcn"]))
    whole = path.read_bytes()
    for data in (b"", whole[:100], b"\xff" * 200, whole[:-40]):
        path.write_bytes(data)
        assert main(["weights", "import", str(path)]) == 2
        assert "w.safetensors" in capsys.readouterr().err
    path.write_bytes(whole)
    assert main(["predict", str(graph_file), "-o", str(tmp_path / "p.h5")]) == 2
    assert "--weights" in capsys.readouterr().err
    write_weights(path, "pyg", Shape("gcn", 99, 3, 2, 4),
                  random_parameters(Shape("gcn", 99, 3, 2, 4)))
    assert main(["predict", "--weights", str(path), str(graph_file), "-o",
                 str(tmp_path / "p.h5")]) == 2
    assert "99 features" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="hpcgcn"):
        write_weights(path, "dgl", SHAPES["resgcn"], random_parameters(SHAPES["resgcn"]))


@pytest.mark.parametrize("value,code", [(1e5, 0), (-2e6, 2), (1e30, 2), (np.inf, 2), (np.nan, 2)])
def test_weights_that_overflow_are_refused_before_they_are_used(value, code, tmp_path, graph,
                                                                graph_file, capsys):
    path, run = tmp_path / "w.safetensors", tmp_path / "run"
    shape = Shape("gcn", graph.n_features, graph.n_classes, 3, 4)
    parameters = {name: np.full_like(array, value)
                  for name, array in random_parameters(shape).items()}
    write_weights(path, "pyg", shape, parameters)
    assert main(["weights", "import", str(path), "-o", str(run)]) == code
    assert run.exists() == (code == 0)
    told = capsys.readouterr().err
    assert ("holds NaN, infinity or numbers above 1e+06" in told) == (code == 2)
    # what was called sound can be used
    assert main(["predict", "--weights", str(path), str(graph_file), "-o",
                 str(tmp_path / "p.h5")]) == code
    assert "Warning" not in capsys.readouterr().err


@pytest.mark.parametrize("notes", [{}, {"alpha": "x", "lambda": "1", "self_loops": "yes"}, {
    "alpha": "1", "lambda": "1", "self_loops": "yes", "linear_layers": "0", "framework": "jax"}])
def test_damaged_notes(tmp_path, capsys, notes):
    from safetensors.numpy import save_file
    save_file({"conv1.weight": np.ones((5, 3), np.float32)}, tmp_path / "w.safetensors",
              {"format": "hpcgcn weights 1", **notes})
    assert main(["weights", "import", str(tmp_path / "w.safetensors")]) == 2
    assert "notes are damaged" in capsys.readouterr().err


def test_exported_files_can_be_read_by_others(tmp_path):
    before = os.umask(0o022)
    try:
        write_weights(tmp_path / "w.safetensors", "pyg", SHAPES["gcn"],
                      random_parameters(SHAPES["gcn"]))
    finally:
        os.umask(before)
    assert (tmp_path / "w.safetensors").stat().st_mode & 0o777 == 0o644


def test_weights_into_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileError, match="there is no folder"):
        write_weights(tmp_path / "no" / "w.safetensors", "pyg", SHAPES["gcn"],
                      random_parameters(SHAPES["gcn"]))


def test_no_pickle_among_weights(tmp_path, capsys):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    class Attack:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'pwned'}",)
    torch.save({"convs.0.bias": Attack()}, tmp_path / "w.pt")
    assert main(["weights", "import", str(tmp_path / "w.pt")]) == 2
    assert "refused" in capsys.readouterr().err and not (tmp_path / "pwned").exists()


def test_predictions_carry_the_users_ids(tmp_path):
    (tmp_path / "edges.csv").write_text("anna,bob\nbob,carl\ncarl,anna\ndora,anna\n")
    (tmp_path / "nodes.csv").write_text(
        "person,label,split,x,y\ndora,tea,train,1,0\nanna,tea,train,1,0\n"
        "bob,coffee,train,0,1\ncarl,coffee,val,0,1\n")
    graph, run = str(tmp_path / "g.h5"), str(tmp_path / "runs" / "r")
    assert main(["import", "csv", str(tmp_path / "edges.csv"), str(tmp_path / "nodes.csv"), "-o",
                 graph, "--id-column", "person", "--undirected"]) == 0
    assert main(["train", graph, "--epochs", "30", "--output", str(tmp_path / "runs"), "--name",
                 "r", "--quiet", "--model", "gcn"]) == 0
    assert main(["predict", run, graph, "-o", str(tmp_path / "p.csv")]) == 0
    rows = [line.split(",") for line in (tmp_path / "p.csv").read_text().splitlines()]
    assert rows[0] == ["person",
                       "class"] and [row[0] for row in rows[1:]] == ["dora", "anna", "bob", "carl"]
    assert {row[1] for row in rows[1:]} <= {"tea", "coffee"}
    assert main(["predict", run, graph, "-o", str(tmp_path / "l.csv"), "--what", "logits"]) == 0
    assert (tmp_path / "l.csv").read_text().startswith("person,logits:coffee,logits:tea\n")
    assert main(["partition", graph, "-n", "1", "-o", str(tmp_path / "part.h5"), "--method",
                 "random"]) == 0
    assert main(["predict", run, str(tmp_path / "part.h5"), "-o", str(tmp_path / "p.h5")]) == 0
    with h5py.File(tmp_path / "p.h5") as file:
        assert file["node_names"][...].tolist() == [b"dora", b"anna", b"bob", b"carl"]


def test_runs_export_what_they_hold(graph_file, tmp_path):
    assert main(["train", str(graph_file), "--epochs", "2", "--output", str(tmp_path), "--name",
                 "run", "--quiet", "--layers", "2"]) == 0
    _, shape, parameters = run_parameters(str(tmp_path / "run"), "last")
    assert shape.model == "sage" and shape.norm and (shape.n_features,
                                                     shape.n_classes) == (FEATURES, CLASSES)
    with h5py.File(tmp_path / "run" / "checkpoints" / "epoch-000002" / "model.h5") as file:
        np.testing.assert_array_equal(np.concatenate(
            [value.ravel() for value in parameters.values()]), file["parameters"][...])
