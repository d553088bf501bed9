"""Edge lists of node numbers, streamed: (sources, targets) a chunk at a time, checked line by line
where needed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hpcgcn.formats.draft import EdgeBlocks, LineBlocks
from hpcgcn.formats.edges import MOST_NODES
from hpcgcn.formats.files import bad
from hpcgcn.formats.progress import shown
from hpcgcn.formats.rows import Table, is_whole, parse_integers

LARGEST_WEIGHT = 1e30


def numbered_edges(table: Table, columns: tuple[int, ...], skip_first: bool, n_nodes: int | None,
                   first_id: int = 0) -> Iterator[tuple[np.ndarray, ...]]:
    """Edges of a table whose two columns hold node numbers from `first_id`, as numbers from 0; a
    third column holds their weights.

    n_nodes None: any number that can be kept.
    """
    blocks = numbered_lines(table, columns, skip_first, n_nodes, first_id)
    return shown(table.lines, (tuple(block[1:]) for block in blocks))


def numbered_lines(table: Table, columns: tuple[int, ...], skip_first: bool, n_nodes: int | None,
                   first_id: int = 0) -> LineBlocks:
    """The same edges with the numbers of their lines: (lines, sources, targets), and weights where
    there is a column of them."""
    end_columns = columns[:2]
    limit = (MOST_NODES if n_nodes is None else n_nodes) + first_id
    for first, chunk in table.chunks(skip_first):
        numbers = parse_integers(chunk, table.separator, table.n_columns)
        weights: list[np.ndarray] = []
        if numbers is None:
            numbers, lines, values = _slow(table, first, chunk, columns)
            weights = [values] if len(columns) > 2 else []
        else:
            weights = [numbers[:, column].astype(np.float32) for column in columns[2:]]
            numbers, lines = numbers[:, end_columns], np.arange(first, first + len(numbers))
        if len(numbers) and (numbers.min() < first_id or numbers.max() >= limit):
            row = int(np.flatnonzero(((numbers < first_id) | (numbers >= limit)).any(axis=1))[0])
            wrong = [int(n) for n in numbers[row] if not first_id <= n < limit][0]
            raise bad(table.path, lines[row], f"an edge to node {wrong}",
                      f"node ids in {first_id}..{limit - 1}")
        yield lines, numbers[:, 0] - first_id, numbers[:, 1] - first_id, *weights


def counted(blocks: EdgeBlocks, path, n_edges: int | None, announced: str) -> EdgeBlocks:
    """The same edges, refused at the end if another number of them was announced."""
    n_read = 0
    for block in blocks:
        n_read += len(block[0])
        yield block
    if n_edges is not None and n_read != n_edges:
        raise bad(path, None, f"{n_read} edges", f"the {n_edges} that {announced} announces")


def _slow(table: Table, first: int, chunk: bytes,
          columns: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows with more than digits and single separators in them: signs, spaces, blank lines, further
    columns of text."""
    lines, pairs, weights = [], [], []
    for number, row in table.rows(first, chunk):
        pair = [row[column] for column in columns[:2]]
        weights += [weight_of(table.path, number, row[column]) for column in columns[2:]]
        for cell in pair:
            if not is_whole(cell):
                raise bad(table.path, number, f"{cell[:40]!r}",
                          "a node number (--ids name reads ids of any kind)")
        lines.append(number)
        pairs.append([int(cell) for cell in pair])
    return (np.array(pairs, np.int64).reshape(-1, 2), np.array(lines, np.int64),
            np.array(weights, np.float32))


def weight_of(path, line: int, cell: str) -> float:
    """The weight of an edge in a cell of a table."""
    try:
        weight = float(cell)
    except ValueError:
        weight = -1.0
    if not 0 <= weight <= LARGEST_WEIGHT:
        raise bad(path, line, f"the edge weight {cell[:40]!r}",
                  "a finite number that is not negative, or --no-edge-weights")
    return weight + 0.0


def decimal(weight: np.float32) -> str:
    """A weight in as many digits as tell it from all others."""
    return f"{weight:.9g}"
