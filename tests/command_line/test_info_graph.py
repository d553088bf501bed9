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
    graph = edges_graph(6, [0, 1, 2, 3], [1, 2, 0, 4],
                        labels=np.array([0, 0, 1, 1, -1, 1], np.int32), n_classes=2,
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
    assert image.read_bytes()[:4] == {"png": b"\x89PNG",
                                      "svg": b"<?xm"}[ending] and image.stat().st_size > 5000
    capsys.readouterr()
    assert main(["info", str(tmp_path / "g.h5"), "--plot", str(tmp_path / "no" / "g.png")]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_directed_graphs_have_in_degrees(tmp_path, capsys):
    # 0 -> 1 -> 2, and 3 alone: 0 has no in-neighbour, but is not isolated.
    write_graph(tmp_path / "g.h5", edges_graph(4, [0, 1], [1, 2], directed=True))
    contents = contents_of(tmp_path / "g.h5", capsys)
    assert contents["isolated_nodes"] == 1 and contents["degree_histogram"] == [[0, 0, 2],
                                                                                [1, 1, 2]]
    assert main(["info", str(tmp_path / "g.h5")]) == 0
    shown = capsys.readouterr().out
    assert "in-degree  " in shown and "\nin-degrees\n" in shown
    write_graph(tmp_path / "g.h5", edges_graph(4, [0, 1], [1, 2]))
    assert main(["info", str(tmp_path / "g.h5")]) == 0
    assert "in-degree" not in capsys.readouterr().out


@pytest.mark.parametrize("name, words", [("g", "the ending is missing"),
                                         ("g.txt", "the ending .txt is not known")])
def test_a_picture_of_no_known_kind(tmp_path, capsys, name, words):
    write_graph(tmp_path / "g.h5", random_graph())
    assert main(["info", str(tmp_path / "g.h5"), "--plot", str(tmp_path / name)]) == 2
    shown = capsys.readouterr()
    assert words in shown.err and ".png, .pdf or .svg" in shown.err and not shown.out


def drawn(tmp_path, monkeypatch, graph):
    """The three fields of the picture of a graph."""
    plt = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed")
    monkeypatch.setattr(plt, "close", lambda figure: None)
    write_graph(tmp_path / "g.h5", graph)
    assert main(["info", str(tmp_path / "g.h5"), "--plot", str(tmp_path / "g.svg")]) == 0
    figure = plt.gcf()
    figure.canvas.draw()
    monkeypatch.undo()
    plt.close(figure)
    return figure.axes


def test_what_the_picture_shows(tmp_path, monkeypatch):
    degrees, classes, words = drawn(tmp_path, monkeypatch,
                                    edges_graph(4, [0, 1], [1, 2], directed=True))
    assert degrees.get_ylim()[0] == 0.5 and degrees.get_title() == "in-degree distribution"
    assert all(tick == int(tick) for tick in classes.get_xticks())
    assert (classes.get_legend().get_window_extent().y1
            < classes.get_window_extent().y0), "the legend is below the bars"
    assert "mean in-degree" in words.texts[0].get_text()


def test_no_labels_in_the_picture(tmp_path, monkeypatch):
    bare = edges_graph(4, [0, 1], [1, 2], labels=np.full(4, -1, np.int32),
                       split=np.zeros((1, 4), np.uint8))
    _, classes, _ = drawn(tmp_path, monkeypatch, bare)
    assert [text.get_text() for text in classes.texts] == ["no labels"] and not classes.axison


def test_bars():
    assert text.bars([("a", 100), ("long", 1), ("c", 0)],
                     width=10).splitlines() == ["     a  100  ##########", "  long    1  .",
                                                "     c    0"]
