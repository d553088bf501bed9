"""Edge lists as text: any of the usual separators, with a header or without, ids of any kind, gzip
or not; and nodes."""

from __future__ import annotations

import csv
import gzip
import io
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from hpcgcn.errors import ConfigError, GraphError
from hpcgcn.formats.beside import found_beside, of_node_table, read_beside
from hpcgcn.formats.draft import Draft, LineBlocks, ReadOptions, unused_weights
from hpcgcn.formats.files import bad, present
from hpcgcn.formats.integers import decimal, numbered_edges, numbered_lines, weight_of
from hpcgcn.formats.node_facts import FactsOfFiles
from hpcgcn.formats.nodes import numbered_order, read_nodes, with_nodes, write_nodes
from hpcgcn.formats.progress import shown
from hpcgcn.formats.rows import Table, is_number, is_whole
from hpcgcn.graph.csr import row_numbers
from hpcgcn.graph.data import Graph

_ENDINGS = (".csv", ".tsv", ".txt", ".edges", ".edgelist", ".csv.gz", ".tsv.gz", ".txt.gz",
            ".edges.gz", ".edgelist.gz")
_BLOCK = 1 << 20           # rows in flight at once
_WEIGHTS = ("weight", "edge_weight", "weights")
_ENDS = (("source", "src", "from", "u", "head", "node1", "citing"),
         ("target", "dst", "to", "v", "tail", "node2", "cited"))


def recognises(sources: list[str]) -> bool:
    """Are these tables of edges and nodes, separated by commas, tabs or spaces?"""
    if len(sources) == 1 and os.path.isdir(sources[0]):
        return _in_folder(sources[0], "edges") is not None
    return len(sources) <= 2 and all(source.lower().endswith(_ENDINGS) for source in sources)


def _in_folder(folder: str, stem: str) -> str | None:
    return present(folder, *(stem + ending for ending in _ENDINGS))


def read(sources: list[str], options: ReadOptions) -> Draft:
    """The graph in tables of edges and nodes, separated by commas, tabs or spaces."""
    edges, nodes = _located(sources, options)
    table = Table(edges)
    if table.n_columns < 2:
        raise bad(edges, table.first_line, "one column",
                  "at least two: source and target, separated by commas, tabs or spaces")
    headed = _is_headed(table, options)
    columns = _end_columns(table, options, headed)
    weighted = (*columns, *_weight_column(table, options, columns, headed))
    facts: dict[str, Any] = {
        "source": os.path.basename(edges), "path": edges, "strict": True,
        "weighted": len(weighted) > 2,
        "notes": _unused_columns(table, weighted, headed),
        "extra": ({"edge_columns": [table.first[column] for column in columns]} if headed
                  else {})}
    numbers = options.ids == "number" or (options.ids == "auto" and not nodes
                                          and _looks_numbered(table, columns, headed))
    options, noted = found_beside(sources, options) if nodes is None else (options, [])
    facts["notes"] += noted
    beside = read_beside(options)
    if nodes is None and beside is None:
        _check_no_columns(options)
    if nodes is None and beside is not None:
        numbers = (options.ids == "number" or (options.ids == "auto" and beside.numbered
                                               and _looks_numbered(table, columns, headed)))
        return _with_files(table, weighted, headed, beside, numbers, facts)
    if nodes is None and numbers:
        return Draft(lambda: numbered_edges(table, weighted, headed, None), None,
                     lines=lambda: numbered_lines(table, columns, headed, None), **facts)
    if nodes is None:
        return _named(table, weighted, headed, _distinct_ids(table, columns, headed), None, facts)
    known = read_nodes(nodes, of_node_table(options))
    if options.ids == "number" or known.ids == [str(k) for k in range(len(known.ids))]:
        order = numbered_order(nodes, known)
        draft = Draft(lambda: numbered_edges(table, weighted, headed, len(order)), len(order),
                      lines=lambda: numbered_lines(table, columns, headed, len(order)), **facts)
        with_nodes(known, order, None, draft)
        return beside.fill(draft, len(order), None, nodes) if beside else draft
    draft = _named(table, weighted, headed, known.ids, nodes, facts)
    with_nodes(known, np.arange(len(known.ids)), draft.node_names, draft)
    return beside.fill(draft, len(known.ids), known.ids, nodes) if beside else draft


