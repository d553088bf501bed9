"""Labels from a file of their own: a table, an array, a JSON map or list, a Parquet table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hpcgcn.errors import FileError, GraphError
from hpcgcn.formats.archive import Archive, read_npy
from hpcgcn.formats.columns import NO_COLUMNS, id_column, likely_label
from hpcgcn.formats.draft import ReadOptions, checked_labels
from hpcgcn.formats.feature_files import TABLES
from hpcgcn.formats.files import bad, key_line, read_json
from hpcgcn.formats.node_facts import NodeFacts, check_texts
from hpcgcn.formats.nodes import class_numbers, read_nodes
from hpcgcn.formats.parquet import table_of
from hpcgcn.formats.rows import Table, is_number

_ARRAYS = ("y", "labels", "label", "node_labels", "node_label", "target", "targets", "arr_0")


def read_labels(path: str, options: ReadOptions) -> NodeFacts:
    """The labels in a file; its ending says of which kind it is."""
    name = path.lower().removesuffix(".gz")
    if name.endswith(".npy"):
        return _from_array(path, np.array(read_npy(path)))
    if name.endswith(".npz"):
        return _from_archive(path)
    if name.endswith(".json"):
        return _from_json(path)
    if name.endswith(".parquet"):
        return _from_table(table_of(path, options.scratch), options)
    if name.endswith(TABLES):
        return _from_table(Table(path), options)
    raise FileError(f"{path}: the name does not tell what it holds; expected a name that ends with "
                    ".csv, .tsv, .txt, .json, .npy, .npz or .parquet")


def _from_array(path: str, labels: np.ndarray) -> NodeFacts:
    if labels.ndim == 1 and labels.dtype.kind in "SU":
        try:
            words = [word.decode() if isinstance(word, bytes) else word for word in labels.tolist()]
        except (SystemError, ValueError):        # code points beyond Unicode, bytes of no text
            raise FileError(f"{path}: some labels are no text; expected text in UTF-8, or "
                            "numbers") from None
        return _from_words(path, words)
    if labels.ndim == 0 or not len(labels):
        raise FileError(f"{path}: labels have the shape {labels.shape}; expected one per node")
    try:
        labels = checked_labels(path, labels, len(labels))
    except GraphError as error:
        raise FileError(error) from None
    return NodeFacts(path, len(labels), labels=labels)


def _from_archive(path: str) -> NodeFacts:
    with Archive(path) as archive:
        names = archive.names()
        name = next((name for name in _ARRAYS if name in names),
                    next(iter(names)) if len(names) == 1 else None)
        if name is None:
            raise FileError(f"{path} holds the arrays {', '.join(sorted(names))[:200]}; expected "
                            f"one of {', '.join(_ARRAYS)}")
        return _from_array(f"{path} ({name})", archive[name])


def _from_words(path: str, words: list[str], ids: list[str] | None = None,
                lines: list[int] | None = None) -> NodeFacts:
    check_texts(path, [*words, *(ids or ())])
    labels, n_classes, names = class_numbers(path, lines or [0] * len(words), words)
    return NodeFacts(path, len(words), ids, lines, labels=labels, n_classes=n_classes,
                     extra={"class_names": names} if names else {})


def _from_json(path: str) -> NodeFacts:
    """{node: class}, or a list of classes, one for each node; a class is a number, a name or, of
    several, a list of 0 and 1."""
    content = read_json(path)
    if not isinstance(content, (dict, list)) or not content:
        raise bad(path, None, "no object or list of labels",
                  'JSON such as {"0": 2, "1": 0}: node -> its class')
    ids = list(content) if isinstance(content, dict) else None
    given = list(content.values()) if isinstance(content, dict) else content
    several = isinstance(given[0], list)
    for row, label in enumerate(given):
        fits = (isinstance(label, list) and len(label) == len(given[0]) > 0
                and all(type(value) is int and value in (0, 1) for value in label)) if several \
            else label is None or type(label) in (int, str)
        if not fits:
            name = ids[row] if ids else str(row)
            raise bad(path, key_line(path, name) if ids else None,
                      f"node {name[:40]!r} has the label {str(label)[:40]!r}",
                      "a number or a name for each node, or as long a list of 0 and 1 for each")
    if several:
        return NodeFacts(path, len(given), ids, labels=np.array(given, np.uint8))
    return _from_words(path, ["" if label is None else str(label) for label in given], ids)


def _from_table(table: Table, options: ReadOptions) -> NodeFacts:
    if not _is_headed(table, options):
        return _without_header(table)
    identity = id_column(table, options)
    if identity is None and table.n_columns == 1:
        return _column(table, headed=True, identity=None)
    label, notes = likely_label(table, options, identity)
    known = read_nodes(table.path, replace(options, label_column=label, skip_columns=None,
                                           feature_columns=[NO_COLUMNS]), table)
    return NodeFacts(table.path, len(known.ids), known.ids, known.lines, None, known.labels,
                     known.n_classes, known.split,
                     {key: known.extra[key] for key in ("label_column", "class_names")
                      if key in known.extra}, notes)


def _is_headed(table: Table, options: ReadOptions) -> bool:
    """Known names in the first row, or a word above a number."""
    first = table.first
    if {options.label_column, options.id_column} & set(first) or \
            id_column(table, replace(options, id_column=None)) is not None or \
            any(name.lower() == "label" or name.lower().startswith("label:") for name in first):
        return True
    return (table.second is not None and len(table.second) == len(first)
            and any(is_number(below) and not is_number(above)
                    for above, below in zip(first, table.second)))


def _without_header(table: Table) -> NodeFacts:
    if table.n_columns > 2:
        raise bad(table.path, table.first_line, f"{table.n_columns} columns without a header",
                  "one (the label), two (id and label), or a header with --label-column")
    return _column(table, headed=False, identity=0 if table.n_columns == 2 else None)


def _column(table: Table, headed: bool, identity: int | None) -> NodeFacts:
    """Labels in the last column, ids before them or none."""
    rows = [row for first, chunk in table.chunks(skip_first=headed)
            for row in table.rows(first, chunk)]
    if not rows:
        raise bad(table.path, table.first_line, "a header and no labels", "a row for every node")
    ids = None if identity is None else [row[identity] for _, row in rows]
    return _from_words(table.path, [row[-1] for _, row in rows], ids, [line for line, _ in rows])
