"""What tests of bad input share: a sound graph in any format, and the one message of an import that
is refused."""

import numpy as np
import pytest
from graphs import random_graph

from hpcgcn.cli import main
from hpcgcn.formats.table import write_as
from hpcgcn.graph.data import TEST, VAL

FOLDERS = ("planetoid", "ogb", "graphsaint", "dgl-reddit", "csv", "mtx")
FILES = {"npz": ".npz", "npz-heterophilous": ".npz", "npz-gnn-benchmark": ".npz", "pyg": ".pt"}


def refused(tmp_path, capsys, *arguments):
    """The one message of an import that fails; nothing is left beside the sources."""
    output = tmp_path / "results" / "g.h5"
    output.parent.mkdir(exist_ok=True)
    assert main(["import", *map(str, arguments), "-o", str(output)]) == 2
    message = capsys.readouterr().err
    assert (message.startswith("hpcgcn: ") and message.count("\n") == 1
            and "Traceback" not in message), message
    assert "expected" in message, message
    assert list(output.parent.iterdir()) == []
    return message


def sound(tmp_path, format_name):
    """A sound graph in the given format."""
    split = np.full((1, 41), VAL, np.uint8)
    split[:, 30:], split[:, :10] = TEST, 1
    path = tmp_path / ("sound" + FILES.get(format_name, ""))
    if format_name == "pyg":
        pytest.importorskip("torch_geometric", reason="PyG is not installed")
    write_as(format_name, str(path), random_graph(split=split))
    return path
