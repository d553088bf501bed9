"""Weight files as people have them: which model they hold, what is refused, and graphs that have no
labels."""

import h5py
import numpy as np
import pytest
from graphs import random_graph

from hpcgcn.cli import main
from hpcgcn.errors import FileError
from hpcgcn.graph.csr import row_numbers
from hpcgcn.graph.store import write_graph
from hpcgcn.weights.recognise import from_theirs

pytestmark = pytest.mark.mpi_skip

FEATURES, HIDDEN, CLASSES = 5, 8, 3


def graph_file(tmp_path, directed=False, labelled=True):
    labels = np.arange(40, dtype=np.int32) % CLASSES if labelled else np.full(40, -1, np.int32)
    graph = random_graph(n_nodes=40, n_edges=90, seed=3, directed=directed, labels=labels,
                         n_classes=CLASSES if labelled else 1, features=np.random.default_rng(
                             0).normal(size=(40, FEATURES)).astype(np.float32),
                         split=np.full((1, 40), int(labelled), np.uint8))
    write_graph(tmp_path / "g.h5", graph)
    return graph, str(tmp_path / "g.h5")


def predict(tmp_path, weights, graph, *flags):
    assert main(["predict", "--weights", str(weights), graph, "--what", "logits",
                 "-o", str(tmp_path / "p.h5"), "--overwrite", *flags]) == 0
    with h5py.File(tmp_path / "p.h5") as file:
        return file["logits"][...]


