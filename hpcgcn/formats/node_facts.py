"""What files beside an edge list say of its nodes: features, labels and splits, by id or row after
row."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np

from hpcgcn.errors import ConfigError, FileError
from hpcgcn.formats.draft import Draft
from hpcgcn.formats.files import CONTROL, bad
from hpcgcn.formats.rows import is_whole
from hpcgcn.graph.data import SparseRows

# More rows or columns than this per stored value are an error in a number: they would fill memory.
MOST_PER_VALUE = 100
_PLAIN_ROWS, _PLAIN_COLUMNS = 1_000_000, 100_000


@dataclass
class NodeFacts:
    """What one file says of nodes; what is None is not in it."""

    path: str
    n_rows: int
    ids: list[str] | None = None           # None: row k is node k
    lines: list[int] | None = None         # the line of every row, for messages
    features: np.ndarray | SparseRows | None = None
    labels: np.ndarray | None = None
    n_classes: int | None = None
    split: np.ndarray | None = None        # (n_splits, n_rows)
    extra: dict = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def line(self, row: int) -> int | None:
        """The line of a row, where the file has lines."""
        return self.lines[row] if self.lines else None


def check_texts(path, texts: list[str]):
    """Refuse ids and names that cannot be a line of text, shown on a terminal."""
    for text in texts:
        if not text.isprintable() and (CONTROL.search(text) or "\r" in text or _has_no_bytes(text)):
            raise bad(path, None, f"the text {text[:40]!r}",
                      "text in UTF-8 without line feeds and control characters")


def _has_no_bytes(text: str) -> bool:
    """Half a surrogate pair cannot be written anywhere."""
    return text.encode("utf-8", "replace") != text.encode("utf-8", "surrogatepass")


def check_extent(path, n_rows: int, n_columns: int, n_values: int):
    """Refuse a size that a few values do not bear out: it would fill the memory."""
    for count, plain, what in ((n_rows, _PLAIN_ROWS, "rows"),
                               (n_columns, _PLAIN_COLUMNS, "feature columns")):
        if count > min(plain + MOST_PER_VALUE * n_values, 2 ** 31 - 1):
            raise bad(path, None, f"{count:,} {what} for {n_values:,} values",
                      f"{what} numbered without large gaps")


def sparse_rows(path, n_rows: int, n_columns: int, rows: np.ndarray, columns: np.ndarray,
                values: np.ndarray | None) -> SparseRows:
    """Sparse features of entries in any order; the same entry twice is refused."""
    check_extent(path, n_rows, n_columns, len(rows))
    order = np.lexsort((columns, rows))
    rows, columns = rows[order], columns[order]
    again = np.flatnonzero((rows[1:] == rows[:-1]) & (columns[1:] == columns[:-1]))
    if len(again):
        raise bad(path, None, f"two values of row {rows[again[0]]}, feature {columns[again[0]]}",
                  "one value for each")
    indptr = np.zeros(n_rows + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=n_rows), out=indptr[1:])
    if values is not None:
        with np.errstate(over="ignore"):
            values = values[order].astype(np.float32)
        wrong = np.flatnonzero(~np.isfinite(values))
        if len(wrong):
            raise bad(path, None, f"row {rows[wrong[0]]} has a feature that is {values[wrong[0]]}",
                      "finite numbers in the range of float32")
        values = None if (values == 1).all() else values
    return SparseRows(indptr, columns.astype(np.int32), values, n_columns)


class FactsOfFiles:
    """The files that --features and --labels name, brought to the nodes of an edge list."""

    def __init__(self, files: list[NodeFacts]):
        self.files = files
        lengths = {facts.n_rows: facts.path for facts in files if facts.ids is None}
        if len(lengths) > 1:
            (first, path), (second, other) = list(lengths.items())[:2]
            raise FileError(f"{path} has {first} rows and {other} has {second}; expected as many, "
                            "one for each node")
        self.n_rows = next(iter(lengths), None)      # of files whose rows have no ids

    def ids(self) -> set[str]:
        """All ids that are in the files."""
        return {identity for facts in self.files for identity in facts.ids or ()}

    @property
    def numbered(self) -> bool:
        """Can all ids be node numbers?"""
        return all(is_whole(identity) and int(identity) >= 0 for identity in self.ids())

    def n_numbers(self, largest: int, n_edges: int, path: str) -> int:
        """The number of nodes if ids are node numbers; `largest` is that of the edges."""
        if self.n_rows is not None:
            if largest >= self.n_rows:
                raise FileError(f"{path}: there is an edge to node {largest}, but "
                                f"{self.files[0].path} has {self.n_rows} rows; expected a row for "
                                "every node, in the order of their numbers")
            return self.n_rows
        ids = self.ids()
        n_nodes = 1 + max([largest, *map(int, ids)])
        if n_nodes > MOST_PER_VALUE * (n_edges + len(ids)) + 1000:
            raise FileError(f"{path}: the largest id is {n_nodes - 1}, but there are only "
                            f"{n_edges} edges and {len(ids)} ids in {self.files[0].path}; "
                            "expected ids from 0 without large gaps, or --ids name to number the "
                            "nodes anew")
        return n_nodes

    def fill(self, draft: Draft, n_nodes: int, names: list[str] | None, where: str) -> Draft:
        """The draft, completed by the files; names: the ids of the nodes, None if they are
        numbers; where: the file that lists the nodes."""
        number = None if names is None else {name: k for k, name in enumerate(names)}
        for facts in self.files:
            self._check_once(facts, draft)
            rows = _rows_of_nodes(facts, n_nodes, number, where)
            if facts.features is not None:
                draft.features = _features(facts, rows, names)
            if facts.labels is not None:
                draft.labels, draft.n_classes = _labels(facts, rows), facts.n_classes
            if facts.split is not None:
                draft.split = facts.split if rows is None else np.where(rows < 0, 0,
                                                                        facts.split[:, rows])
            draft.extra = {**draft.extra, **facts.extra}
            draft.notes += facts.notes
            draft.nodes_path = draft.nodes_path or facts.path
        return draft

    @staticmethod
    def _check_once(facts: NodeFacts, draft: Draft):
        for what, remedy in (("features", " or --feature-columns none"), ("labels", ""),
                             ("split", "")):
            if getattr(facts, what) is not None and getattr(draft, what) is not None:
                raise ConfigError(f"{what} are in {facts.path} and in {draft.nodes_path}; expected "
                                  f"one place: leave out one of the files{remedy}")


def _rows_of_nodes(facts: NodeFacts, n_nodes: int, number: dict[str, int] | None,
                   where: str) -> np.ndarray | None:
    """The row of every node, -1 if it has none; None: row k is node k."""
    if facts.ids is None:
        if facts.n_rows != n_nodes:
            raise bad(facts.path, None, f"{facts.n_rows} rows",
                      f"one for each of the {n_nodes} nodes of {where}")
        return None
    rows = np.full(n_nodes, -1, np.int64)
    for row, identity in enumerate(facts.ids):
        node = (int(identity) if is_whole(identity) else -1) if number is None \
            else number.get(identity, -1)
        if not 0 <= node < n_nodes:
            known = f"0..{n_nodes - 1}" if number is None else f"the {n_nodes} ids"
            raise bad(facts.path, facts.line(row), f"node {identity[:60]!r}",
                      f"one of {known} of {where}")
        if rows[node] >= 0:
            raise bad(facts.path, facts.line(row), f"node {identity[:60]!r} again",
                      "every node once")
        rows[node] = row
    return rows


def _features(facts: NodeFacts, rows: np.ndarray | None, names: list[str] | None):
    features = facts.features
    assert features is not None
    if rows is None:
        return features
    missing = np.flatnonzero(rows < 0)
    if len(missing) and not isinstance(features, SparseRows):
        node = names[missing[0]] if names else missing[0]
        raise bad(facts.path, None, f"no row for node {str(node)[:60]!r} ({len(missing):,} nodes "
                  "have none)", "features of every node")
    if not isinstance(features, SparseRows):
        return features[rows]
    if len(missing):
        facts.notes.append(f"{len(missing):,} nodes are not in {os.path.basename(facts.path)}: "
                           "all their features are 0")
    with_empty_row = SparseRows(np.append(features.indptr, features.indptr[-1]), features.indices,
                                features.values, features.n_columns)
    return with_empty_row.take(np.where(rows < 0, facts.n_rows, rows))


def _labels(facts: NodeFacts, rows: np.ndarray | None) -> np.ndarray:
    labels = facts.labels
    assert labels is not None
    if rows is None:
        return labels
    n_missing = int((rows < 0).sum())
    if n_missing:
        facts.notes.append(f"{n_missing:,} nodes are not in {os.path.basename(facts.path)}: they "
                           f"have no {'class' if labels.ndim == 2 else 'label'}")
    if labels.ndim == 2:
        return np.where(rows[:, None] < 0, 0, labels[rows]).astype(np.uint8)
    return np.where(rows < 0, -1, labels[rows]).astype(np.int32)
