"""The table of nodes that goes with an edge list: ids, labels, splits and features, by the names of
its columns."""

from __future__ import annotations

import csv
import math
import re
import shlex
from dataclasses import dataclass, field

import numpy as np

from hpcgcn.formats.columns import Columns, choose_columns
from hpcgcn.formats.draft import Draft, ReadOptions
from hpcgcn.formats.files import bad
from hpcgcn.formats.rows import Table, is_number, is_whole
from hpcgcn.graph.data import SPLIT_NAMES, TEST, TRAIN, UNUSED, VAL, Graph, SparseRows

_SPLIT_WORDS = {"": UNUSED, "0": UNUSED, "none": UNUSED, "unused": UNUSED, "train": TRAIN,
                "1": TRAIN, "val": VAL, "valid": VAL,
                "validation": VAL, "2": VAL, "test": TEST, "3": TEST}
_CODE_WORDS = {UNUSED: "", **SPLIT_NAMES}
_TRUTH = {"true": 1.0, "false": 0.0}
_NO_NUMBERS = ("nan", "inf", "infinity")
_LARGEST = float(np.finfo(np.float32).max)
# not for features, or read_nodes would take them
_TAKEN_NAMES = re.compile(r"id|label(:.*)?|split(:\d+)?", re.IGNORECASE)


@dataclass
class NodeTable:
    """What a table of nodes holds; what is None was not there."""

    path: str
    ids: list[str]
    lines: list[int]                       # the line of every node, for messages
    features: np.ndarray | None
    labels: np.ndarray | None
    n_classes: int | None
    split: np.ndarray | None
    extra: dict = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read_nodes(path: str, options: ReadOptions, table: Table | None = None) -> NodeTable:
    """A table with a header; every column that is neither id, label nor split is a feature."""
    table = table or Table(path)
    columns = choose_columns(table, options)
    ids: list[str] = []
    lines, labels, classes, splits, features = [], [], [], [], []
    seen: dict[str, int] = {}                # the line of every id
    labelled = columns.label is not None or columns.classes
    otherwise = "" if labelled else "; --label-column NAME makes a column the class"
    for first, chunk in table.chunks(skip_first=True):
        rows = list(table.rows(first, chunk))
        for number, row in rows:
            identity = row[columns.identity]
            if not identity:
                raise bad(path, number, "a node without an id",
                          f"one in the column {table.first[columns.identity]!r}")
            if identity in seen:
                raise bad(path, number, f"node {identity!r} again, after line {seen[identity]}",
                          "every node once")
            seen[identity] = number
            lines.append(number)
            if columns.label is not None:
                labels.append(row[columns.label])
            splits.append([_split_code(table, number, row[column]) for column in columns.splits])
        ids.extend(row[columns.identity] for _, row in rows)
        features.append(float_block(table, rows, columns.features, True, otherwise))
        classes.append(float_block(table, rows, columns.classes, may_skip=False))
    if not ids:
        raise bad(path, table.first_line, "a header and no nodes", "a row for every node")
    found_labels, n_classes, class_names = _labels(table, columns, lines, labels, classes)
    _check_splits(table, lines, found_labels, splits)
    extra = {"id_column": table.first[columns.identity],
             "feature_names": [table.first[column] for column in columns.features],
             **({"label_column": table.first[columns.label]} if columns.label is not None else {}),
             **({"class_names": class_names} if class_names else {})}
    return NodeTable(path, ids, lines, np.concatenate(features) if columns.features else None,
                     found_labels, n_classes,
                     np.array(splits, np.uint8).reshape(-1, len(columns.splits)).T.copy()
                     if columns.splits else None, extra, columns.notes)


def _split_code(table: Table, number: int, word: str) -> int:
    try:
        return _SPLIT_WORDS[word.lower()]
    except KeyError:
        raise bad(table.path, number, f"the split {word[:40]!r}",
                  "train, val, test or nothing") from None


def float_block(table: Table, rows: list, columns: list[int], may_skip: bool,
                otherwise: str = "", needed: bool = False) -> np.ndarray:
    """(n_rows, n_columns) float32 of some columns; true and false are 1 and 0.

    otherwise: what the message about another cell says at its end. needed: the table is there for
    its features, so that they cannot all be left out.
    """
    try:
        block = np.array([[float(row[column]) for column in columns] for _, row in rows],
                         np.float64)
    except ValueError:
        block = np.array([[_as_float(row[column]) for column in columns] for _, row in rows],
                         np.float64)
    block = block.reshape(len(rows), len(columns))
    wrong = np.argwhere(~(np.abs(block) <= _LARGEST))
    if len(wrong):
        (number, row), column = rows[wrong[0][0]], columns[wrong[0][1]]
        name = table.first[column] if may_skip else str(column + 1)
        text = _text_columns(table, rows, columns) if may_skip else []
        raise bad(table.path, number, f"{row[column][:40]!r} in the column {name[:80]!r}",
                  "a finite number, true or false"
                  + (_remedy(name, text, needed) if may_skip else "") + otherwise)
    return block.astype(np.float32)


def _text_columns(table: Table, rows: list, columns: list[int]) -> list[str]:
    """The columns of a block that hold no number at all."""
    return [table.first[column] for column in columns
            if all(math.isnan(_as_float(row[column])) for _, row in rows)]


