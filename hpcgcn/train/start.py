"""How a start of `train` begins: in a new folder, from a checkpoint, or not at all.

All is compared before anything is written: a start that is refused, or finds the run finished,
leaves its folder as it was.
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
import zlib
from dataclasses import dataclass, field

from hpcgcn.config import Config, read_toml, to_toml
from hpcgcn.errors import CheckpointError, ConfigError, FileError, printable
from hpcgcn.files.marker import MARKER, has_marker, read_marker
from hpcgcn.graph.data import Graph
from hpcgcn.graph.header import header
from hpcgcn.nn.models import Shape
from hpcgcn.train.checkpoint import checkpoint_folders
from hpcgcn.train.folder import RunFolder, run_name
from hpcgcn.train.lock import LockHolder

# Settings that say where and how much, not what: they change no result.
BOOKKEEPING = ("name", "output", "resume", "overwrite", "quiet", "log_format", "tracker",
               "trace")
# Parts of a model's shape that may change when a run goes on.
_FREE = ("dropout", "weights_first")


@dataclass
class Start:
    """What a start found, the same on all ranks."""

    path: str
    kind: str                            # new, overwrite, resume or finished
    graph: str                           # its uuid
    shape: dict
    summary: dict | None = None          # of a run that is finished
    choices: dict = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def decide(config: Config, source, lock: LockHolder) -> Start:
    """Find the folder, lock it if it is there, and compare. On rank 0."""
    graph, n_features, n_classes = graph_facts(source)
    shape = dataclasses.asdict(Shape.of(config, n_features, n_classes))
    path = os.path.join(config.output, run_name(config, source))
    if is_free(path):
        return _new(path, config, graph, shape)
    if config.resume == "never" and not config.overwrite:
        if config.name != "auto":
            raise ConfigError(_taken(path))
        return _new(_numbered(path), config, graph, shape)
    if not has_marker(path):
        raise ConfigError(_unmarked(path))
    lock.take(path)
    marker, start = read_marker(path), Start(path, "overwrite", graph, shape)
    if config.resume != "never":
        _compare(path, marker, graph, shape, source)
        start.kind, folder = "resume", RunFolder(path)
        start.summary = _finished(folder.read_summary(start.notes), config)
        start.choices = folder.read_choices(start.notes)
        if start.summary:
            start.kind = "finished"
        start.notes += changed_settings(folder, config, used=not start.summary)
    return start


def begin(start: Start, config: Config, choices: dict, lock: LockHolder) -> list[str]:
    """Write what the run needs before its first epoch; returns notes. On rank 0.

    choices: what the trainer chose by measuring.
    """
    folder, notes = RunFolder(start.path), []
    if start.kind == "new":
        RunFolder.create(start.path, config, start.graph, start.shape)
        lock.take(start.path)
    elif start.kind == "overwrite":
        left = folder.clear()
        folder.set_up(config, start.graph, start.shape)
        if left:
            notes.append(f"{start.path}: kept what was not of the old run: {', '.join(left[:5])}"
                         + (", ..." if len(left) > 5 else ""))
    else:
        folder.go_on(config, start.graph)
    if choices:
        folder.write_choices(choices)
    return notes


def is_free(path: str) -> bool:
    """May a new run be made here: is there nothing, or an empty folder?"""
    return not os.path.lexists(path) or os.path.isdir(path) and not os.listdir(path)


def _taken(path: str) -> str:
    if has_marker(path):
        return (f"{path} holds a run already: continue it with --resume, choose another --name, "
                "or give --overwrite")
    return _unmarked(path)


def _unmarked(path: str) -> str:
    """Why a folder is left alone."""
    if checkpoint_folders(os.path.join(path, "checkpoints")):
        return (f"{path} has checkpoints, but no {MARKER}: it can be evaluated, but not gone on "
                f"with, because which graph it is of and which files are its own is not known; "
                f"restore {MARKER} from a copy, or go on from its weights: `hpcgcn weights export "
                f"{path} -o w.safetensors`, `hpcgcn weights import w.safetensors -o {path}-2`, and "
                f"train with --resume --name {os.path.basename(path)}-2")
    return (f"{path} is there already and is not a run ({MARKER} is missing), so nothing in it is "
            "touched: choose another --name or --output")


def _numbered(path: str) -> str:
    number = 2
    while not is_free(f"{path}-{number}"):
        number += 1
    return f"{path}-{number}"


def _new(path: str, config: Config, graph: str, shape: dict) -> Start:
    if config.resume == "must":
        raise CheckpointError(f"--resume: there is no run in {path}; check --name and --output, or "
                              "leave --resume out")
    place = os.path.abspath(config.output)
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    if not os.path.isdir(place) or not os.access(place, os.W_OK):
        raise FileError(f"cannot write in {path}: {place} is not a folder that can be written to; "
                        "choose another --output")
    return Start(path, "new", graph, shape)


def graph_facts(source) -> tuple[str, int, int]:
    """(uuid, features, classes) of a graph in a file, or in memory."""
    if isinstance(source, Graph):
        return source.uuid or _digest(source), source.n_features, source.n_classes
    facts = header(source)
    if facts["kind"] not in ("graph", "partition"):
        raise FileError(f"{source} is a {facts['kind']} file, but a graph or partition file is "
                        f"needed here; `hpcgcn info {source}` shows what it holds")
    try:
        uuid = facts["uuid" if facts["kind"] == "graph" else "source_uuid"]
        return str(uuid), int(facts["n_features"]), int(facts["n_classes"])
    except (KeyError, TypeError, ValueError):
        raise FileError(f"{source} is damaged: uuid, n_features or n_classes is missing; "
                        f"`hpcgcn info {source}` lists what is wrong") from None


def _digest(graph: Graph) -> str:
    """In place of a uuid, for a graph that never was in a file."""
    code = 0
    for array in (graph.indptr, graph.indices, graph.labels):
        code = zlib.crc32(array.data.cast("B") if array.size else b"", code)
    return f"memory-{graph.n_nodes}-{code:08x}"


def _compare(path: str, marker: dict, graph: str, shape: dict, source):
    """Refuse to go on with another graph or another model."""
    if marker["graph"] not in ("", graph):
        where = "the graph in memory" if isinstance(source, Graph) else os.fspath(source)
        raise CheckpointError(f"{path} was trained on another graph (uuid {marker['graph']}) than "
                              f"{where} ({graph}): give the graph of that run, or another --name")
    held = marker["shape"]
    differ = [f"{name.rstrip('_')} {held[name]} there, {value} here" for name, value in
              shape.items() if name in held and name not in _FREE and held[name] != value]
    if differ:
        raise CheckpointError(f"{path} holds another model ({'; '.join(differ)}): give the "
                              "settings of that run (they are in its config.toml), or another "
                              "--name")


def changed_settings(folder: RunFolder, config: Config, used: bool = True) -> list[str]:
    """A note on the settings that are not those of the last start, if any."""
    try:
        before = read_toml(os.path.join(folder.path, "config.toml"))
    except ConfigError as error:
        return [f"which settings have changed since the last start is not known: {error}"]
    now = tomllib.loads(to_toml(config))
    changed = [f"{key} {printable(before[key], 100)} -> {value}" for key, value in now.items()
               if key in before and key not in BOOKKEEPING and before[key] != value]
    what = "changed since the last start" if used else "not used, as the run is finished"
    return [f"{what}: {', '.join(changed)}"] if changed else []


def _finished(summary: dict | None, config: Config) -> dict | None:
    if summary is None:
        return None
    epochs = summary.get("epochs")
    best = summary.get("best")
    best_epoch = best.get("epoch") if isinstance(best, dict) else None
    done = type(epochs) is int and (
        epochs >= config.epochs
        or type(best_epoch) is int and 0 < config.patience <= epochs - best_epoch
        and summary.get("out_of_patience") is True)
    return summary if done and summary.get("stopped_early") is False else None
