"""Sparse features in text: (node, feature, value) rows, svmlight, Matrix Market, JSON lists."""

from __future__ import annotations

import numpy as np

from hpcgcn.formats.files import Lines, bad, decoded, key_line, read_json, text_lines
from hpcgcn.formats.node_facts import NodeFacts, check_extent, check_texts, sparse_rows
from hpcgcn.formats.rows import Table, is_whole, parse_integers
from hpcgcn.graph.data import SparseRows

_LARGEST = float(np.finfo(np.float32).max)
_LARGEST_FEATURE = 2 ** 31 - 2
_FIELDS = ("pattern", "integer", "real", "double")


def read_triples(table: Table, headed: bool) -> NodeFacts:
    """A row per value: node, feature, value (no third column: 1)."""
    if table.n_columns not in (2, 3):
        raise bad(table.path, table.first_line, f"{table.n_columns} columns",
                  "two or three: node, feature, value")
    nodes: list[str] = []
    features: list[str] = []
    values: list[float] = []
    for first, chunk in table.chunks(skip_first=headed):
        whole = parse_integers(chunk, table.separator, table.n_columns)
        if whole is not None:
            nodes += map(str, whole[:, 0].tolist())
            features += map(str, whole[:, 1].tolist())
            values += whole[:, 2].tolist() if table.n_columns == 3 else [1.0] * len(whole)
            continue
        for number, row in table.rows(first, chunk):
            if not row[0] or not row[1]:
                raise bad(table.path, number, "a value without a node or a feature",
                          "node, feature, value")
            nodes.append(row[0])
            features.append(row[1])
            values.append(_value(table.path, number, row[2]) if len(row) == 3 else 1.0)
    if not nodes:
        raise bad(table.path, table.first_line, "a header and no values", "node, feature, value")
    columns, n_columns, names = _feature_numbers(table.path, features)
    ids, rows = np.unique(np.array(nodes, object), return_inverse=True)
    return NodeFacts(table.path, len(ids), [str(name) for name in ids],
                     features=sparse_rows(table.path, len(ids), n_columns, rows, columns,
                                          np.array(values, np.float64)),
                     extra={"feature_names": names} if names else {})


