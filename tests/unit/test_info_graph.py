"""What `hpcgcn info` counts and draws, against counting by hand."""

import json

import numpy as np
import pytest
from graphs import edges_graph, random_graph

from hpcgcn.cli import main, text
from hpcgcn.graph.store import write_graph


def contents_of(path, capsys):
    assert main(["info", str(path), "--json"]) == 0
    return json.loads(capsys.readouterr().out)["contents"]


def test_homophily_degrees_components_and_splits(tmp_path, capsys):
    # A triangle of classes 0, 0, 1, a pair of class 1 and one node alone; node 4 has no label.
    graph = edges_graph(6, [0, 1, 2, 3], [1, 2, 0, 4], labels=np.array([0, 0, 1, 1, -1, 1], np.int32), n_classes=2,
                        split=np.array([[1, 2, 3, 1, 0, 3]], np.uint8))
    write_graph(tmp_path / "g.h5", graph)
    contents = contents_of(tmp_path / "g.h5", capsys)
    assert contents["degree_histogram"] == [[0, 0, 1], [1, 1, 2], [2, 3, 3]]
    assert contents["components"] == {"count": 3, "largest": 3}
    assert contents["homophily"]["edges"] == pytest.approx(2 / 6)
    assert contents["homophily"]["expected"] == pytest.approx((4 / 6) ** 2 + (2 / 6) ** 2)
    assert contents["split_by_class"] == {"train": [1, 1], "val": [1, 0], "test": [0, 2]}


def test_a_partition_file_tells_the_same(tmp_path, capsys):
    graph = random_graph()
    write_graph(tmp_path / "g.h5", graph)
    whole = contents_of(tmp_path / "g.h5", capsys)
    assert main(["partition", str(tmp_path / "g.h5"), "-n", "3"]) == 0
    capsys.readouterr()
    parts = contents_of(tmp_path / "g-3.h5", capsys)
    assert {name: parts[name] for name in whole} == whole
    degrees = np.diff(graph.indptr)
    for low, high, count in whole["degree_histogram"]:
        assert count == ((degrees >= low) & (degrees <= high)).sum()


def test_the_picture_in_text(tmp_path, capsys):
    write_graph(tmp_path / "g.h5", random_graph())
    assert main(["info", str(tmp_path / "g.h5")]) == 0
    shown = capsys.readouterr().out
    for words in ("degrees\n", "classes\n", "homophily", "components", "####"):
        assert words in shown


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_picture_as_a_file(tmp_path, capsys, ending):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    write_graph(tmp_path / "g.h5", random_graph(labels=np.ones((41, 3), np.uint8)))
    image = tmp_path / f"g.{ending}"
    assert main(["info", str(tmp_path / "g.h5"), "--plot", str(image)]) == 0
    assert image.read_bytes()[:4] == {"png": b"\x89PNG", "svg": b"<?xm"}[ending] and image.stat().st_size > 5000
    capsys.readouterr()
    assert main(["info", str(tmp_path / "g.h5"), "--plot", str(tmp_path / "no" / "g.png")]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_bars():
    assert text.bars([("a", 100), ("long", 1), ("c", 0)], width=10).splitlines() == ["     a  100  ##########", "  long    1  .",
                                                                                     "     c    0"]
