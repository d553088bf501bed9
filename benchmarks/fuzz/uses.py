"""What a user does with an input of each kind: the commands of hpcgcn, one after the other, in this
process.

A use ends with `accepted`, or raises: HpcgcnError's message is kept by the command itself as a
refusal, an input that was called sound and cannot be used is a `Contradiction`, and every other
exception is foreign.
"""

from __future__ import annotations

import contextlib
import glob
import io
import json
import os
import unicodedata

import numpy as np

from fuzz.change_hdf5 import FITTED
from fuzz.sound_files import (
    N_CLASSES,
    N_FEATURES,
    RESUME_FLAGS,
    RUNS,
    TRAIN_FLAGS,
    parameters_after,
)

MOST_MESSAGE = 2000  # characters


class Refused(Exception):
    """The input was refused with a message of ours."""


class Contradiction(Exception):
    """The input was called sound, and then could not be used; or gave another result than the sound
    one."""


class BadMessage(Exception):
    """A message that is too long, of several lines, or has characters that a terminal obeys."""


def hpcgcn(*arguments: str) -> str:
    """Run a command; its output, or Refused."""
    from hpcgcn.cli import main

    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([str(argument) for argument in arguments])
    except SystemExit as stop:
        code = stop.code
    check_printed(out.getvalue(), err.getvalue())
    if code:
        raise Refused(err.getvalue().strip() or out.getvalue().strip()[-300:])
    return out.getvalue()


def check_printed(out: str, err: str):
    """No text of a file may steer the terminal, and messages are short."""
    for line in (out + err).split("\n"):
        wrong = next(
            (c for c in line if c != "\t" and unicodedata.category(c) in ("Cc", "Cf", "Cs")), None
        )
        if wrong:
            raise BadMessage(f"prints the character {wrong!r}: {line[:100]!r}")
    for line in err.splitlines():
        if len(line) > MOST_MESSAGE:
            raise BadMessage(f"a message of {len(line)} characters: {line[:100]!r}")
    if "Traceback" in err:
        raise BadMessage("a traceback")


@contextlib.contextmanager
def sound(what: str):
    """From here on the input is known to be sound: a refusal contradicts that."""
    try:
        yield
    except Refused as error:
        raise Contradiction(f"{what}: {error}") from None


# -- graphs and partitions -------------------------------------------------------------------------


def graph(folder: str, changes: str):
    path = os.path.join(folder, "g.h5")
    head = info(path, changes)
    with sound("info says sound"):
        use_graph(folder, path, head, changes)


def info(path: str, changes: str) -> dict:
    """The header of a file that is called sound; of some files info is tried as text, too."""
    if len(changes) % 3 == 0:
        hpcgcn("info", path)
    return json.loads(hpcgcn("info", path, "--json"))["header"]


def use_graph(folder: str, path: str, head: dict, changes: str):
    """Partition, train and predict; without labelled training nodes there is nothing to train
    on."""
    n_parts = 2 if head["n_nodes"] > 1 else 1
    hpcgcn("partition", path, "-n", n_parts, "-o", os.path.join(folder, "parts.h5"), "--method",
           "metis")
    if head["split_counts"][0]["train"]:
        train_and_predict(folder, path, changes)


def train_and_predict(folder: str, path: str, changes: str):
    hpcgcn("train", path, *TRAIN_FLAGS, "--output", os.path.join(folder, "runs"), "--name", "run")
    output = ["p.csv"] if len(changes) % 2 else ["p.h5", "--what", "logits"]
    hpcgcn("predict", os.path.join(folder, "runs", "run"), path, "-o",
           os.path.join(folder, output[0]), *output[1:])


