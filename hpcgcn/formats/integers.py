"""Edge lists of node numbers, streamed: (sources, targets) a chunk at a time, checked line by line where needed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hpcgcn.formats.edges import MOST_NODES
from hpcgcn.formats.files import bad
from hpcgcn.formats.progress import progress_bar
from hpcgcn.formats.rows import Table, is_whole, parse_integers


def numbered_edges(table: Table, columns: tuple[int, int], skip_first: bool, n_nodes: int | None,
                   first_id: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Edges of a table whose two columns hold node numbers from `first_id`, as numbers from 0.

    n_nodes None: any number that can be kept.
    """
    limit = (MOST_NODES if n_nodes is None else n_nodes) + first_id
    bar, n_rows = progress_bar("edges", table.lines.size), 0
    for first, chunk in table.chunks(skip_first):
        numbers = parse_integers(chunk, table.separator, table.n_columns)
        if numbers is None:
            numbers, lines = _slow(table, first, chunk, columns)
        else:
            numbers, lines = numbers[:, columns], None
        if len(numbers) and (numbers.min() < first_id or numbers.max() >= limit):
            row = int(np.flatnonzero(((numbers < first_id) | (numbers >= limit)).any(axis=1))[0])
            wrong = [int(n) for n in numbers[row] if not first_id <= n < limit][0]
            raise bad(table.path, first + row if lines is None else lines[row], f"an edge to node {wrong}",
                      f"node ids in {first_id}..{limit - 1}")
        n_rows += len(numbers)
        bar.update(table.lines.done, n_rows)
        yield numbers[:, 0] - first_id, numbers[:, 1] - first_id
    bar.close()


def _slow(table: Table, first: int, chunk: bytes, columns: tuple[int, int]) -> tuple[np.ndarray, list[int]]:
    """Rows with more than digits and single separators in them: signs, spaces, blank lines, further columns of text."""
    lines, pairs = [], []
    for number, row in table.rows(first, chunk):
        pair = [row[column] for column in columns]
        for cell in pair:
            if not is_whole(cell):
                raise bad(table.path, number, f"{cell[:40]!r}", "a node number (--ids name reads ids of any kind)")
        lines.append(number)
        pairs.append([int(cell) for cell in pair])
    return np.array(pairs, np.int64).reshape(-1, 2), lines
