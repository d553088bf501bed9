"""train --fast-check: every step of a run is tried with the given settings, and no result is
kept."""

import pytest
from graphs import random_graph
from launch import launch

from hpcgcn.cli import main
from hpcgcn.graph.store import write_graph

STEPS = ["train", "resume", "evaluate", "predict", "report"]


@pytest.fixture
def graph(tmp_path):
    write_graph(tmp_path / "g.h5", random_graph())
    return tmp_path / "g.h5"


def steps_of(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines() if " works " in line and " s  " in line]


def test_all_steps_are_told_and_nothing_is_left(tmp_path, graph, capsys):
    assert main(["train", str(graph), "--fast-check", "--hidden", "4", "--epochs", "500",
                 "--output", str(tmp_path / "runs")]) == 0
    told = capsys.readouterr().out
    assert steps_of(told) == STEPS and "went on to epoch 2" in told
    assert "everything works on 1 rank" in told
    assert [path.name for path in tmp_path.iterdir()] == ["g.h5"]


@pytest.mark.parametrize("flags", [["--method", "sylvie-a"], ["--model", "gat", "--heads", "2"],
                                   ["--method", "mixgcn"]])
def test_ranks_try_the_same_settings(tmp_path, graph, flags):
    done = launch(2, ["hpcgcn", "train", str(graph), "--fast-check", "--hidden", "4", *flags],
                  cwd=tmp_path).check()
    assert steps_of(done.stdout) == STEPS
    assert not (tmp_path / "runs").exists()
    assert {path.name for path in tmp_path.iterdir()} <= {"g.h5", "g-2.h5"}


def test_the_step_that_fails_is_named(tmp_path, graph, capsys):
    assert main(["train", str(graph), "--fast-check", "--class-weights", "1,2,3,4,5,6,7,8,9",
                 "--output", str(tmp_path / "runs")]) == 2
    told = capsys.readouterr()
    assert "train     FAILED" in told.out and "class_weights has 9 numbers" in told.err
    assert [path.name for path in tmp_path.iterdir()] == ["g.h5"]