def _remedy(name: str, text: list[str], needed: bool) -> str:
    """Which flag leaves out what cannot be a feature."""
    if len(text) < 2 or name not in text:
        return (f"; --skip-columns {shlex.quote(name)[:80]} leaves that column out, "
                + ("--feature-columns chooses some" if needed
                   else "--feature-columns none all of them"))
    shown = ", ".join(other[:40] for other in text[:8]) + (" ..." if len(text) > 8 else "")
    flags = f"--skip-columns {shlex.quote(','.join(text))}" if len(",".join(text)) < 200 else ""
    return (f"; the columns {shown} hold text: {flags}{' leaves them out, ' if flags else ''}"
            + ("--feature-columns chooses others" if needed
               else "--feature-columns none leaves out all columns"))


def _as_float(cell: str) -> float:
    """The number of a cell; NaN if it holds something else."""
    try:
        return float(_TRUTH.get(cell.lower(), cell))
    except ValueError:
        return math.nan


def _check_splits(table: Table, lines: list[int], labels: np.ndarray | None,
                  splits: list[list[int]]):
    """A node without a label cannot be trained or tested on."""
    if labels is None or labels.ndim == 2:
        return
    for line, label, codes in zip(lines, labels, splits):
        if label < 0 and any(codes):
            raise bad(table.path, line, "a node in a split without a label",
                      "a label, or nothing in the column of the split")


def _labels(table: Table, columns: Columns, lines, words: list[str], classes: list[np.ndarray]):
    """(labels, n_classes, class names) from a column of classes, or from one column of 0 and 1 for
    each class."""
    if columns.classes:
        matrix = np.concatenate(classes)
        wrong_cells = np.argwhere((matrix != 0) & (matrix != 1))
        if len(wrong_cells):
            raise bad(table.path, lines[wrong_cells[0][0]],
                      f"{matrix[tuple(wrong_cells[0])]:g} in a class column", "0 or 1")
        return matrix.astype(np.uint8), matrix.shape[1], [table.first[column].split(":", 1)[1]
                                                          for column in columns.classes]
    if columns.label is None:
        return None, None, None
    return class_numbers(table.path, lines, words)


def class_numbers(path: str, lines: list[int], words: list[str]):
    """(labels, n_classes, class names) of what a column of classes holds: numbers from 0, or
    names; nothing for no label."""
    if all(is_whole(word) or not word for word in words):
        numbers = np.array([int(word) if word else -1 for word in words], np.int64)
        wrong = np.flatnonzero((numbers < -1) | (numbers >= max(len(words), 1000)))
        if len(wrong):
            raise bad(path, lines[wrong[0]], f"the label {words[wrong[0]][:40]}",
                      f"classes numbered from 0, less than {max(len(words), 1000)}; -1 or "
                      "nothing for no label")
        return numbers.astype(np.int32), None, None
    numbered = any(map(is_whole, words))
    for line, word in zip(lines, words):
        # Not the name of a class but a slip: what is no number, and a fraction among whole numbers.
        if word.lower().lstrip("+-") in _NO_NUMBERS or (numbered and not is_whole(word)
                                                        and is_number(word)):
            raise bad(path, line, f"the label {word[:40]!r}",
                      "whole numbers from 0, or names, or nothing for no label")
    names = sorted({word for word in words if word})
    number = {name: k for k, name in enumerate(names)} | {"": -1}
    return np.array([number[word] for word in words], np.int32), len(names), names


def numbered_order(path: str, known: NodeTable) -> np.ndarray:
    """Rows of the table in the order of their ids, which must be 0..n-1."""
    n_nodes = len(known.ids)
    order = np.full(n_nodes, -1, np.int64)
    for row, (identity, line) in enumerate(zip(known.ids, known.lines)):
        if not is_whole(identity) or not 0 <= int(identity) < n_nodes or order[int(identity)] >= 0:
            raise bad(path, line, f"the id {identity[:40]!r}",
                      f"each of 0..{n_nodes - 1} once, or --ids name")
        order[int(identity)] = row
    return order


def with_nodes(known: NodeTable, order: np.ndarray, names, draft: Draft) -> Draft:
    """The draft of the edges, completed by what the table says of the nodes, in the given order."""
    draft.node_names, draft.nodes_path = names, known.path
    draft.features = None if known.features is None else known.features[order]
    draft.labels = None if known.labels is None else known.labels[order]
    draft.split = None if known.split is None else known.split[:, order]
    draft.n_classes, draft.extra = known.n_classes, {**known.extra, **draft.extra}
    draft.notes += known.notes
    return draft


def write_nodes(file, graph: Graph, names: list[str]):
    """The table of nodes of a graph, with a header by which read_nodes finds every column without
    being told."""
    extra = graph.extra
    features = graph.features.to_dense() if isinstance(graph.features,
                                                       SparseRows) else graph.features
    feature_names = extra.get("feature_names")
    if not feature_names or len(feature_names) != graph.n_features:
        feature_names = [f"x{k}" for k in range(graph.n_features)]
    feature_names = [f"feature {name}" if _TAKEN_NAMES.fullmatch(name) else name
                     for name in feature_names]
    classes = extra.get("class_names") if len(extra.get("class_names",
                                                        ())) == graph.n_classes else None
    label_head = [f"label:{name}"
                  for name in classes or range(graph.n_classes)] if graph.multilabel else ["label"]
    split_head = ["split"] if len(graph.split) == 1 else [f"split:{k}"
                                                          for k in range(len(graph.split))]
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["id", *label_head, *split_head, *feature_names])
    for node, name in enumerate(names):
        label = graph.labels[node]
        shown = label.tolist() if graph.multilabel else ["" if label < 0 else classes[label]
                                                         if classes else int(label)]
        writer.writerow([name, *shown, *(_CODE_WORDS[int(code)] for code in graph.split[:, node]),
                         *(f"{value:.9g}" for value in features[node])])
