"""Checkpoints: a folder an epoch, complete or not there at all.

    checkpoints/epoch-000050/model.h5             parameters, moments, best so far (rank 0)
    checkpoints/epoch-000050/exchange-1-of-4.h5   stale rows, averages, feedback of one rank, if there are any

All is written into a hidden folder first; rank 0 renames it when every rank is done.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass

import numpy as np

from hpcgcn.config import Config, to_toml
from hpcgcn.errors import CheckpointError, FileError
from hpcgcn.files.atomic import explained, sync
from hpcgcn.files.h5 import atomic_h5
from hpcgcn.files.replace import ANY_OF_THE_RUN
from hpcgcn.files.tidy import is_temporary
from hpcgcn.graph.header import header, open_file, write_header
from hpcgcn.mpi.world import collective_errors

_NAME = re.compile(r"epoch-(\d{6,})")
_FILE = re.compile(r"model\.h5|exchange-\d+-of-\d+\.h5")


@dataclass
class Best:
    """The epoch with the highest validation score so far, and its parameters."""

    epoch: int = -1
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
    found = [(int(m.group(1)), os.path.join(folder, name)) for name in os.listdir(folder) if (m := _NAME.fullmatch(name))]
    return sorted(found)


def exchange_name(rank: int, size: int) -> str:
    return f"exchange-{rank}-of-{size}.h5"


def save(comm, folder: str, snapshot: Snapshot, specs, exchanges: dict, config: Config, command: str, keep: int):
    """Write a checkpoint; exchanges: {"1.forward": {array name: array}} of this rank. Collective."""
    final = os.path.join(folder, f"epoch-{snapshot.epoch:06d}")
    temporary = os.path.join(folder, f".writing-{snapshot.epoch:06d}")
    with collective_errors(comm):
        if comm.rank == 0:
            _make_empty(temporary)
    with collective_errors(comm):
        if comm.rank == 0:
            write_model(os.path.join(temporary, "model.h5"), snapshot, specs, config, command)
        if any(exchanges.values()):
            _write_exchanges(os.path.join(temporary, exchange_name(comm.rank, comm.size)), snapshot.epoch, exchanges, command)
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
    found = checkpoint_folders(folder)
    # Newer ones than this could not be read when the run was resumed: they must not push out what can be.
    obsolete = [path for number, path in found if number > epoch]
    obsolete += [path for number, path in found if number <= epoch][:-keep]
    for path in obsolete:
        remove_checkpoint(path)


def write_model(path: str, snapshot: Snapshot, specs, config: Config, command: str):
    """The file model.h5 of a checkpoint folder."""
    with atomic_h5(path, ANY_OF_THE_RUN) as file:
        write_header(file, "checkpoint", command=command, settings={"config": to_toml(config)}, epoch=snapshot.epoch,
                     step=snapshot.step, n_ranks=snapshot.n_ranks, multilabel=snapshot.multilabel, best_epoch=snapshot.best.epoch,
                     best_val=snapshot.best.val, best_test=snapshot.best.test)
        for name in ("parameters", "m", "v"):
            file[name] = getattr(snapshot, name)
        file["rate_state"] = np.array(snapshot.rate_state, np.float64)
        if snapshot.best.parameters is not None:
            file["best_parameters"] = snapshot.best.parameters
        layout = file.create_group("layout", track_order=True)
        at = 0
        for spec in specs:
            layout.create_dataset(spec.name, data=np.array([at, *spec.shape], np.int64))
            at += spec.size


def _write_exchanges(path: str, epoch: int, exchanges: dict, command: str):
    with atomic_h5(path, ANY_OF_THE_RUN) as file:
        write_header(file, "checkpoint", command=command, epoch=epoch)
        for name, arrays in exchanges.items():
            for key, array in arrays.items():
                file[f"{name}/{key}"] = array


def load(folder: str) -> Snapshot:
    """The model part of a checkpoint folder."""
    path = os.path.join(folder, "model.h5")
    with open_file(path, "checkpoint") as file:
        facts = file.attrs
        best = Best(int(facts["best_epoch"]), float(facts["best_val"]), float(facts["best_test"]),
                    file["best_parameters"][...] if "best_parameters" in file else None)
        return Snapshot(int(facts["epoch"]), file["parameters"][...], file["m"][...], file["v"][...], int(facts["step"]), best,
                        file["rate_state"][...].tolist(), int(facts["n_ranks"]), bool(facts.get("multilabel", False)))


def load_layout(folder: str) -> dict[str, tuple[int, tuple[int, ...]]]:
    """{parameter: (where it begins in the flat array, its shape)} of a checkpoint folder, in order."""
    with open_file(os.path.join(folder, "model.h5"), "checkpoint") as file:
        entries = sorted((*entry[...].tolist(), name) for name, entry in file["layout"].items())
        return {name: (at, tuple(shape)) for at, *shape, name in entries}


def load_exchanges(folder: str, rank: int, size: int) -> dict[str, dict[str, np.ndarray]] | None:
    """This rank's exchange state, or None if the checkpoint has none for this number of ranks."""
    path = os.path.join(folder, exchange_name(rank, size))
    if not os.path.exists(path):
        return None
    with open_file(path, "checkpoint") as file:
        return {name: {key: group[key][...] for key in group} for name, group in file.items()}


def newest(folder: str) -> str | None:
    """The newest checkpoint that can be read; damaged ones are passed over."""
    for _, path in reversed(checkpoint_folders(folder)):
        try:
            for name in ("model.h5", *sorted(n for n in os.listdir(path) if n.startswith("exchange-"))):
                header(os.path.join(path, name))
            return path
        except FileError:
            continue
    return None


def fit(snapshot: Snapshot, size: int, where: str):
    """Refuse parameters of another model."""
    if len(snapshot.parameters) != size:
        raise CheckpointError(f"{where} holds {len(snapshot.parameters)} parameters, but this model has {size}: the model, "
                              f"its layers, widths or the graph's features or classes differ; give the settings of that run "
                              f"(they are in its config.toml), or another --name")
