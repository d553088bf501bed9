"""Checkpoints: a folder per epoch, complete or not there at all.

    checkpoints/epoch-000050/model.h5             parameters, moments, best so far (rank 0)
    checkpoints/epoch-000050/exchange-1-of-4.h5   stale rows, averages, feedback of rank 1, if any

All is written into a hidden folder first; rank 0 renames it when every rank is done.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from dataclasses import dataclass

import numpy as np

from hpcgcn.config import Config, to_toml
from hpcgcn.errors import CheckpointError, FileError
from hpcgcn.files.atomic import explained, sync
from hpcgcn.files.datasets import checksum_problems, read_array, whole_checksum, write_array
from hpcgcn.files.h5 import atomic_h5
from hpcgcn.files.replace import ANY_OF_THE_RUN
from hpcgcn.files.tidy import is_temporary
from hpcgcn.graph.header import open_file, opened, write_header
from hpcgcn.mpi.world import collective_errors
from hpcgcn.nn.models import Shape
from hpcgcn.train.model_file import (
    Layout,
    fitting_shape,
    model_problems,
    read_layout,
    stored_config,
)

log = logging.getLogger(__name__)

_ARRAYS = ("parameters", "m", "v", "rate_state")
_NAME = re.compile(r"epoch-(\d{6,})")
_FILE = re.compile(r"model\.h5|exchange-\d+-of-\d+\.h5")


@dataclass
class Best:
    """The epoch with the highest validation score so far, and its parameters."""

    epoch: int = 0                   # epochs done then; 0: none was evaluated
    val: float = float("-inf")
    test: float = float("nan")
    parameters: np.ndarray | None = None


@dataclass
class Snapshot:
    """All that training needs to go on."""

    epoch: int                       # epochs done
    parameters: np.ndarray
    m: np.ndarray
    v: np.ndarray
    step: int
    best: Best
    rate_state: list[float]
    n_ranks: int
    multilabel: bool = False         # are classes independent of each other?


def checkpoint_folders(folder: str) -> list[tuple[int, str]]:
    """(epochs done, path) of the complete checkpoints, oldest first."""
    if not os.path.isdir(folder):
        return []
    folders = [(int(m.group(1)), os.path.join(folder, name))
             for name in os.listdir(folder) if (m := _NAME.fullmatch(name))]
    return sorted(folders)


def exchange_name(rank: int, size: int) -> str:
    """The file with the state of one rank's exchanges."""
    return f"exchange-{rank}-of-{size}.h5"


def files_of_checkpoint(epoch: int, n_ranks: int) -> list[str]:
    """Names, below the folder of checkpoints, that a checkpoint may have: in the end, and
    before."""
    names = ["model.h5", *(exchange_name(rank, n_ranks) for rank in range(n_ranks))]
    return [os.path.join(folder, name) for folder in (f"epoch-{epoch:06d}", f".writing-{epoch:06d}")
            for name in names]


def save(comm, folder: str, snapshot: Snapshot, specs, exchanges: dict, config: Config,
         command: str, keep: int):
    """Write a checkpoint; exchanges: {"1.forward": {array name: array}} of this rank.

    Collective.
    """
    final = os.path.join(folder, f"epoch-{snapshot.epoch:06d}")
    temporary = os.path.join(folder, f".writing-{snapshot.epoch:06d}")
    with collective_errors(comm):
        if comm.rank == 0:
            _make_empty(temporary)
    with collective_errors(comm):
        if comm.rank == 0:
            write_model(os.path.join(temporary, "model.h5"), snapshot, specs, config, command)
        if any(exchanges.values()):
            _write_exchanges(os.path.join(temporary, exchange_name(comm.rank, comm.size)),
                             snapshot.epoch, exchanges, command)
    with collective_errors(comm):
        if comm.rank == 0:
            _publish(temporary, final, folder, snapshot.epoch, keep)


def _make_empty(path: str):
    with explained(path):
        remove_checkpoint(path)
        os.makedirs(path, exist_ok=True)


def remove_checkpoint(path: str):
    """Remove a checkpoint's files, and its folder if nothing else is in it."""
    with contextlib.suppress(OSError):
        for name in os.listdir(path):
            if _FILE.fullmatch(name) or is_temporary(name):
                os.unlink(os.path.join(path, name))
        os.rmdir(path)


def _publish(temporary: str, final: str, folder: str, epoch: int, keep: int):
    with explained(final):
        remove_checkpoint(final)
        os.replace(temporary, final)
        sync(folder)
    folders = checkpoint_folders(folder)
    # Newer ones than this could not be read when the run was resumed: they must not push out what
    # can be.
    obsolete = [path for number, path in folders if number > epoch]
    obsolete += [path for number, path in folders if number <= epoch][:-keep]
    for path in obsolete:
        remove_checkpoint(path)