def partition(folder: str, changes: str):
    from hpcgcn.errors import HpcgcnError
    from hpcgcn.graph.store import read_graph, read_part, write_graph

    path = os.path.join(folder, "g.h5")
    head = info(path, changes)
    with sound("info says sound"):
        try:
            read_graph(path)
            for rank in range(head["n_parts"]):
                read_part(path, rank, head["n_parts"])
        except HpcgcnError as error:
            raise Refused(str(error)) from None
        if head["n_parts"] == 1 and head["split_counts"][0]["train"]:
            train_and_predict(folder, path, changes)
        elif head["split_counts"][0]["train"]:
            # One process stands for the ranks: what the parts hold, as one graph.
            whole = os.path.join(folder, "whole.h5")
            write_graph(whole, read_graph(path))
            train_and_predict(folder, whole, changes)


# -- runs ------------------------------------------------------------------------------------------


def checkpoint(folder: str, changes: str):
    """A damaged checkpoint is refused or an older one is used: the logits are those of one of the
    two that were saved."""
    run, path, logits = (os.path.join(folder, name) for name in ("run", "g.h5", "p.h5"))
    verdicts = {
        name: said_sound(name)
        for name in sorted(glob.glob(os.path.join(run, "checkpoints", "*", "*.h5")))
    }
    refused = []
    for arguments in (
        ("evaluate", run, path),
        ("predict", run, path, "-o", logits, "--what", "logits"),
        ("weights", "export", run, "-o", os.path.join(folder, "w.safetensors"), "--to", "hpcgcn"),
        ("train", path, *resume_flags(run, changes)),
    ):
        try:
            hpcgcn(*arguments)
        except Refused as error:
            refused.append(f"{arguments[0]}: {error}")
    if FITTED not in changes:
        if os.path.exists(logits) and not _as_saved(folder, logits):
            raise Contradiction("predict: other logits than those of any checkpoint")
        if not any(words.startswith("train") for words in refused):
            _check_resumed(folder, run)
    if refused and verdicts and all(verdicts.values()):
        raise Contradiction(f"info says sound: {refused[0]}")
    if refused:
        raise Refused(refused[0])


def _check_resumed(folder: str, run: str):
    """Training goes on to where it would have led without the damage."""
    found = parameters_after(run)
    if not any(np.array_equal(found, np.load(known))
               for known in glob.glob(os.path.join(folder, "resumed-*.npy"))):
        raise Contradiction("train: other parameters than from any checkpoint without damage")


def _as_saved(folder: str, logits: str) -> bool:
    found = logits_of(logits)
    return any(
        np.array_equal(found, logits_of(known))
        for known in glob.glob(os.path.join(folder, "saved-*.h5"))
    )


def said_sound(path: str) -> bool:
    """Does info call a file sound?"""
    try:
        hpcgcn("info", path)
        return True
    except Refused:
        return False


def resume_flags(run: str, changes: str) -> list[str]:
    """With which a run goes on; changes begin with its variety."""
    return [*RESUME_FLAGS, *RUNS[changes.partition(":")[0]], "--output", os.path.dirname(run)]


def run_folder(folder: str, changes: str):
    """The small files of a run: a report, scores, predictions and going on with it."""
    run, path = os.path.join(folder, "run"), os.path.join(folder, "g.h5")
    refused = []
    for arguments in (("report", run, "-o", os.path.join(folder, "report.html")), ("info", run),
                      ("evaluate", run, path),
                      ("predict", run, path, "-o", os.path.join(folder, "p.csv")),
                      ("train", path, *resume_flags(run, changes)),
                      ("report", run, "-o", os.path.join(folder, "report.html"))):
        try:
            hpcgcn(*arguments)
        except Refused as error:
            refused.append(f"{arguments[0]}: {error}")
    refused = [words for words in refused if not words.startswith("info")]
    if refused:
        raise Refused(refused[0])


def predictions(folder: str, changes: str):
    path = os.path.join(folder, "p.h5")
    hpcgcn("info", path)
    with sound("info says sound"):
        json.loads(hpcgcn("info", path, "--json"))