# -- models of PyG with a head ---------------------------------------------------------------------
def head_model(kind):
    """Models that end in a plain linear layer, as PyG's users write them; forward applies ReLU
    between all layers."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    nn = pytest.importorskip("torch_geometric.nn", reason="PyG is not installed")
    if kind in ("GCN", "GraphSAGE"):
        return getattr(nn, kind)(FEATURES, HIDDEN, 2, CLASSES, jk="last")
    layer, names, head, wrapped = {
        "lin": (nn.GCNConv, ("conv1", "conv2"), "lin", False),
        "wrapped": (nn.GCNConv, ("conv1", "conv2"), "lin", True),
        "bare": (nn.GCNConv, ("conv1", "conv2"), "lin", True),
        "sage": (nn.SAGEConv, ("sage1", "sage2"), "classifier", False),
        "classifier": (nn.GCNConv, ("conv1", "conv2"), "classifier", False)}[kind]

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            setattr(self, names[0], layer(FEATURES, HIDDEN))
            setattr(self, names[1], layer(HIDDEN, HIDDEN))
            setattr(self, head, torch.nn.Linear(HIDDEN, CLASSES, bias=kind != "bare"))

        def forward(self, x, edges):
            for name in names:
                x = getattr(self, name)(x, edges).relu()
            return getattr(self, head)(x)

    class Wrapper(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = Model()

        def forward(self, x, edges):
            return self.model(x, edges)
    return Wrapper() if wrapped else Model()


@pytest.mark.parametrize("kind",
                         ["GCN", "GraphSAGE", "lin", "wrapped", "bare", "sage", "classifier"])
def test_a_linear_head(tmp_path, kind):
    model = head_model(kind).eval()
    import torch
    for value in model.parameters():
        torch.nn.init.normal_(value, std=0.5)
    graph, path = graph_file(tmp_path)
    torch.save({"model_state_dict": model.state_dict(), "epoch": 3}, tmp_path / "w.pt")
    with torch.no_grad():
        wanted = model(torch.from_numpy(graph.features), torch.from_numpy(
            np.stack([graph.indices.astype(np.int64), row_numbers(graph.indptr)]))).numpy()
    np.testing.assert_allclose(predict(tmp_path, tmp_path / "w.pt", path), wanted,
                               atol=1e-4 * np.abs(wanted).max())


# -- names -----------------------------------------------------------------------------------------
def test_names_of_hand_written_models():
    rng = np.random.default_rng(0)
    tensors = {f"net.conv{k}.lin.weight": rng.normal(size=(4, 4)) for k in (1, 2, 10)}
    tensors |= {f"net.conv{k}.bias": np.full(4, float(k)) for k in (1, 2, 10)}
    found = from_theirs("w", tensors)
    assert [found.parameters[f"conv{k}.bias"][0]
            for k in (1, 2, 3)] == [1, 2, 10], "conv10 comes after conv2"
    np.testing.assert_array_equal(found.parameters["conv3.weight"],
                                  tensors["net.conv10.lin.weight"].T.astype(np.float32))
    without_bias = from_theirs("w", {"convs.0.lin.weight": np.ones((3, 5)),
                                     "convs.1.lin.weight": np.ones((2, 3))})
    assert not without_bias.parameters["conv2.bias"].any()


def gcn(**changes):
    tensors = {"convs.0.lin.weight": np.ones((8, 5)), "convs.0.bias": np.ones(8),
               "convs.1.lin.weight": np.ones((3, 8)), "convs.1.bias": np.ones(3)}
    return {name: value for name, value in {**tensors, **changes}.items() if value is not None}


@pytest.mark.parametrize("tensors, words", [
    (gcn(**{"convs.1.lin.weight": np.ones((3, 7))}), "takes 7"),
    (gcn(**{"convs.0.bias": np.ones(7)}), "conv1.bias"),
    (gcn(**{"convs.0.bias": np.full(8, np.nan)}), "NaN"),
    (gcn(**{"convs.0.attention": np.ones(8)}), "no layer that is known"),
    (gcn(**{"convs.0.bias": np.ones((8, 1))}), "dimensions"),
    (gcn(**{"convs.0.lin.weight": np.ones((8, 5), np.int64)}), "int64"),
    (gcn(**{"convs.2.lin_l.weight": np.ones((3, 3))}), "one kind"),
    ({"norms.0.weight": np.ones(3), "norms.0.bias": np.ones(3)}, "no graph"),
    ({"convs.0.weight1": np.ones((4, 4)), "lins.0.weight": np.ones((4, 5)),
      "lins.0.bias": np.ones(4)}, "expected two"),
    ({"convs.0.weight1": np.ones((4, 4)), "convs.0.weight2": np.ones((4, 4)),
      "lins.0.weight": np.ones((4, 5)), "lins.0.bias": np.ones(4),
      "lins.1.weight": np.ones((3, 4)), "lins.1.bias": np.ones(3)}, "weight2"),
    ({"layers.0.weight1": np.ones((4, 4)), "layers.0.bias": np.ones(4),
      "lins.0.weight": np.ones((4, 5)), "lins.0.bias": np.ones(4),
      "lins.1.weight": np.ones((3, 4)), "lins.1.bias": np.ones(3)}, "bias is not zero")])
def test_tensors_that_do_not_fit(tensors, words):
    with pytest.raises(FileError, match=words):
        from_theirs("w.safetensors", tensors)


def plain(*shapes, name="conv", bias=True, **others):
    """Layers conv1, conv2, ... with a weight and perhaps a bias."""
    tensors = {f"{name}{k}.weight": np.ones(shape) for k, shape in enumerate(shapes, 1)}
    tensors |= {f"{name}{k}.bias": np.ones(shape[-1]) for k, shape in enumerate(shapes, 1) if bias}
    return tensors | others


def square(*names):
    return {name: np.ones((4, 4)) if name.endswith("weight") else np.ones(4) for name in names}


@pytest.mark.parametrize("tensors, words", [
    (square("conv1.lin_rel.weight", "conv1.lin_rel.bias", "conv1.lin_root.weight"),
     "lin_rel.*no layer that is known"),
    (square("conv1.lin_query.weight", "conv1.lin_key.weight"), "no layer that is known"),
    (square("layers.0.fc_pool.weight", "layers.0.fc_neigh.weight", "layers.0.fc_self.weight"),
     "fc_pool"),
    (square("conv1.nn.0.weight", "conv1.nn.0.bias", "conv2.nn.0.weight"), "no layer that is known"),
    (square("lins.0.weight", "lins.0.bias", "lins.1.weight", "lins.1.bias"),
     "plain linear layers by their names"),
    ({"mlp.0.weight": np.ones((8, 5)), "mlp.2.weight": np.ones((3, 8))},
     "plain linear layers by their names"),
    (square("a.weight", "b.weight"), "may be DGL's GraphConv or a linear layer"),
    (square("conv1.lin_l.weight", "conv1.lin_l.bias", "conv1.lin_r.weight", "conv1.lin.weight",
            "conv1.lin.bias",
            "conv2.lin_l.weight", "conv2.lin_r.weight"), "project=True"),
    (square("conv1.lin.weight", "conv1.bias", "head.lin.weight"), "all or none"),
    (square("conv1.lin.weight", "conv1.bias", "pre.weight", "pre.bias"), "linear layers last"),
    (square("convs.0.weight", "convs.0.bias", "convs.1.lin.weight", "convs.1.bias"),
     "linear layers last"),
    (square("conv1.lin.weight", "conv1.bias", "lin1.weight", "lin1.bias", "lin2.weight",
            "lin2.bias"), "before or after"),
    (square("conv1.lin.weight", "conv2.lin.weight")
     | {"bns.0.weight": np.ones(4), "bns.0.bias": np.ones(4)}, "batch normalisation by its name"),
    (square("conv1.lin.weight", "conv2.lin.weight")
     | {f"norm.{name}": np.ones(4) for name in ("running_mean", "weight", "bias")},
     "no running_var"),
    (square("conv1.lin.weight", "conv2.lin.weight")
     | {f"norm.{name}": -np.ones(4) for name in ("running_mean", "running_var", "weight", "bias")},
     "expected variances"),
    (plain((5, 16), (16, 8), (8, 3)), "widths 8 and 16"),
    (plain((5, 8)) | {"conv3.weight": np.ones((9, 3))}, "takes 9"),
    ({"conv1.weight": np.ones(())}, "one or two dimensions"),
    ({"conv1.weight": np.ones(8)}, "no graph layers"),
    ({"conv1.weight": np.ones((5, 8)), "input.weight": np.ones((5, 8))}, "layers are missing"),
    ({"conv2.weight": np.ones((5, 8)), "conv2.weight_self": np.ones((5, 8))}, "layers are missing"),
    ({"convs.0.weight1": np.ones(()),
      **square("lins.0.weight", "lins.0.bias", "lins.1.weight", "lins.1.bias")}, "dimensions"),
    ({"convs.0.weight1": np.ones(4),
      **square("lins.0.weight", "lins.0.bias", "lins.1.weight", "lins.1.bias")}, "dimensions"),
    (plain((5, 3), bias=False) | {"conv1.bias": np.full(3, np.nan)}, "NaN"),
    (plain((5, 3)) | {"conv1.weight": np.ones((5, 3), np.int64)}, "int64"),
    ({"convs.0.lin.weight": np.full((3, 5), 1e300)}, r"numbers above 1e\+06")])
def test_what_is_not_clear_is_refused(tensors, words):
    with pytest.raises(FileError, match=words) as caught:
        from_theirs("w.safetensors", tensors)
    assert "expected" in str(caught.value)


def test_our_names_without_their_part():
    tensors = {"conv1.weight": np.ones((5, 4)), "conv1.weight_self": np.ones((5, 4)),
               "conv2": np.ones((4, 3))}
    with pytest.raises(FileError, match="expected"):
        from_theirs("w.safetensors", tensors, framework="hpcgcn")


def test_names_of_dgl_tutorials():
    found = from_theirs("w", plain((5, 8), (8, 3), bias=False))
    assert (found.framework, found.shape.model,
            found.shape.layers) == ("dgl", "gcn", 2) and not found.parameters["conv2.bias"].any()
    tensors = plain((8, 8)) | {"conv2.weight": np.full((8, 8), 2.0),
                               "conv10.weight": np.full((8, 8), 10.0)}
    assert [found[0, 0] for name, found in from_theirs("w", tensors).parameters.items()
            if name.endswith("weight")] == [1, 2, 10]
    headed = from_theirs("w", plain((5, 8), (8, 8))
                         | {"fc.weight": np.arange(24.0).reshape(3, 8), "fc.bias": np.ones(3)})
    assert headed.shape.linear_layers == 1 and headed.parameters["conv3.weight"].shape == (8, 3)


# -- files -----------------------------------------------------------------------------------------
def test_halves_and_files_without_an_ending(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from safetensors.torch import save_file
    _, path = graph_file(tmp_path)
    tensors = {"conv1.lin.weight": torch.randn(CLASSES, FEATURES).bfloat16(),
               "conv1.bias": torch.zeros(CLASSES).bfloat16()}
    save_file(tensors, tmp_path / "half.bin")
    torch.save({name: value.float() for name, value in tensors.items()}, tmp_path / "whole.ckpt")
    np.testing.assert_array_equal(predict(tmp_path, tmp_path / "half.bin", path),
                                  predict(tmp_path, tmp_path / "whole.ckpt", path))


# -- graphs ----------------------------------------------------------------------------------------
def test_directed_graphs_and_dgls_weights(tmp_path, capsys):
    from safetensors.numpy import save_file
    save_file({"layers.0.weight": np.ones((FEATURES, CLASSES), np.float32)},
              tmp_path / "w.safetensors")
    predict(tmp_path, tmp_path / "w.safetensors", graph_file(tmp_path)[1])
    graph = graph_file(tmp_path, directed=True)[1]
    assert main(["predict", "--weights", str(tmp_path / "w.safetensors"), graph, "-o",
                 str(tmp_path / "q.h5")]) == 2
    assert "out-degree" in capsys.readouterr().err and not (tmp_path / "q.h5").exists()
    assert main(["weights", "import", str(tmp_path / "w.safetensors"), "-o",
                 str(tmp_path / "run")]) == 0
    assert "for undirected graphs" in capsys.readouterr().err


@pytest.mark.parametrize("classes", [2, None])
def test_graphs_with_fewer_labels_than_the_model(tmp_path, classes):
    """A model is trained where labels are and used where there are none, or not all."""
    graph, path = graph_file(tmp_path)
    assert main(["train", path, "--epochs", "3", "--output", str(tmp_path), "--name", "run",
                 "--quiet", "--model", "gcn"]) == 0
    assert main(["predict", str(tmp_path / "run"), path, "--what", "logits", "-o",
                 str(tmp_path / "a.h5")]) == 0
    graph.labels = np.full(40, -1,
                           np.int32) if classes is None else np.minimum(graph.labels, classes - 1)
    graph.n_classes = classes or 1
    graph.split = np.full((1, 40), 0 if classes is None else 1, np.uint8)
    write_graph(tmp_path / "few.h5", graph)
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "few.h5"), "--what", "logits",
                 "-o", str(tmp_path / "b.h5")]) == 0
    assert main(["weights", "export", str(tmp_path / "run"), "-o",
                 str(tmp_path / "w.safetensors")]) == 0
    with h5py.File(tmp_path / "a.h5") as a, h5py.File(tmp_path / "b.h5") as b:
        np.testing.assert_array_equal(a["logits"][...], b["logits"][...])
        np.testing.assert_allclose(predict(tmp_path, tmp_path / "w.safetensors",
                                           str(tmp_path / "few.h5")), a["logits"][...], atol=1e-5)
    assert main(["evaluate", str(tmp_path / "run"), str(tmp_path / "few.h5")]) == 0


def test_a_model_of_many_labels_on_a_graph_without(tmp_path):
    graph, path = graph_file(tmp_path)
    graph.labels = (np.arange(120).reshape(40, CLASSES) % 2).astype(np.uint8)
    write_graph(path, graph)
    assert main(["train", path, "--epochs", "3", "--output", str(tmp_path), "--name", "run",
                 "--quiet"]) == 0
    bare = graph_file(tmp_path, labelled=False)[1]
    assert main(["predict", str(tmp_path / "run"), bare, "-o", str(tmp_path / "p.h5")]) == 0
    with h5py.File(tmp_path / "p.h5") as file:
        assert file["classes"].shape == (40, CLASSES)
