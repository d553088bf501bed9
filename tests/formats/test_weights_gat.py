"""Weights of the GATConv of PyG and of DGL in and out: logits on 1 and 3 ranks, and refusals."""


import numpy as np
import pytest
from test_weights import (  # noqa: F401
    assert_close,
    assert_pyg_logits_here,
    graph,
    graph_file,
    predicted,
    pyg_logits,
)

from hpcgcn.cli import main
from hpcgcn.errors import FileError
from hpcgcn.graph.csr import row_numbers
from hpcgcn.nn.models import Shape, parameter_specs
from hpcgcn.weights.files import read_weights, write_weights
from hpcgcn.weights.modules import sort_modules

pytestmark = [pytest.mark.one_machine, pytest.mark.mpi_skip]
FEATURES, CLASSES, HEADS, COLUMNS = 5, 3, 4, 2


def pyg_gat(layers=3, output_heads=2, concat_last=False):
    """A stack as PyG's users write it."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    nn = pytest.importorskip("torch_geometric.nn", reason="PyG is not installed")

    class Stack(torch.nn.Module):
        def __init__(self):
            super().__init__()
            widths = [FEATURES, *[HEADS * COLUMNS] * (layers - 1)]
            self.convs = torch.nn.ModuleList(
                [nn.GATConv(width, COLUMNS, HEADS) for width in widths[:-1]]
                + [nn.GATConv(widths[-1], CLASSES, output_heads, concat=concat_last)])

        def forward(self, x, edges):
            for conv in self.convs[:-1]:
                x = conv(x, edges).relu()
            return self.convs[-1](x, edges)

    torch.manual_seed(0)
    model = Stack().eval()
    for value in model.parameters():
        torch.nn.init.normal_(value, std=0.5)
    return model


def test_a_pyg_model_gives_its_logits_here(graph, graph_file, tmp_path):  # noqa: F811
    assert_pyg_logits_here(pyg_gat(), graph, graph_file, tmp_path)


def test_a_model_trained_here_gives_its_logits_in_pyg(graph, graph_file, tmp_path):  # noqa: F811
    import torch
    from safetensors.torch import load_file
    run = tmp_path / "run"
    assert main(["train", str(graph_file), "--model", "gat", "--layers", "3", "--hidden", "8",
                 "--heads", "4", "--output-heads", "2", "--epochs", "3", "--quiet",
                 "--output", str(tmp_path), "--name", "run"]) == 0
    assert main(["weights", "export", str(run), "-o", str(tmp_path / "w.safetensors"),
                 "--which", "last"]) == 0
    assert main(["predict", str(run), str(graph_file), "--what", "logits", "--which", "last", "-o",
                 str(tmp_path / "p.h5")]) == 0
    model = pyg_gat()
    model.load_state_dict(load_file(tmp_path / "w.safetensors"))
    with torch.no_grad():
        assert_close(predicted(tmp_path / "p.h5"), pyg_logits(model, graph))


@pytest.mark.parametrize("output_heads", [1, 2])
def test_dgl_layers_give_the_same_logits(output_heads, graph, graph_file, tmp_path):  # noqa: F811
    """Their biases by head, too: the user takes the mean of the last layer's heads."""
    dgl = pytest.importorskip("dgl", reason="DGL is not installed")
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from safetensors.torch import load_file, save_file
    widths = [FEATURES, *[HEADS * COLUMNS] * 2]
    stack = torch.nn.Module()
    stack.layers = torch.nn.ModuleList(
        [dgl.nn.GATConv(width, COLUMNS, HEADS) for width in widths[:-1]]
        + [dgl.nn.GATConv(widths[-1], CLASSES, output_heads)])
    torch.manual_seed(0)
    for value in stack.parameters():
        torch.nn.init.normal_(value, std=0.5)
    edges = [torch.from_numpy(np.array(ends, np.int64))
             for ends in (graph.indices, row_numbers(graph.indptr))]
    made = dgl.add_self_loop(dgl.graph(tuple(edges), num_nodes=graph.n_nodes))

    def logits():
        x = torch.from_numpy(graph.features)
        with torch.no_grad():
            for layer in stack.layers[:-1]:
                x = layer(made, x).flatten(1).relu()
            return stack.layers[-1](made, x).mean(1).numpy()

    def ours(weights) -> np.ndarray:
        assert main(["predict", "--weights", str(weights), str(graph_file), "--what", "logits",
                     "-o", str(tmp_path / "p.h5"), "--overwrite"]) == 0
        return predicted(tmp_path / "p.h5")

    wanted = logits()
    save_file(stack.state_dict(), tmp_path / "w.safetensors")
    assert_close(ours(tmp_path / "w.safetensors"), wanted)
    # Ours there: what was read is written under their names, and loads strictly.
    found, _ = read_weights(tmp_path / "w.safetensors")
    write_weights(tmp_path / "again.safetensors", "dgl", found.shape, found.parameters)
    stack.load_state_dict(load_file(tmp_path / "again.safetensors"), strict=True)
    assert_close(logits(), wanted)


def test_a_linear_layer_called_fc_is_one():
    parts = {"convs.0.lin.weight": (8, 5), "convs.0.att_src": (1, 4, 2),
             "convs.0.att_dst": (1, 4, 2), "convs.0.bias": (8,), "fc.weight": (3, 8)}
    modules = sort_modules("w", {name: np.zeros(shape, np.float32)
                                 for name, shape in parts.items()})
    assert set(modules) == {"convs.0", "fc"} and set(modules["fc"]) == {"weight"}


@pytest.mark.parametrize("framework", ["pyg", "dgl", "hpcgcn"])
@pytest.mark.parametrize("layers, norm", [(1, False), (2, True), (3, False)])
def test_there_and_back(framework, layers, norm, tmp_path):
    shape = Shape("gat", 5, 3, layers, 8 if layers > 1 else 1, norm=norm,
                  heads=4 if layers > 1 else 1, output_heads=2)
    rng = np.random.default_rng(0)
    values = {spec.name: rng.normal(size=spec.shape).astype(np.float32)
              for spec in parameter_specs(shape)}
    write_weights(tmp_path / "w.safetensors", framework, shape, values)
    found, _ = read_weights(tmp_path / "w.safetensors")
    assert found.shape == shape
    for name, value in values.items():
        np.testing.assert_array_equal(found.parameters[name], value)


def test_a_last_layer_that_concatenates_is_refused(tmp_path):
    from safetensors.torch import save_file
    save_file(pyg_gat(concat_last=True).state_dict(), tmp_path / "w.safetensors")
    with pytest.raises(FileError, match="conv3.bias"):
        read_weights(tmp_path / "w.safetensors")
