"""Our HDF5 files by kind: how a copy is damaged, and all that is then tried with it."""

import os
import re
import shutil

import h5py
import pytest

from hpcgcn.cli import main
from hpcgcn.errors import FileError, HpcgcnError
from hpcgcn.graph.store import header, read_graph, read_part
from hpcgcn.train import checkpoint

KINDS = ("graph", "partition", "model", "exchange", "predictions")


def placed(kind, sound, folder):
    """A copy of a sound file, in a folder where the commands find what else they need."""
    shutil.copy(sound["graph"], folder / "g.h5")
    if kind not in ("model", "exchange"):
        shutil.copy(sound[kind], folder / "damaged.h5")
        return folder / "damaged.h5"
    shutil.copytree(sound["model"].parents[2], folder / "run")
    place = folder / "run" / "checkpoints" / "epoch-000002"
    if kind == "exchange":
        shutil.copy(sound[kind], place)
    return place / ("model.h5" if kind == "model" else sound[kind].name)


# -- what is done with a file of each kind, as a user or a script would


def read_all_parts(path):
    for rank in range(int(header(path)["n_parts"])):
        read_part(path, rank, 1)


def newest_is_older(path):
    """A damaged checkpoint is passed over for the one before it."""
    found = checkpoint.newest(str(path.parents[1]))
    assert found.endswith("epoch-000001"), found
    raise FileError("passed over")


LIBRARY = {
    "graph": [read_graph],
    "partition": [read_graph, read_all_parts],
    "model": [lambda path: checkpoint.load(str(path.parent)), newest_is_older],
    "exchange": [lambda path: checkpoint.load_exchanges(str(path.parent), 0, 1), newest_is_older],
    "predictions": [],
}

TRAIN = ["--epochs", "1", "--hidden", "4", "--quiet"]
COMMANDS = {
    "graph": lambda path: [
        ["partition", path, "-n", "2"],
        ["train", path, *TRAIN, "--output", f"{path}-runs"],
    ],
    "partition": lambda path: [["train", path, *TRAIN, "--output", f"{path}-runs"]],
    "model": lambda path: [
        ["evaluate", os.path.dirname(path), os.path.join(os.path.dirname(path), "../../../g.h5")]
    ],
    "exchange": lambda path: [],
    "predictions": lambda path: [],
}


def assert_refused(kind, path, capsys, mentions, commands=True):
    """info names it, the library raises our errors, commands end with 2 and one line."""
    assert main(["info", str(path)]) == 2
    shown = "".join(capsys.readouterr())
    assert re.search(mentions, shown), shown
    for use in LIBRARY[kind]:
        with pytest.raises(HpcgcnError):
            use(path)
    capsys.readouterr()
    for command in COMMANDS[kind](str(path)) if commands else []:
        assert main(command) == 2, command
        err = capsys.readouterr().err
        assert err.startswith("hpcgcn: ") and err.count("\n") == 1 and "Traceback" not in err, err
    assert not os.path.exists(f"{path}-runs")


# -- how a copy is damaged


def with_data(array):
    """Another array."""

    def change(file, name, old, shape):
        file.create_dataset(name, data=array)

    return change


def damaged(path, name, change):
    """Put something else in the place of a dataset."""
    with h5py.File(path, "r+") as file:
        old = file[name][...]
        del file[name]
        change(file, name, old, old.shape)


def some_of(names, turn, most=3):
    """A few of the names, others at every turn."""
    return [names[(turn * most + k) % len(names)] for k in range(min(most, len(names)))]