def _with_files(table: Table, weighted: tuple[int, ...], headed: bool, beside: FactsOfFiles,
                numbers: bool, facts: dict[str, Any]) -> Draft:
    """A graph whose nodes are those of the edges and of the files beside them."""
    columns = weighted[:2]
    if not numbers:
        if beside.n_rows is not None:
            raise bad(table.path, table.first_line, "nodes that are not numbered from 0",
                      f"node numbers, because rows of {beside.files[0].path} have no ids")
        ids = {*_distinct_ids(table, columns, headed), *beside.ids()}
        names = _sorted_ids(ids)
        return beside.fill(_named(table, weighted, headed, names, None, facts), len(names), names,
                           table.path)
    largest, n_edges = -1, 0
    for _, sources, targets in numbered_lines(table, columns, headed, None):
        largest = max(largest, int(sources.max(initial=-1)), int(targets.max(initial=-1)))
        n_edges += len(sources)
    n_nodes = beside.n_numbers(largest, n_edges, table.path)
    draft = Draft(lambda: numbered_edges(table, weighted, headed, n_nodes), n_nodes,
                  lines=lambda: numbered_lines(table, columns, headed, n_nodes), **facts)
    return beside.fill(draft, n_nodes, None, table.path)


def _named(table: Table, columns: tuple[int, ...], headed: bool, names: list[str],
           nodes: str | None, facts: dict[str, Any]) -> Draft:
    """A graph whose edges are between names."""
    return Draft(lambda: _named_edges(table, columns, headed, names, nodes), len(names),
                 node_names=_names(names),
                 lines=lambda: _named_lines(table, columns[:2], headed, names, nodes), **facts)


def _check_no_columns(options: ReadOptions):
    for name in ("id_column", "label_column", "split_column", "feature_columns",
                 "skip_columns"):
        if getattr(options, name):
            raise ConfigError(f"--{name.replace('_', '-')}, but there is no table of nodes; "
                              "expected one after the edges, or --nodes FILE")


def _located(sources: list[str], options: ReadOptions) -> tuple[str, str | None]:
    if len(sources) > 2 or (len(sources) == 2 and options.nodes):
        raise ConfigError(f"{len(sources)} files for one edge list; expected the edges and at "
                          "most one table of nodes")
    if len(sources) == 1 and os.path.isdir(sources[0]):
        edges = _in_folder(sources[0], "edges")
        if edges is None:
            raise ConfigError(f"{sources[0]} has no edges.csv; expected that file there, and "
                              "nodes.csv beside it")
        return edges, options.nodes or _in_folder(sources[0], "nodes")
    return sources[0], sources[1] if len(sources) == 2 else options.nodes


def _is_headed(table: Table, options: ReadOptions) -> bool:
    """Names in the first row: known ones, or words above numbers."""
    if options.header != "auto":
        return options.header == "yes"
    first = [cell.lower() for cell in table.first]
    if options.edge_columns or all(any(name in first for name in known) for known in _ENDS):
        return True
    return (table.second is not None and not any(map(is_whole, first[:2]))
            and all(map(is_whole, table.second[:2])))


def _end_columns(table: Table, options: ReadOptions, headed: bool) -> tuple[int, int]:
    names = table.first
    if options.edge_columns:
        for name in options.edge_columns:
            if name not in names:
                raise bad(table.path, table.first_line, f"no column {name!r}",
                          f"one of {', '.join(names)[:200]}")
        if options.edge_columns[0] == options.edge_columns[1]:
            raise ConfigError(f"--edge-columns {','.join(options.edge_columns)}: expected two "
                              "different columns")
        return names.index(options.edge_columns[0]), names.index(options.edge_columns[1])
    lower = [name.lower() for name in names]
    source, target = (next((lower.index(name) for name in known if name in lower), None)
                      for known in _ENDS)
    if not headed or source is None or target is None:
        return 0, 1
    return source, target


def _weight_column(table: Table, options: ReadOptions, end_columns: tuple[int, int],
                   headed: bool) -> list[int]:
    """The column of edge weights, if there is one: the one that is asked for, or one whose name
    says so."""
    names = table.first if headed else [str(k + 1) for k in range(table.n_columns)]
    asked_for = options.weight_column
    if not options.weights:
        return []
    if asked_for is None:
        lower = [name.lower() for name in names] if headed else []
        return [lower.index(name) for name in _WEIGHTS if name in lower
                and lower.index(name) not in end_columns][:1]
    if asked_for not in names or names.index(asked_for) in end_columns:
        others = [name for k, name in enumerate(names) if k not in end_columns]
        raise bad(table.path, table.first_line, f"no column of weights {asked_for!r}",
                  f"one of {', '.join(others)[:200]}" if others else "a third column")
    return [names.index(asked_for)]


