"""Parts of a graph, seen one after the other in bounded memory: the order of their nodes, what they
read of each other, and which of that is sent as it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcgcn.graph.csr import csr_from_edges, row_blocks, row_numbers
from hpcgcn.graph.data import Graph
from hpcgcn.graph.halo_cover import cover_of_part
from hpcgcn.graph.ordered import ordered_entries
from hpcgcn.graph.reorder import chosen_order, order_within


@dataclass
class Survey:
    """What is known once every part has been seen."""

    order: np.ndarray                # (n_nodes,) ids of the graph, part by part
    reorder: str                     # how nodes are ordered within a part
    cut: np.ndarray                  # (n_parts,) entries that lie in other parts
    halo: np.ndarray                 # (n_parts,) distinct nodes of other parts
    # (halo_offsets, halo_cover) of a partition file; None: not asked for
    cover: tuple[np.ndarray, np.ndarray] | None


def survey(graph: Graph, assignment: np.ndarray, n_parts: int, reorder: str,
           with_cover: bool) -> Survey:
    """Look at every part once. The graph's `indices` may be a dataset."""
    order = np.argsort(assignment, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(assignment, minlength=n_parts))])
    place = np.empty(graph.n_nodes, np.int32 if graph.n_nodes < 2 ** 31 else np.int64)
    cut, halo = np.zeros(n_parts, np.int64), np.zeros(n_parts, np.int64)
    halos, covers = [], []
    for rows, indptr, (columns,) in ordered_entries(graph.indptr, [graph.indices], order.copy(),
                                                    offsets[1:]):
        for part in range(int(np.searchsorted(offsets, rows.start)),
                          int(np.searchsorted(offsets, rows.stop))):
            mine = slice(int(offsets[part]) - rows.start, int(offsets[part + 1]) - rows.start)
            own = indptr[mine.start:mine.stop + 1]
            entries = columns[int(own[0]):int(own[-1])]
            own = own - own[0]
            nodes = order[offsets[part]:offsets[part + 1]]
            cut[part], halo[part] = _remote(own, entries, assignment, part)
            if with_cover:
                read, cover = cover_of_part(own, entries, assignment, part)
                halos.append(read)
                covers.append(cover)
            if reorder != "none":
                place[nodes] = np.arange(len(nodes), dtype=place.dtype)
                inside = _inside(own, entries, assignment, part, place, graph.directed)
                if reorder == "auto":            # the first part decides for all
                    reorder = chosen_order(*inside)
                order[offsets[part]:offsets[part + 1]] = nodes[order_within(reorder, *inside)]
    place[order] = np.arange(graph.n_nodes, dtype=place.dtype)
    return Survey(order, reorder, cut, halo,
                  _covers(halos, covers, place) if with_cover else None)


def _remote(indptr: np.ndarray, entries: np.ndarray, assignment: np.ndarray,
            part: int) -> tuple[int, int]:
    """How many entries of a part's rows lie in others, and how many distinct nodes they are."""
    cut, read = 0, np.zeros(len(assignment), bool)
    for rows in row_blocks(indptr):
        columns = entries[int(indptr[rows.start]):int(indptr[rows.stop])]
        remote = columns[assignment[columns] != part]
        read[remote] = True
        cut += len(remote)
    return cut, int(np.count_nonzero(read))


def _inside(indptr: np.ndarray, entries: np.ndarray, assignment: np.ndarray, part: int,
            place: np.ndarray, directed: bool) -> tuple[np.ndarray, np.ndarray]:
    """The CSR of the edges within a part, every edge both ways."""
    n_rows = len(indptr) - 1
    lengths, kept = np.zeros(n_rows, np.int64), [np.zeros(0, place.dtype)]
    for rows in row_blocks(indptr):
        block = indptr[rows.start:rows.stop + 1]
        columns = entries[int(block[0]):int(block[-1])]
        here = assignment[columns] == part
        kept.append(place[columns[here]])
        lengths[rows] = np.bincount(row_numbers(block)[here], minlength=rows.stop - rows.start)
    own = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    if directed:
        return csr_from_edges(n_rows, np.concatenate(kept), row_numbers(own), undirected=True)
    return own, np.concatenate(kept)


def _covers(halos: list[np.ndarray], covers: list[np.ndarray],
            place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The covers of all parts, each in the order of the file."""
    offsets = np.concatenate([[0], np.cumsum([len(cover) for cover in covers])]).astype(np.int64)
    return offsets, np.concatenate([np.zeros(0, bool), *(
        cover[np.argsort(place[halo])] for halo, cover in zip(halos, covers))])