def _value(path, line: int, cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = np.nan
    if not abs(value) <= _LARGEST:
        raise bad(path, line, f"the value {cell[:40]!r}", "a finite number")
    return value


def _feature_numbers(path, features: list) -> tuple[np.ndarray, int, list[str] | None]:
    """(column of every entry, number of columns, names): whole numbers as they are, or words by
    their letters."""
    if all(map(is_whole, features)):
        columns = np.array([int(feature) for feature in features], np.int64)
        wrong = columns[(columns < 0) | (columns > _LARGEST_FEATURE)]
        if len(wrong):
            raise bad(path, None, f"the feature {wrong[0]}", "numbers from 0")
        return columns, int(columns.max(initial=0)) + 1, None
    names = sorted(set(features))
    number = {name: k for k, name in enumerate(names)}
    return np.array([number[feature] for feature in features], np.int64), len(names), names


def read_json_lists(path: str) -> NodeFacts:
    """{node: [feature, ...]}, or a list of such lists, one for each node."""
    content = read_json(path)
    if not isinstance(content, (dict, list)) or not content:
        raise bad(path, None, "no object or list of features",
                  'JSON such as {"0": [3, 17], "1": [5]}: node -> its features')
    lists = list(content.values()) if isinstance(content, dict) else content
    ids = list(content) if isinstance(content, dict) else None
    rows, features, n_again = [], [], 0
    for row, given in enumerate(lists):
        fault = None if isinstance(given, list) else f"a {type(given).__name__}"
        fault = fault or next((f"the feature {str(feature)[:40]!r}" for feature in given
                               if type(feature) not in (int, str)), None)
        if fault:
            name = ids[row] if ids else str(row)
            raise bad(path, key_line(path, name) if ids else None,
                      f"node {name[:40]!r} has {fault}",
                      "a list of features, each a whole number or a name; values go into an .npy, "
                      ".npz or .csv file")
        own = list(dict.fromkeys(map(str, given)))
        n_again += len(given) - len(own)
        features += own
        rows += [row] * len(own)
    check_texts(path, [*(ids or ()), *features])
    columns, n_columns, names = _feature_numbers(path, features)
    made = sparse_rows(path, len(lists), n_columns, np.array(rows, np.int64), columns, None)
    notes = [f"{n_again:,} features that a node lists twice count once"] if n_again else []
    return NodeFacts(path, len(lists), ids, None, made,
                     extra={"feature_names": names} if names else {}, notes=notes)


def read_svmlight(path: str) -> NodeFacts:
    """`target feature:value ...` per node, in the order of their numbers; targets are not used.

    Features count from 1 unless there is a feature 0.
    """
    rows, columns, values, n_rows = [], [], [], 0
    for line, text in text_lines(path):
        cells = text.split("#", 1)[0].split()
        if not cells:
            continue
        for cell in cells[0 if ":" in cells[0] else 1:]:
            feature, _, value = cell.partition(":")
            if feature == "qid":
                continue
            if not is_whole(feature) or not 0 <= int(feature) <= _LARGEST_FEATURE or not value:
                raise bad(path, line, f"{cell[:40]!r}", "feature:value, as in 17:0.5")
            rows.append(n_rows)
            columns.append(int(feature))
            values.append(_value(path, line, value))
        n_rows += 1
    if not columns:
        raise bad(path, None, "no features", "lines such as `1 3:0.5 17:1`")
    numbers = np.array(columns, np.int64)
    numbers -= 1 if numbers.min() > 0 else 0
    made = sparse_rows(path, n_rows, int(numbers.max()) + 1, np.array(rows, np.int64), numbers,
                       np.array(values))
    return NodeFacts(path, n_rows, features=made,
                     notes=["the targets in svmlight lines are not used (--labels)"])


def read_matrix_market(path: str) -> NodeFacts:
    """A matrix with a row per node and a column per feature, coordinate or array."""
    _, chunk = next(iter(Lines(path).chunks()))
    words = decoded(path, 1, chunk.split(b"\n", 1)[0]).lower().split()
    if (len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"] or words[4] != "general"
            or words[2] not in ("coordinate", "array") or words[3] not in _FIELDS):
        raise bad(path, 1, f"{' '.join(words)[:80]!r}",
                  "%%MatrixMarket matrix coordinate|array real|integer|pattern general")
    table = Table(path)
    sizes = [int(cell) for cell in table.first if cell.isdecimal() and len(cell) < 10]
    if len(sizes) != len(table.first) or len(sizes) != (3 if words[2] == "coordinate" else 2) \
            or 0 in sizes[:2]:
        raise bad(path, table.first_line, f"{' '.join(table.first)[:60]!r}",
                  "the numbers of nodes and features, and that of values if it is sparse")
    if words[2] == "array":
        return NodeFacts(path, sizes[0], features=_array(table, *sizes))
    table.n_columns = 2 if words[3] == "pattern" else 3
    return NodeFacts(path, sizes[0], features=_coordinates(table, *sizes))


def _array(table: Table, n_rows: int, n_columns: int) -> np.ndarray:
    """Values column after column, one per line."""
    table.n_columns = 1
    values = [_value(table.path, number, row[0]) for first, chunk in table.chunks(skip_first=True)
              for number, row in table.rows(first, chunk)]
    if len(values) != n_rows * n_columns:
        raise bad(table.path, None, f"{len(values):,} values", f"{n_rows} x {n_columns}")
    return np.array(values, np.float32).reshape(n_columns, n_rows).T.copy()


def _coordinates(table: Table, n_rows: int, n_columns: int, n_values: int) -> SparseRows:
    path = table.path
    check_extent(path, n_rows, n_columns, n_values)
    entries: list[tuple[int, int, float]] = []
    for first, chunk in table.chunks(skip_first=True):
        for number, row in table.rows(first, chunk):
            if not all(map(is_whole, row[:2])) or not (1 <= int(row[0]) <= n_rows
                                                       and 1 <= int(row[1]) <= n_columns):
                raise bad(path, number, f"the place {' '.join(row[:2])[:60]!r}",
                          f"a row in 1..{n_rows} and a column in 1..{n_columns}")
            entries.append((int(row[0]) - 1, int(row[1]) - 1,
                            _value(path, number, row[2]) if len(row) == 3 else 1.0))
    if len(entries) != n_values:
        raise bad(path, None, f"{len(entries):,} values", f"the {n_values:,} that line "
                  f"{table.first_line} announces")
    table_of_entries = np.array(entries, np.float64).reshape(-1, 3)
    places = table_of_entries[:, :2].astype(np.int64)
    return sparse_rows(path, n_rows, n_columns, places[:, 0], places[:, 1], table_of_entries[:, 2])
