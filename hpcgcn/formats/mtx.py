"""Matrix Market files: `matrix coordinate`, any field, general or symmetric; entry (u, v) is an
edge from u to v."""

from __future__ import annotations

import os

from hpcgcn.formats.beside import of_node_table, read_beside
from hpcgcn.formats.draft import Draft, ReadOptions, unused_weights
from hpcgcn.formats.files import Lines, bad, decoded, inside, present
from hpcgcn.formats.integers import counted, decimal, numbered_edges, numbered_lines
from hpcgcn.formats.nodes import numbered_order, read_nodes, with_nodes, write_nodes
from hpcgcn.formats.rows import Table
from hpcgcn.graph.csr import row_numbers
from hpcgcn.graph.data import Graph

_FIELDS = {"pattern": 2, "integer": 3, "real": 3, "double": 3, "complex": 4}
_SYMMETRIES = ("general", "symmetric", "skew-symmetric", "hermitian")


def recognises(sources: list[str]) -> bool:
    """Is this a MatrixMarket file, with a table of nodes beside it or not?"""
    if len(sources) == 1 and os.path.isdir(sources[0]):
        return os.path.exists(os.path.join(sources[0], "edges.mtx"))
    return sources[0].lower().endswith((".mtx", ".mtx.gz")) and len(sources) <= 2


def read(sources: list[str], options: ReadOptions) -> Draft:
    """The graph in a MatrixMarket file, with a table of nodes beside it or not."""
    path, nodes = _located(sources, options)
    field, symmetry = _banner(path)
    table = Table(path)
    n_nodes, n_entries = _sizes(table)
    table.n_columns = _FIELDS[field]
    # A complex number is no weight, and one that changes its sign with the direction is none.
    weighted = table.n_columns == 3 and symmetry in ("general", "symmetric") and options.weights
    columns = (0, 1, 2) if weighted else (0, 1)
    draft = Draft(lambda: counted(numbered_edges(table, columns, True, n_nodes, 1), path,
                                  n_entries, f"line {table.first_line}"), n_nodes,
                  lines=lambda: numbered_lines(table, (0, 1), True, n_nodes, 1),
                  source=os.path.basename(path), path=path, strict=True,
                  pairs=symmetry != "general", weighted=weighted)
    if table.n_columns > 2 and not weighted:
        draft.notes.append(unused_weights(f"{field} {symmetry} values", path))
    beside = read_beside(options)
    if nodes is not None:
        known = read_nodes(nodes, of_node_table(options))
        if len(known.ids) != n_nodes:
            raise bad(nodes, None, f"{len(known.ids)} nodes", f"the {n_nodes} of {path}")
        with_nodes(known, numbered_order(nodes, known), None, draft)
    return beside.fill(draft, n_nodes, None, path) if beside else draft


def _located(sources: list[str], options: ReadOptions) -> tuple[str, str | None]:
    if os.path.isdir(sources[0]):
        return inside(sources[0], "edges.mtx"), options.nodes or present(sources[0], "nodes.csv")
    return sources[0], sources[1] if len(sources) == 2 else options.nodes


def _banner(path: str) -> tuple[str, str]:
    """(field, symmetry) of the first line."""
    _, chunk = next(iter(Lines(path).chunks()))
    words = decoded(path, 1, chunk.split(b"\n", 1)[0]).lower().split()
    if (len(words) != 5 or words[0] != "%%matrixmarket" or words[1:3] != ["matrix", "coordinate"]
        or words[3] not in _FIELDS or words[4] not in _SYMMETRIES):
        raise bad(path, 1, f"{' '.join(words)[:80]!r}",
                  "%%MatrixMarket matrix coordinate pattern|integer|real general|symmetric")
    return words[3], words[4]


def _sizes(table: Table) -> tuple[int, int]:
    cells = table.first
    if len(cells) != 3 or not all(cell.isdecimal() and len(cell) < 19 for cell in cells):
        raise bad(table.path, table.first_line, f"{' '.join(cells)[:60]!r}",
                  "rows, columns and number of entries")
    n_rows, n_columns, n_entries = map(int, cells)
    if n_rows != n_columns or not 0 < n_rows < 2 ** 31:
        raise bad(table.path, table.first_line, f"a matrix of {n_rows} x {n_columns}",
                  "a square one, with one row per node")
    return n_rows, n_entries


def write(folder: str, graph: Graph):
    """A folder with edges.mtx (general; real if edges have weights, or else pattern) and
    nodes.csv."""
    weights = [] if graph.edge_weights is None else [map(decimal, graph.edge_weights)]
    with open(os.path.join(folder, "edges.mtx"), "w", encoding="ascii") as file:
        file.write(f"%%MatrixMarket matrix coordinate {'real' if weights else 'pattern'} "
                   f"general\n{graph.n_nodes} {graph.n_nodes} {graph.n_edges}\n")
        file.writelines(f"{' '.join((str(source + 1), str(target + 1), *weight))}\n"
                        for source, target, *weight in zip(graph.indices.tolist(),
                                                           row_numbers(graph.indptr).tolist(),
                                                           *weights))
    with open(os.path.join(folder, "nodes.csv"), "w", encoding="utf-8", newline="") as file:
        write_nodes(file, graph, [str(node) for node in range(graph.n_nodes)])
