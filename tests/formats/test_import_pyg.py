"""What users of PyG have on disk: Data objects with masks of several kinds, halves, and processed
data sets."""

import numpy as np
import pytest
from refusals import refused

from hpcgcn.cli import main
from hpcgcn.errors import FileError
from hpcgcn.formats.torch_objects import array
from hpcgcn.graph.store import read_graph

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
geometric = pytest.importorskip("torch_geometric", reason="PyG is not installed")
from torch_geometric.data import Data, InMemoryDataset  # noqa: E402

PATH = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])       # 0 - 1 - 2
VALUES = torch.tensor([[1.0, 2.5], [3, 4], [5, -6]])
MASKS = {f"{name}_mask": torch.eye(3, dtype=torch.bool)[k]
         for k, name in enumerate(("train", "val", "test"))}


def imported(tmp_path, saved, *arguments):
    torch.save(saved, tmp_path / "d.pt")
    assert main(["import", str(tmp_path / "d.pt"), "-o", str(tmp_path / "g.h5"), *arguments]) == 0
    return read_graph(tmp_path / "g.h5")


def data(**fields):
    return Data(edge_index=PATH, x=torch.arange(6.0).reshape(3, 2), y=torch.tensor([0, 1, 1]),
                **fields)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float64, torch.int64])
def test_features_of_any_width(tmp_path, kind):
    graph = imported(tmp_path, Data(edge_index=PATH, x=VALUES.to(kind)))
    assert graph.features.tolist() == VALUES.to(kind).float().tolist()


def test_masks_of_one_split_and_of_several(tmp_path):
    assert imported(tmp_path, data(**MASKS)).split.tolist() == [[1, 2, 3]]
    several = {name: torch.stack([mask, mask.flip(0)], 1) for name, mask in MASKS.items()}
    assert imported(tmp_path, data(**several)).split.tolist() == [[1, 2, 3], [3, 2, 1]]


def test_one_test_mask_for_several_splits(tmp_path):
    """WikiCS has its masks like this."""
    train, val, test = MASKS.values()
    masks = {"train_mask": torch.stack([train, val], 1), "val_mask": torch.stack([val, train], 1),
             "test_mask": test}
    assert imported(tmp_path, data(**masks)).split.tolist() == [[1, 2, 3], [2, 1, 3]]


@pytest.mark.parametrize("missing, wanted, note", [
    (["val_mask"], [1, 0, 3], "no val_mask in d.pt: nothing to validate on"),
    (["val_mask", "test_mask"], [1, 0, 0], "no val_mask and no test_mask in d.pt: nothing to "
                                           "validate on, nothing to test on"),
    (["train_mask"], [0, 2, 3], "no train_mask in d.pt: nothing to train on")])
def test_a_mask_that_is_not_there_is_empty(tmp_path, capsys, missing, wanted, note):
    saved = data(**{name: mask for name, mask in MASKS.items() if name not in missing})
    assert imported(tmp_path, saved).split.tolist() == [wanted]
    assert note in capsys.readouterr().err


@pytest.mark.parametrize(
    "masks", [{"train_mask": MASKS["train_mask"]}, {"train_mask": torch.tensor([0, 2])},
              dict.fromkeys(MASKS, MASKS["val_mask"]), {"train_mask": "the first half"}])
@pytest.mark.parametrize("rule", ["random", "per-class", "none"])
def test_masks_are_not_looked_at_for_another_split(tmp_path, capsys, masks, rule):
    found = imported(tmp_path, data(**masks), "--split", rule)
    assert found.split.tolist() == imported(tmp_path, data(), "--split", rule).split.tolist()
    assert "mask" not in capsys.readouterr().err


@pytest.mark.parametrize("fields, note", [
    ({"edge_attr": torch.ones(4, 3)}, "edge weights are not used: edge_attr of d.pt"),
    ({"edge_attr": None}, None)])
def test_features_of_edges_are_passed_over_aloud(tmp_path, capsys, fields, note):
    imported(tmp_path, data(**fields))
    shown = capsys.readouterr().err
    assert note in shown if note else "weights" not in shown


COMPLEX = torch.tensor([[1 + 2j, 3], [4, 5j], [6, 7]])


# some of these kinds are on trial, some on their way out
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("make, kind", [
    (lambda: VALUES.to(torch.float8_e5m2), "float8"),
    (lambda: torch.quantize_per_tensor(VALUES, 0.5, 0, torch.qint8), "qint8"),
    (lambda: VALUES.to("meta"), "meta"), (lambda: VALUES.bfloat16().to("meta"), "meta"),
    (lambda: COMPLEX, "complex64"),
    (lambda: COMPLEX.conj(), "complex64"), (lambda: COMPLEX.conj().imag, "float32"),
    (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(1)]), "nested"),
    (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(1)], layout=torch.jagged),
     "nested")])
def test_tensors_without_plain_numbers(make, kind):
    with pytest.raises(FileError, match=rf"x is a tensor of another kind \(.*{kind}.*\); "
                                        r"expected a plain tensor"):
        array("x", make())


@pytest.mark.parametrize("n_nodes", [-3, 0])
def test_a_number_of_nodes_that_cannot_be(tmp_path, capsys, n_nodes):
    torch.save({"edge_index": PATH, "num_nodes": n_nodes}, tmp_path / "d.pt")
    assert f"num_nodes is {n_nodes}; expected" in refused(tmp_path, capsys, tmp_path / "d.pt")


def test_numpy_arrays_among_the_tensors(tmp_path, capsys):
    torch.save(data(years=np.arange(3)), tmp_path / "d.pt")
    message = refused(tmp_path, capsys, tmp_path / "d.pt")
    assert "it asks for numpy." in message and "save tensors in place of NumPy arrays" in message


class Made(InMemoryDataset):
    """A data set as users write them: what `process` saves is what is imported."""

    graphs: list = []
    processed_file_names = ["data.pt"]

    def process(self):
        self.save(self.graphs, self.processed_paths[0])


def test_a_processed_data_set(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Made, "graphs", [data(**MASKS)])
    path = Made(str(tmp_path / "one")).processed_paths[0]
    assert main(["import", path, "-o", str(tmp_path / "g.h5")]) == 0
    assert read_graph(tmp_path / "g.h5").indices.tolist() == [1, 0, 2, 1]
    monkeypatch.setattr(Made, "graphs", [data(), data()])
    capsys.readouterr()
    assert "2 graphs" in refused(tmp_path, capsys, Made(str(tmp_path / "two")).processed_paths[0])


def test_an_object_without_its_storage(tmp_path, capsys):
    """As a flipped bit in an attribute's name leaves it: PyG raises errors of its own."""
    damaged = data()
    del damaged.__dict__["_store"]
    torch.save(damaged, tmp_path / "d.pt")
    assert "d.pt is damaged" in refused(tmp_path, capsys, tmp_path / "d.pt")


@pytest.mark.parametrize("fields", [{"edge_weight": torch.ones(4) / 2},
                                    {"edge_attr": torch.ones(4, 1) / 2}])
def test_weights_of_edges(tmp_path, fields):
    assert imported(tmp_path, data(**fields)).edge_weights.tolist() == [0.5] * 4
    assert imported(tmp_path, data(**fields), "--no-edge-weights",
                    "--overwrite").edge_weights is None
