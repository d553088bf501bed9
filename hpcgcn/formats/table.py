"""The formats that can be read and written, and finding out which one some files are in."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from dataclasses import fields

from hpcgcn.errors import ConfigError, FileError
from hpcgcn.files.atomic import atomic_file, atomic_folder, check_new_folder
from hpcgcn.files.replace import NOTHING, Replaces, check_target
from hpcgcn.formats.draft import Draft, ReadOptions
from hpcgcn.graph.data import Graph

# Name on the command line -> module. Detection asks them in this order: the surest signs first.
READERS = {"planetoid": "planetoid", "ogb": "ogb", "graphsaint": "graphsaint",
           "dgl-reddit": "dgl_reddit", "npz": "npz",
           "mtx": "mtx", "csv": "csv_table", "pyg": "pyg", "dgl": "dgl"}
# Name -> (module, function, what is written).
WRITERS = {"planetoid": ("planetoid", "write", "a folder"), "ogb": ("ogb", "write", "a folder"),
           "graphsaint": ("graphsaint", "write", "a folder"),
           "dgl-reddit": ("dgl_reddit", "write", "a folder"), "npz": ("npz", "write", "a file"),
           "npz-heterophilous": ("npz", "write_heterophilous", "a file"),
           "npz-gnn-benchmark": ("npz", "write_benchmark", "a file"),
           "mtx": ("mtx", "write", "a folder"), "csv": ("csv_table", "write", "a folder"),
           "pyg": ("pyg", "write", "a file"), "dgl": ("dgl", "write", "a file")}
# What a file of each format has a place for, beyond edges, features and labels.
# the others: splits
_HOLDS = {"csv": ("splits", "ids", "class names", "feature names", "edge weights"),
          "mtx": ("splits", "class names", "feature names", "edge weights"),
          "npz": ("splits", "ids", "edge weights"),
          "dgl-reddit": ("splits", "ids", "edge weights"),
          "graphsaint": ("splits", "edge weights"), "pyg": ("splits", "edge weights"),
          "dgl": ("splits", "edge weights"), "npz-gnn-benchmark": ("edge weights",)}

# What wrong contents can raise where no check of their own names them: strange shapes and sizes,
# mostly.
_CONTENT_ERRORS = (ValueError, TypeError, IndexError, KeyError, OverflowError, MemoryError,
                   RecursionError)


# How many files or folders a format takes, if more than one; and which of the user's words about
# files it listens to.
_MOST_SOURCES = {"planetoid": 8, "dgl-reddit": 2, "csv": 2, "mtx": 2}
_NODE_TABLE = ("nodes", "id_column", "label_column", "split_column", "feature_columns",
               "skip_columns", "features", "features_format", "labels")
_TAKEN = {"planetoid": ("name",), "ogb": ("name",), "mtx": _NODE_TABLE,
          "csv": ("header", "ids", "edge_columns", "weight_column", *_NODE_TABLE)}


def _module(name: str):
    return importlib.import_module(f"hpcgcn.formats.{name}")


def load_readers():
    """Import what reads all formats, which `read_draft` would do as it goes."""
    for module in READERS.values():
        _module(module)


def read_draft(sources: list[str], format_name: str | None = None,
               options: ReadOptions | None = None) -> tuple[str, Draft]:
    """(format, draft) of some files; without a format it is found out."""
    if not sources:
        raise ConfigError("no files given; expected at least one file or folder to import")
    for source in sources:
        if not os.path.exists(source):
            raise FileError(f"{source}: no such file or folder; expected files or folders, after "
                            f"the format ({', '.join(READERS)}) if it is given")
    format_name, options = format_name or detect(sources), options or ReadOptions()
    _check_request(format_name, sources, options)
    try:
        draft = _module(READERS[format_name]).read(list(sources), options)
        draft.path = draft.path or " ".join(map(str, sources))
        return format_name, draft
    except _CONTENT_ERRORS as error:
        raise FileError(f"{' '.join(sources)} cannot be read: {error}; expected sound files in "
                        f"the format {format_name}") from error


def _check_request(format_name: str, sources: list[str], options: ReadOptions):
    """Refuse what would be passed over in silence."""
    most = _MOST_SOURCES.get(format_name, 1)
    if len(sources) > most:
        raise ConfigError(f"{len(sources)} files or folders for the format {format_name}; expected "
                          + ("one" if most == 1 else f"at most {most}"))
    plain = ReadOptions()
    for field in fields(options):
        given = getattr(options, field.name) != getattr(plain, field.name)
        taken = ("scratch", "weights", *_TAKEN.get(format_name, ()))
        if given and field.name not in taken:
            raise ConfigError(
                f"--{field.name.replace('_', '-')} says nothing about files in the format "
                f"{format_name}; expected it only with "
                f"{' or '.join(name for name, taken in _TAKEN.items() if field.name in taken)}")


def detect(sources: list[str]) -> str:
    """The format of some files."""
    for name, module in READERS.items():
        if _module(module).recognises(list(sources)):
            return name
    raise FileError(f"{' '.join(sources)}: the format is not clear from the names; expected one "
                    f"of {', '.join(READERS)} before the files, as in `hpcgcn import csv FILE -o "
                    "g.h5`")


def left_out(format_name: str, graph: Graph) -> list[str]:
    """What the graph has and a file of this format has no place for."""
    has = {"splits": graph.split.any(), "ids": graph.node_names is not None,
           "class names": graph.extra.get("class_names"),
           "feature names": graph.extra.get("feature_names"),
           "edge weights": graph.edge_weights is not None}
    return [name for name, there in has.items() if there
            and name not in _HOLDS.get(format_name, ("splits",))]


def check_place(format_name: str, path: str, replaces: Replaces = NOTHING, inputs: Iterable = ()):
    """Refuse, before any work, a place where a file or folder of this format cannot be written."""
    if format_name not in WRITERS:
        raise ConfigError(f"--format {format_name}: expected one of {', '.join(WRITERS)}")
    if WRITERS[format_name][2] == "a folder":
        check_new_folder(path)
    else:
        check_target(path, replaces, inputs)


def write_as(format_name: str, path: str, graph: Graph, replaces: Replaces = NOTHING,
             inputs: Iterable = ()):
    """Write a graph in the format of others: a new folder, or a file."""
    check_place(format_name, path, replaces, inputs)
    module, function, made = WRITERS[format_name]
    write = getattr(_module(module), function)
    if made == "a folder":
        with atomic_folder(path) as folder:
            write(folder, graph)
    else:
        with atomic_file(path, replaces, inputs) as temporary:
            write(temporary, graph)
