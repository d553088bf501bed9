"""The files of features and labels that go with an edge list: as the user names them, or as they
lie in a folder."""

from __future__ import annotations

import glob
import os
from dataclasses import replace
from typing import Any

from hpcgcn.errors import FileError
from hpcgcn.formats.columns import NO_COLUMNS
from hpcgcn.formats.draft import ReadOptions
from hpcgcn.formats.feature_files import read_features
from hpcgcn.formats.files import inside
from hpcgcn.formats.label_files import read_labels
from hpcgcn.formats.node_facts import FactsOfFiles

_STEMS = {"features": ("features",), "labels": ("target", "targets", "labels")}


def read_beside(options: ReadOptions) -> FactsOfFiles | None:
    """What the files of --features and --labels say; None if neither is given."""
    files = []
    for path in filter(None, (options.features, options.labels)):
        if not os.path.exists(path):
            raise FileError(f"{path}: no such file; expected a file of features or labels")
    if options.features:
        # "none" is about a table of nodes: somebody who names a file of features wants them
        own = options.feature_columns if options.feature_columns != [NO_COLUMNS] else None
        files.append(read_features(options.features, replace(options, feature_columns=own)))
    if options.labels:
        files.append(read_labels(options.labels, options))
    return FactsOfFiles(files) if files else None


def of_node_table(options: ReadOptions) -> ReadOptions:
    """What is said about columns, as far as it is about the table of nodes."""
    if options.features:
        options = replace(options, feature_columns=[NO_COLUMNS], skip_columns=None)
    return replace(options, label_column=None) if options.labels else options


def found_beside(sources: list[str], options: ReadOptions) -> tuple[ReadOptions, list[str]]:
    """The options, with files of features and labels that lie in a folder beside its edges, and a
    note about them."""
    if len(sources) != 1 or not os.path.isdir(sources[0]):
        return options, []
    paths: dict[str, Any] = {}
    for what, stems in _STEMS.items():
        names = sorted(os.path.basename(path) for stem in stems
                       for path in glob.glob(os.path.join(glob.escape(sources[0]), stem + ".*")))
        if len(names) > 1 and getattr(options, what) is None:
            raise FileError(f"{sources[0]} has {', '.join(names)[:200]}; expected one of them: "
                            f"--{what} {os.path.join(sources[0], names[0])}")
        if names and getattr(options, what) is None:
            paths[what] = inside(sources[0], names[0])
    words = [f"{what} are those of {os.path.basename(path)}" for what, path in paths.items()]
    return replace(options, **paths), words