def _unused_columns(table: Table, columns: tuple[int, ...], headed: bool) -> list[str]:
    """A note if there are columns of numbers beside those in use; the first row tells."""
    row = (table.second if headed else table.first) or []
    unused = [table.first[k] if headed else str(k + 1)
             for k in range(len(row)) if k not in columns and is_number(row[k])]
    words = f"column{'s' if len(unused) > 1 else ''} {', '.join(unused)[:80]}"
    remedy = "" if len(columns) > 2 else f" (--weight-column {unused[0][:40]})" if unused else ""
    return [unused_weights(words, table.path) + remedy] if unused else []


def _looks_numbered(table: Table, columns, headed: bool) -> bool:
    row = table.second if headed else table.first
    return row is not None and all(len(row) > column and is_whole(row[column])
                                   for column in columns)


def _names(ids: list[str]) -> np.ndarray:
    """Ids as whole numbers if all can be, or else as text."""
    if all(is_whole(name) and str(int(name)) == name for name in ids):
        return np.array([int(name) for name in ids], np.int64)
    return np.array([name.encode() for name in ids])


def _end_cells(table: Table, columns, headed: bool) -> Iterator[tuple]:
    """(line, source, target) of every row, and the weight if there is a column of them."""
    for first, chunk in table.chunks(headed):
        for number, row in table.rows(first, chunk):
            source, target, *weight = (row[column] for column in columns)
            if not source or not target:
                raise bad(table.path, number, "an edge with an end missing", "two ids")
            yield number, source, target, *(weight_of(table.path, number, cell)
                                            for cell in weight)


def _distinct_ids(table: Table, columns, headed: bool) -> list[str]:
    """All ids of an edge list, sorted: numbers by value, text by its letters.

    A first pass over the file.
    """
    ids: set[str] = set()
    for _, source, target in _end_cells(table, columns, headed):
        ids.update((source, target))
    return _sorted_ids(ids)


def _sorted_ids(ids: set[str]) -> list[str]:
    numeric = all(map(is_whole, ids))
    return sorted(ids, key=(lambda name: (int(name), name)) if numeric else None)


def _named_edges(table: Table, columns, headed: bool, names: list[str], nodes: str | None):
    """Edges by name, as node numbers; an id that no node has is refused."""
    blocks = _named_lines(table, columns, headed, names, nodes)
    return shown(table.lines, (tuple(block[1:]) for block in blocks))


def _named_lines(table: Table, columns, headed: bool, names: list[str],
                 nodes: str | None) -> LineBlocks:
    """The same edges with the numbers of their lines."""
    number = {name: k for k, name in enumerate(names)}
    rows: list[tuple[int, int, int]] = []
    weights: list[float] = []
    for line, source, target, *weight in _end_cells(table, columns, headed):
        if source not in number or target not in number:
            missing = source if source not in number else target
            raise bad(table.path, line, f"an edge to node {missing[:60]!r}",
                      f"one of the {len(names)} ids in {nodes}")
        rows.append((line, number[source], number[target]))
        weights += weight
        if len(rows) == _BLOCK:
            yield _columns_of(rows, weights, columns)
            rows, weights = [], []
    yield _columns_of(rows, weights, columns)


def _columns_of(rows: list[tuple[int, int, int]], weights: list[float],
                columns) -> tuple[np.ndarray, ...]:
    table = np.array(rows, np.int64).reshape(-1, 3)
    return (table[:, 0], table[:, 1], table[:, 2],
            *([np.array(weights, np.float32)] if len(columns) > 2 else []))


def names_of(graph: Graph) -> list[str]:
    """The user's own ids as text, or the numbers of the nodes."""
    if graph.node_names is None:
        return [str(node) for node in range(graph.n_nodes)]
    return [name.decode() if isinstance(name, bytes) else str(name)
            for name in graph.node_names.tolist()]


def write(folder: str, graph: Graph):
    """A folder with edges.csv.gz and nodes.csv.gz; every direction of an edge is a row."""
    names = names_of(graph)
    if len(set(names)) != len(names):
        raise GraphError("two nodes have the same name, so edges by name would be ambiguous; "
                         "choose --format npz")
    with _writing(folder, "edges.csv.gz") as file:
        writer = csv.writer(file, lineterminator="\n")
        weights = [] if graph.edge_weights is None else [map(decimal, graph.edge_weights)]
        writer.writerow(["source", "target", *(["weight"] if weights else [])])
        writer.writerows((names[source], names[target], *weight)
                         for source, target, *weight in zip(graph.indices.tolist(),
                                                            row_numbers(graph.indptr).tolist(),
                                                            *weights))
    with _writing(folder, "nodes.csv.gz") as file:
        write_nodes(file, graph, names)


def _writing(folder: str, name: str):
    return io.TextIOWrapper(gzip.open(os.path.join(folder, name), "wb", compresslevel=4),
                            encoding="utf-8", newline="")
