"""Resuming from what a crash, a full disk or another command left: nothing hangs, nothing is lost
that can be kept."""

import os

import numpy as np
import pytest
from many_runs import job, run_many

from hpcgcn.graph.generate import generate_sbm
from hpcgcn.graph.store import write_graph

pytestmark = [pytest.mark.mpi_skip, pytest.mark.timeout(600)]

SETTINGS = {"epochs": 12, "checkpoint_every": 7, "method": "pipegcn", "lr": 0.005}
# name: what differs in the command that resumes
CHANGES = {"intact": {}, "exchange-damaged": {}, "model-damaged": {}, "exchange-missing": {},
           "all-damaged": {}, "all-damaged-auto": {"resume": "auto"}, "other-model": {"hidden": 8},
           "smoothed": {"method": "pipegcn-gf"},
           "fed-back": {"codec": "4bit", "error_feedback": True},
           "no-longer-stale": {"method": "overlap"},
           "other-partition": {"partition_method": "random"}, "finished": {"epochs": 12},
           "keep-one": {"keep": 1}}


def damage(path):
    """Cut a file in half, as a full disk does."""
    with open(path, "r+b") as file:
        file.truncate(os.path.getsize(path) // 2)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """(what the first command left, what the second one left, the folder)."""
    folder = tmp_path_factory.mktemp("odd")
    write_graph(folder / "g.h5", generate_sbm(120, 8, 12, 4, seed=2))
    first = run_many(2, [job(name, folder / "g.h5", **SETTINGS) for name in CHANGES], folder)
    at = {name: folder / "runs" / name / "checkpoints" for name in CHANGES}
    damage(at["exchange-damaged"] / "epoch-000012" / "exchange-1-of-2.h5")
    damage(at["model-damaged"] / "epoch-000012" / "model.h5")
    damage(at["keep-one"] / "epoch-000012" / "model.h5")
    os.remove(at["exchange-missing"] / "epoch-000012" / "exchange-1-of-2.h5")
    for name in ("all-damaged", "all-damaged-auto"):
        for epoch in ("epoch-000007", "epoch-000012"):
            damage(at[name] / epoch / "model.h5")
    again = [job(name, folder / "g.h5",
                 **SETTINGS | {"epochs": 16, "resume": "must", "checkpoint_every": 14} | change)
             for name, change in CHANGES.items()]
    return first, run_many(2, again, folder), folder


@pytest.mark.parametrize("name", ["intact", "exchange-missing", "smoothed", "fed-back",
                                  "no-longer-stale", "other-partition"])
def test_goes_on_from_the_last_checkpoint(runs, name):
    first, second, _ = runs
    losses = second[name]["losses"]
    assert losses[:12] == first[name]["losses"] and len(losses) == 16
    assert abs(losses[12] - losses[11]) < 0.2, "the step is like any other"


@pytest.mark.parametrize("name", ["exchange-damaged", "model-damaged"])
def test_damaged_checkpoints_are_passed_over(runs, name):
    """From epoch 7 the same epochs follow again, to the same bits, and then those of the run that
    was not damaged."""
    first, second, _ = runs
    assert second[name]["losses"][:12] == first[name]["losses"]
    assert (second[name]["losses"] == second["intact"]["losses"]
            and second[name]["digest"] == second["intact"]["digest"])


def test_a_damaged_checkpoint_does_not_push_out_a_sound_one(runs):
    _, second, folder = runs
    assert second["keep-one"]["losses"] == second["intact"]["losses"]
    assert os.listdir(folder / "runs" / "keep-one" / "checkpoints") == ["epoch-000016"]


def test_without_any_sound_checkpoint_must_is_refused_and_auto_begins_anew(runs):
    first, second, _ = runs
    assert (second["all-damaged"]["error"] == "CheckpointError"
            and "no checkpoint" in second["all-damaged"]["message"])
    losses = second["all-damaged-auto"]["losses"]
    assert len(losses) == 16 and losses[:12] == first["all-damaged-auto"]["losses"]


def test_another_model_is_refused(runs):
    _, second, _ = runs
    assert (second["other-model"]["error"] == "CheckpointError"
            and "another --name" in second["other-model"]["message"])


def test_a_finished_run_is_left_as_it_is(runs):
    first, second, _ = runs
    assert second["finished"]["digest"] == first["finished"]["digest"]
    assert [row["seconds"]
            for row in second["finished"]["rows"]] == [row["seconds"]
                                                       for row in first["finished"]["rows"]]


def test_settings_that_are_not_stale_forget_nothing(runs):
    _, second, _ = runs
    assert np.mean([float(row["stale_share"])
                    for row in second["no-longer-stale"]["rows"][12:]]) == 0
