"""Features in tables of text: a column per feature, or a row per value (node, feature, value)."""

from __future__ import annotations

import numpy as np

from hpcgcn.errors import FileError
from hpcgcn.formats.columns import NO_COLUMNS, id_column, listed_columns
from hpcgcn.formats.draft import ReadOptions
from hpcgcn.formats.feature_triples import read_svmlight, read_triples
from hpcgcn.formats.files import bad
from hpcgcn.formats.node_facts import NodeFacts
from hpcgcn.formats.nodes import float_block
from hpcgcn.formats.rows import Table, is_number, is_whole

_NODE = ("node", "node_id", "nodeid", "id", "row", "name")
_FEATURE = ("feature", "feature_id", "column", "col", "word", "attribute", "term")
_TRUTH = ("true", "false")


def read_table(path: str, options: ReadOptions) -> NodeFacts:
    """A table of text: dense, triples or svmlight, as --features-format says or it looks."""
    table = Table(path)
    kind = options.features_format
    if kind == "auto":
        kind = _looks_like(table)
    if kind == "svmlight":
        return read_svmlight(path)
    if kind == "triples":
        return read_triples(table, _names_triples(table) or _words_above_numbers(table))
    return read_dense(table, options)


def _looks_like(table: Table) -> str:
    if any(":" in cell and all(map(is_number, cell.split(":", 1))) for cell in table.first):
        return "svmlight"
    if _names_triples(table):
        return "triples"
    whole = all(map(is_whole, table.first[:2]))
    if table.n_columns == 3 and whole:
        raise bad(table.path, table.first_line, "three columns of numbers without a header",
                  "--features-format dense (a row per node) or --features-format triples (node, "
                  "feature, value)")
    return "dense"


def _names_triples(table: Table) -> bool:
    first = [cell.lower() for cell in table.first]
    return table.n_columns in (2, 3) and first[0] in _NODE and first[1] in _FEATURE


def _words_above_numbers(table: Table) -> bool:
    """Is the first row a header, judging by its second column?"""
    return (table.n_columns > 1 and not is_whole(table.first[1]) and table.second is not None
            and len(table.second) > 1 and is_whole(table.second[1]))


def read_dense(table: Table, options: ReadOptions) -> NodeFacts:
    """A row per node: its id, if a column of the header has them, and a column per feature."""
    headed = not all(is_number(cell) or cell.lower() in _TRUTH for cell in table.first)
    if not headed:
        columns, identity = list(range(table.n_columns)), None
        if options.feature_columns or options.skip_columns:
            raise FileError(f"{table.path} has no header; expected one with --feature-columns or "
                            "--skip-columns")
    else:
        identity = id_column(table, options)
        columns = listed_columns(table, options, {identity})
    if not columns:
        words = f"(--feature-columns {NO_COLUMNS})" if options.feature_columns else ""
        raise bad(table.path, table.first_line, f"no columns of features {words}".strip(),
                  "at least one")
    blocks, ids, lines = [], [], []
    for first, chunk in table.chunks(skip_first=headed):
        rows = list(table.rows(first, chunk))
        lines += [number for number, _ in rows]
        if identity is not None:
            ids += [row[identity] for _, row in rows]
        blocks.append(float_block(table, rows, columns, headed, needed=True))
    if not lines:
        raise bad(table.path, table.first_line, "a header and no rows", "a row for every node")
    return NodeFacts(table.path, len(lines), ids if identity is not None else None, lines,
                     np.concatenate(blocks),
                     extra={"feature_names": [table.first[k] for k in columns]} if headed else {})
