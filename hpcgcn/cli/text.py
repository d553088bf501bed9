"""Plain text for people: tables, sizes, and the command line that a file is marked with."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from hpcgcn.errors import printable

MOST_CELL = 1000           # characters; what is shown may be the text of a file


def command_line() -> str:
    """The command that runs, as it could be typed again."""
    return shlex.join(["hpcgcn", *sys.argv[1:]])


def pairs(rows: Sequence[tuple[str, object]]) -> str:
    """Names and values in two columns."""
    rows = [(printable(name, MOST_CELL), printable(value, MOST_CELL)) for name, value in rows]
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join(f"{name:<{width}}  {value}".rstrip() for name, value in rows)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table with its columns aligned to the right."""
    cells = [[printable(cell, MOST_CELL) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths))
                     for row in cells)


def size(n_bytes: float) -> str:
    """Bytes in the unit that suits them."""
    for unit in ("B", "KiB", "MiB"):
        if n_bytes < 1024:
            return f"{n_bytes:.4g} {unit}"
        n_bytes /= 1024
    return f"{n_bytes:.4g} GiB"


def bars(rows: Sequence[tuple[str, int]], width: int = 40) -> str:
    """Names, counts and bars in proportion; whatever is not nothing has at least a dot."""
    rows = [(printable(name, MOST_CELL), count) for name, count in rows]
    most = max((count for _, count in rows), default=0) or 1
    names, counts = max(len(name) for name, _ in rows), max(len(f"{count:,}") for _, count in rows)
    lines = []
    for name, count in rows:
        bar = "#" * round(width * count / most)
        lines.append(
            f"  {name:>{names}}  {count:>{counts},}  {bar or ('.' if count else '')}".rstrip())
    return "\n".join(lines)
