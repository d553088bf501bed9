"""A resumed run goes on with its momentum; another optimiser begins with none."""

import numpy as np
import pytest
from small_graphs import small_graph

from hpcgcn import Config, train_model, write_graph


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, name):
    write_graph(str(tmp_path / "g.h5"), small_graph())

    def run(folder, **changes):
        return train_model(str(tmp_path / "g.h5"), Config(**{
            "output": str(tmp_path), "name": folder, "epochs": 12, "hidden": 8, "eval_every": 3,
            "layers": 2, "weight_decay": 0.01, "optimiser": name, "quiet": True, "threads": 1,
            **changes})).summary
    straight = run("straight")
    run("cut", epochs=6)
    assert run("cut", resume="must")["final"] == straight["final"]
    rows = [(tmp_path / folder / "metrics.csv").read_text().splitlines()
            for folder in ("straight", "cut")]
    assert [row.split(",")[:2] for row in rows[0]] == [row.split(",")[:2] for row in rows[1]]


def test_another_optimiser_starts_its_moments_anew(tmp_path, caplog):
    write_graph(str(tmp_path / "g.h5"), small_graph())
    settings = {"output": str(tmp_path), "name": "run", "hidden": 8, "layers": 2, "threads": 1}
    train_model(str(tmp_path / "g.h5"), Config(optimiser="sgd", epochs=4, **settings))
    with caplog.at_level("INFO", logger="hpcgcn"):
        done = train_model(str(tmp_path / "g.h5"), Config(epochs=8, resume="must", **settings))
    assert "adam starts anew after sgd" in caplog.text
    assert np.isfinite(done.summary["final"]["train"])
