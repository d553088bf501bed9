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


def numbered_edges(table: Table, columns: tuple[int, int], skip_first: bool, n_nodes: int | None,
                   first_id: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Edges of a table whose two columns hold node numbers from `first_id`, as numbers from 0.

    n_nodes None: any number that can be kept.
    """
    blocks = numbered_lines(table, columns, skip_first, n_nodes, first_id)
    return shown(table.lines, ((sources, targets) for _, sources, targets in blocks))


def numbered_lines(table: Table, columns: tuple[int, int], skip_first: bool, n_nodes: int | None,
                   first_id: int = 0) -> LineBlocks:
    """The same edges with the numbers of their lines: (lines, sources, targets)."""
    limit = (MOST_NODES if n_nodes is None else n_nodes) + first_id
    for first, chunk in table.chunks(skip_first):
        numbers = parse_integers(chunk, table.separator, table.n_columns)
        if numbers is None:
            numbers, lines = _slow(table, first, chunk, columns)
        else:
            numbers, lines = numbers[:, columns], np.arange(first, first + len(numbers))
        if len(numbers) and (numbers.min() < first_id or numbers.max() >= limit):
            row = int(np.flatnonzero(((numbers < first_id) | (numbers >= limit)).any(axis=1))[0])
            wrong = [int(n) for n in numbers[row] if not first_id <= n < limit][0]
            raise bad(table.path, lines[row], f"an edge to node {wrong}",
                      f"node ids in {first_id}..{limit - 1}")
        yield lines, numbers[:, 0] - first_id, numbers[:, 1] - first_id


def counted(blocks: EdgeBlocks, path, n_edges: int | None, announced: str) -> EdgeBlocks:
    """The same edges, refused at the end if another number of them was announced."""
    n_read = 0
    for sources, targets in blocks:
        n_read += len(sources)
        yield sources, targets
    if n_edges is not None and n_read != n_edges:
        raise bad(path, None, f"{n_read} edges", f"the {n_edges} that {announced} announces")


def _slow(table: Table, first: int, chunk: bytes,
          columns: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Rows with more than digits and single separators in them: signs, spaces, blank lines, further
    columns of text."""
    lines, pairs = [], []
    for number, row in table.rows(first, chunk):
        pair = [row[column] for column in columns]
        for cell in pair:
            if not is_whole(cell):
                raise bad(table.path, number, f"{cell[:40]!r}",
                          "a node number (--ids name reads ids of any kind)")
        lines.append(number)
        pairs.append([int(cell) for cell in pair])
    return np.array(pairs, np.int64).reshape(-1, 2), np.array(lines, np.int64)