def write_model(path: str, snapshot: Snapshot, specs, config: Config, command: str):
    """The file model.h5 of a checkpoint folder."""
    with atomic_h5(path, ANY_OF_THE_RUN) as file:
        write_header(file, "checkpoint", command=command, settings={"config": to_toml(config)},
                     epoch=snapshot.epoch, step=snapshot.step, n_ranks=snapshot.n_ranks,
                     multilabel=snapshot.multilabel, best_epoch=snapshot.best.epoch,
                     best_val=snapshot.best.val, best_test=snapshot.best.test)
        for name in ("parameters", "m", "v"):
            write_array(file, name, getattr(snapshot, name))
        write_array(file, "rate_state", np.array(snapshot.rate_state, np.float64))
        if snapshot.best.parameters is not None:
            write_array(file, "best_parameters", snapshot.best.parameters)
        layout = file.create_group("layout", track_order=True)
        at = 0
        for spec in specs:
            write_array(layout, spec.name, np.array([at, *spec.shape], np.int64))
            at += spec.size
        file.attrs["checksum"] = whole_checksum(file)


def _write_exchanges(path: str, epoch: int, exchanges: dict, command: str):
    with atomic_h5(path, ANY_OF_THE_RUN) as file:
        write_header(file, "checkpoint", command=command, epoch=epoch)
        for name, arrays in exchanges.items():
            for key, array in arrays.items():
                write_array(file, f"{name}/{key}", array)
        file.attrs["checksum"] = whole_checksum(file)


def load(folder: str) -> Snapshot:
    """The model part of a checkpoint folder, verified."""
    with opened(os.path.join(folder, "model.h5"), "checkpoint", "model") as held:
        file, facts = held.file, held.facts
        arrays = {name: read_array(file[name])
                  for name in (*_ARRAYS, "best_parameters") if name in file}
        for problem in model_problems(file, facts):
            raise ValueError(problem)
        best = Best(facts["best_epoch"], facts["best_val"], facts["best_test"],
                    arrays.get("best_parameters"))
        return Snapshot(facts["epoch"], arrays["parameters"], arrays["m"], arrays["v"],
                        facts["step"], best, arrays["rate_state"].tolist(), facts["n_ranks"],
                        facts.get("multilabel", False))


def load_layout(folder: str) -> Layout:
    """{parameter: (where it begins in the flat array, its shape)} of a checkpoint folder, in
    order."""
    with open_file(os.path.join(folder, "model.h5"), "checkpoint", "model") as file:
        return read_layout(file)


def load_shape(folder: str, config: Config) -> Shape:
    """The shape of the model in a checkpoint folder; CheckpointError if these settings are of
    another model."""
    layout = load_layout(folder)
    try:
        return fitting_shape(config, layout)
    except ValueError as error:
        raise CheckpointError(
            f"{folder} holds the parameters of another model than its settings mean ({error}); "
            "use the config.toml that the run was trained with") from None


def load_config(folder: str) -> Config:
    """The settings of the run that wrote a checkpoint folder."""
    with opened(os.path.join(folder, "model.h5"), "checkpoint", "model") as held:
        return stored_config(held.facts["settings"])


def load_exchanges(folder: str, rank: int, size: int) -> dict[str, dict[str, np.ndarray]] | None:
    """This rank's exchange state, verified, or None if the checkpoint has none for this number of
    ranks."""
    path = os.path.join(folder, exchange_name(rank, size))
    if not os.path.exists(path):
        return None
    with open_file(path, "checkpoint", "exchange") as file:
        return {name: {key: read_array(array) for key, array in group.items()}
                for name, group in file.items()}


def newest(folder: str) -> str | None:
    """The newest checkpoint that is whole in all its files; warns of those that are passed over."""
    for epochs, path in reversed(checkpoint_folders(folder)):
        try:
            _verify(path, epochs)
            return path
        except FileError as error:
            log.warning("%s is passed over: %s", path, error)
    return None


def _verify(path: str, epochs: int):
    """Raise FileError if any file of a checkpoint folder is damaged or of another epoch."""
    load(path)
    for name in ("model.h5",
                 *sorted(name for name in os.listdir(path) if name.startswith("exchange-"))):
        with opened(os.path.join(path, name), "checkpoint") as held:
            for problem in checksum_problems(held.file):
                raise ValueError(problem)
            if held.facts["epoch"] != epochs:
                raise ValueError(f"it is of epoch {held.facts['epoch']}")


def fit(snapshot: Snapshot, size: int, where: str):
    """Refuse parameters of another model."""
    if len(snapshot.parameters) != size:
        raise CheckpointError(f"{where} holds {len(snapshot.parameters)} parameters, but this "
                              f"model has {size}: the model, its layers, widths or the graph's "
                              "features or classes differ; give the settings of that run (they "
                              "are in its config.toml), or another --name")