def settings(folder: str, changes: str):
    """Settings from a file; sizes are kept small by flags, which win over it."""
    hpcgcn("train", os.path.join(folder, "g.h5"), "--config", os.path.join(folder, "run.toml"),
           *TRAIN_FLAGS, "--output", os.path.join(folder, "runs"), "--name", "run", "--backend",
           "reference", "--dtype", "float32", "--time-limit", "1")


# -- files of others -------------------------------------------------------------------------------


def imported(*arguments: str):
    """A use: import, then all that can be done with the graph."""

    def use(folder: str, changes: str):
        path = os.path.join(folder, "g.h5")
        hpcgcn(
            "import",
            *(
                os.path.join(folder, word.removeprefix("@")) if word.startswith("@") else word
                for word in arguments
            ),
            "-o",
            path,
        )
        with sound("import succeeded"):
            use_graph(folder, path, info(path, changes), changes)

    return use


def csv(folder: str, changes: str):
    """Edges and nodes as files, or the folder of both."""
    data = os.path.join(folder, "data")
    only = os.path.join(data, "edges.txt")
    imported("csv", "@data/edges.txt" if os.path.lexists(only) else "@data")(folder, changes)


def beside(folder: str, changes: str):
    """An edge list with files of features and labels beside it, named one by one or as a folder."""
    data = os.path.join(folder, "data")
    named = {what: sorted(glob.glob(os.path.join(data, what + ".*")))
             for what in ("features", "labels")}
    flags = [word for what, paths in named.items() for path in paths[:1]
             for word in (f"--{what}", path)]
    edges = sorted(glob.glob(os.path.join(data, "edges.*")))
    sources = [data] if len(changes) % 2 or not edges else [edges[0], *flags]
    path = os.path.join(folder, "g.h5")
    hpcgcn("import", *sources, "--undirected", "--drop-duplicates", "-o", path)
    with sound("import succeeded"):
        use_graph(folder, path, info(path, changes), changes)


def dgl(folder: str, changes: str):
    """The refusal without DGL, or the arrays that the process which loads its files hands over."""
    if os.path.lexists(os.path.join(folder, "data.dgl")):
        hpcgcn("import", "dgl", os.path.join(folder, "data.dgl"), "-o",
               os.path.join(folder, "g.h5"))
        return
    from hpcgcn.errors import HpcgcnError
    from hpcgcn.formats.dgl import draft_of_arrays
    from hpcgcn.formats.finish import Choices, finished
    from hpcgcn.graph.store import write_graph

    path = os.path.join(folder, "g.h5")
    try:
        draft = draft_of_arrays("data.dgl", os.path.join(folder, "arrays.npz"))
        with finished(draft, Choices(), folder) as (found, _):
            write_graph(path, found)
    except HpcgcnError as error:
        check_printed("", str(error))
        raise Refused(str(error)) from None
    with sound("import succeeded"):
        use_graph(folder, path, info(path, changes), changes)


# -- weights ---------------------------------------------------------------------------------------


def weights(name: str):
    """A use: look, make a run, predict with both."""

    def use(folder: str, changes: str):
        path, run, graph_path = (os.path.join(folder, part) for part in (name, "made", "g.h5"))
        hpcgcn("weights", "import", path)
        hpcgcn("weights", "import", path, "-o", run)
        from hpcgcn.weights.files import read_weights

        shape = read_weights(path)[0].shape
        if (shape.n_features, shape.n_classes) != (N_FEATURES, N_CLASSES):
            return  # another model: it fits no graph here
        with sound("import succeeded"):
            hpcgcn("predict", run, graph_path, "-o", os.path.join(folder, "a.h5"), "--what",
                   "logits")
            hpcgcn("predict", "--weights", path, graph_path, "-o", os.path.join(folder, "b.h5"),
                   "--what", "logits")
            hpcgcn("evaluate", run, graph_path)

    return use


def logits_of(path: str) -> np.ndarray:
    """The logits that predict wrote."""
    import h5py

    with h5py.File(path) as file:
        return file["logits"][...]
