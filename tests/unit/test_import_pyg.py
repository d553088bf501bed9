"""What users of PyG have on disk: Data objects with masks of several kinds, halves, and processed data sets."""

import pytest
from refusals import refused

from hpcgcn.cli import main
from hpcgcn.graph.store import read_graph

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
geometric = pytest.importorskip("torch_geometric", reason="PyG is not installed")
from torch_geometric.data import Data, InMemoryDataset  # noqa: E402

PATH = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])       # 0 - 1 - 2
VALUES = torch.tensor([[1.0, 2.5], [3, 4], [5, -6]])
MASKS = {f"{name}_mask": torch.eye(3, dtype=torch.bool)[k] for k, name in enumerate(("train", "val", "test"))}


def imported(tmp_path, saved):
    torch.save(saved, tmp_path / "d.pt")
    assert main(["import", str(tmp_path / "d.pt"), "-o", str(tmp_path / "g.h5")]) == 0
    return read_graph(tmp_path / "g.h5")


def data(**fields):
    return Data(edge_index=PATH, x=torch.arange(6.0).reshape(3, 2), y=torch.tensor([0, 1, 1]), **fields)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float64, torch.int64])
def test_features_of_any_width(tmp_path, kind):
    graph = imported(tmp_path, Data(edge_index=PATH, x=VALUES.to(kind)))
    assert graph.features.tolist() == VALUES.to(kind).float().tolist()


def test_masks_of_one_split_and_of_several(tmp_path):
    assert imported(tmp_path, data(**MASKS)).split.tolist() == [[1, 2, 3]]
    several = {name: torch.stack([mask, mask.flip(0)], 1) for name, mask in MASKS.items()}
    assert imported(tmp_path, data(**several)).split.tolist() == [[1, 2, 3], [3, 2, 1]]


def test_a_mask_alone_is_refused(tmp_path, capsys):
    torch.save(data(train_mask=MASKS["train_mask"]), tmp_path / "d.pt")
    assert "train_mask alone" in refused(tmp_path, capsys, tmp_path / "d.pt")


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
