"""Of several ranks only the first writes for a tracker."""

import pytest
from graphs import random_graph
from launch import launch

from hpcgcn.graph.store import write_graph


def test_two_ranks_write_one_event_file(tmp_path):
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    write_graph(tmp_path / "g.h5", random_graph())
    launch(2, ["hpcgcn", "train", "g.h5", "--epochs", "2", "--hidden", "4", "--name", "r",
               "--tracker", "tensorboard"], cwd=tmp_path).check()
    assert len(list((tmp_path / "runs" / "tensorboard" / "r").iterdir())) == 1
