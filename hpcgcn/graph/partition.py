"""Dividing a graph into parts, and what a division costs: edges cut, rows to exchange, balance."""

from __future__ import annotations

import numpy as np

from hpcgcn.errors import ConfigError, GraphError
from hpcgcn.graph.checks import edge_problems, indptr_problems
from hpcgcn.graph.csr import csr_from_edges, entry_positions, row_blocks, row_numbers, take_indptr
from hpcgcn.graph.data import TRAIN, Graph
from hpcgcn.graph.traffic import exchanged_rows, rows_between_hosts

METHODS = ("metis", "random", "block")
OBJECTIVES = ("volume", "cut")
BALANCES = ("nodes", "edges", "train")
_METIS_NODES_PER_PART = 8    # with fewer, METIS leaves parts empty and complains on standard output
_UNEVEN = 1.03             # the largest part over the mean that METIS allows, and so do we


def partition_graph(graph: Graph, n_parts: int, method: str = "metis", objective: str = "volume",
                    balance: str = "nodes", seed: int = 0, split_index: int = 0) -> np.ndarray:
    """The part of every node, (n_nodes,) int32; no part is empty.

    objective (metis only): `volume` makes few rows to exchange, `cut` few edges between parts and
    is faster. balance: what the parts have equally much of; `train` is the training nodes of a
    split as well as all nodes.
    """
    _check_choice("method", method, METHODS)
    _check_choice("objective", objective, OBJECTIVES)
    _check_choice("balance", balance, BALANCES)
    if not 1 <= n_parts <= graph.n_nodes:
        raise ConfigError(f"{n_parts} parts of a graph with {graph.n_nodes} nodes: give between "
                          f"1 and {graph.n_nodes}")
    if n_parts == 1:
        return np.zeros(graph.n_nodes, np.int32)
    weights = _weights(graph, balance, split_index)
    if method == "random":
        return random_parts(weights, n_parts, seed)
    if method == "block" or graph.n_edges == 0 or graph.n_nodes < _METIS_NODES_PER_PART * n_parts:
        return block_parts(weights, n_parts)
    adjacency = metis_adjacency(graph.indptr, graph.indices, symmetric=not graph.directed)
    parts = metis_parts(*adjacency, n_parts, objective, seed,
                        weights if balance == "edges" else None)
    if balance == "train":
        even_out(graph.indptr, graph.indices, parts, graph.split[split_index] == TRAIN, n_parts)
    return without_empty_parts(parts, n_parts)


def statistics(graph: Graph | tuple[np.ndarray, np.ndarray], assignment: np.ndarray,
               split_index: int = 0, ranks_per_host: int = 0) -> dict:
    """What a division costs; of a graph, or of a pair (indptr, indices) that is taken as
    undirected.

    halo_rows is M, the sum over parts of distinct in-neighbours owned by others; halo_ratio is M /
    n_nodes; a balance is the largest part over the mean. Cut edges of an undirected graph count
    once. ranks_per_host: so many parts in a row are on one host; 0: that is not known.
    """
    indptr, indices = (graph.indptr, graph.indices) if isinstance(graph, Graph) else graph
    directed = isinstance(graph, Graph) and graph.directed
    n_parts, n_nodes = int(assignment.max()) + 1, len(assignment)
    cut, halo = _cut_and_halo(indptr, indices, assignment, n_parts)
    parts = {"nodes": np.bincount(assignment, minlength=n_parts),
             "edges": np.bincount(assignment, np.diff(indptr), n_parts).astype(np.int64),
             "halo": halo}
    if isinstance(graph, Graph):
        parts["train"] = np.bincount(assignment[graph.split[split_index] == TRAIN],
                                     minlength=n_parts)
    edge_cut, n_edges = (int(cut.sum()),
                         len(indices)) if directed else (int(cut.sum()) // 2, len(indices) // 2)
    return {"n_parts": n_parts, "n_nodes": n_nodes, "n_edges": len(indices),
            "edge_cut": edge_cut, "edge_cut_share": edge_cut / max(1, n_edges),
            "halo_rows": int(halo.sum()), "halo_ratio": int(halo.sum()) / n_nodes,
            "balance": {name: float(counts.max() / counts.mean()) if counts.any() else 1.0
                        for name, counts in parts.items()},
            "parts": {name: counts.tolist() for name, counts in parts.items()},
            **_hops(graph, assignment, split_index, ranks_per_host)}


def _hops(graph, assignment: np.ndarray, split_index: int, ranks_per_host: int) -> dict:
    """Rows that the last hops of a model exchange: all, those that the loss needs, and the fewest
    rows and sums that take their place."""
    if not isinstance(graph, Graph):
        return {}
    trains = graph.split[split_index] == TRAIN
    if not graph.multilabel:
        trains = trains & (graph.labels >= 0)
    hops = exchanged_rows(graph.indptr, graph.indices, assignment, trains)
    counts = [{name: hop[name] for name in ("all", "needed", "auto", "cover")} for hop in hops]
    if ranks_per_host:
        between = rows_between_hosts(graph.indptr, graph.indices, assignment, trains,
                                     ranks_per_host)
        counts = [hop | other for hop, other in zip(counts, between)]
    return {"hops_from_loss": counts}


def metis_adjacency(indptr: np.ndarray, indices: np.ndarray,
                    symmetric: bool) -> tuple[np.ndarray, np.ndarray]:
    """The adjacency as METIS wants it: 64-bit, symmetric, no loops.

    METIS trusts its input, so it is checked here.
    """
    n_nodes = len(indptr) - 1
    problems = list(indptr_problems(indptr, len(indices), "indptr"))
    problems = problems or list(edge_problems(indptr, indices, n_nodes, symmetric=symmetric))
    if problems:
        raise GraphError("this graph cannot be partitioned: " + "; ".join(problems))
    if not symmetric:
        indptr, indices = csr_from_edges(n_nodes, indices, row_numbers(indptr), undirected=True)
    return indptr.astype(np.int64, copy=False), indices.astype(np.int64)


def metis_parts(indptr: np.ndarray, indices: np.ndarray, n_parts: int, objective: str, seed: int,
                weights: np.ndarray | None = None) -> np.ndarray:
    """What METIS's k-way scheme makes of an adjacency from `metis_adjacency`; some parts may be
    empty."""
    import pymetis

    # Recursive bisection, which pymetis prefers for few parts, knows no volume objective.
    kind = pymetis.ObjType.VOL if objective == "volume" else pymetis.ObjType.CUT
    options = pymetis.Options(objtype=int(kind), seed=int(seed) % 2 ** 31)
    division = pymetis.part_graph(n_parts, pymetis.CSRAdjacency(indptr, indices), vweights=weights,
                               recursive=False, options=options)
    return np.asarray(division.vertex_part).astype(np.int32)


def _weights(graph: Graph, balance: str, split_index: int) -> np.ndarray:
    """What each node counts when parts are made equal, (n_nodes,) int64."""
    if balance == "edges":
        return np.diff(graph.indptr) + 1
    weights = np.ones(graph.n_nodes, np.int64)
    if balance == "train":
        training = graph.split[split_index] == TRAIN
        n_training = max(1, int(np.count_nonzero(training)))
        weights[training] += max(1, round(graph.n_nodes / n_training))
    return weights


def block_parts(weights: np.ndarray, n_parts: int) -> np.ndarray:
    """Contiguous runs of nodes of about equal weight, none of them empty."""
    n_nodes = len(weights)
    reached = np.cumsum(weights)
    stops = np.searchsorted(reached, reached[-1] * np.arange(1, n_parts) / n_parts) + 1
    # Each part gets at least one node, and leaves one for each part after it.
    numbers = np.arange(1, n_parts)
    stops = np.maximum.accumulate(stops - numbers) + numbers
    stops = np.minimum(stops, n_nodes - n_parts + numbers)
    return np.searchsorted(stops, np.arange(n_nodes), side="right").astype(np.int32)


def random_parts(weights: np.ndarray, n_parts: int, seed: int) -> np.ndarray:
    """Random nodes, parts of about equal weight."""
    order = np.random.default_rng(seed).permutation(len(weights))
    parts = np.empty(len(weights), np.int32)
    parts[order] = block_parts(weights[order], n_parts)
    return parts


def even_out(indptr: np.ndarray, indices: np.ndarray, parts: np.ndarray, marked: np.ndarray,
             n_parts: int):
    """Swap marked nodes against others between parts, in place, until no part has more than its
    share of them.

    METIS balances two things at once only with two weights a node, which pymetis does not pass on.
    Sizes stay the same.
    """
    counts = np.bincount(parts[marked], minlength=n_parts)
    fair = counts.sum() / n_parts
    for _ in range(2 * n_parts):
        most, least = int(counts.argmax()), int(counts.argmin())
        if counts[most] <= max(_UNEVEN * fair, fair + 1):
            return
        n_swaps = int(np.ceil(min(counts[most] - fair, fair - counts[least])))
        going = _loosest(indptr, indices, parts, np.flatnonzero((parts == most) & marked), least,
                         n_swaps)
        coming = _loosest(indptr, indices, parts, np.flatnonzero((parts == least) & ~marked), most,
                          n_swaps)
        n_swaps = min(len(going), len(coming))
        parts[going[:n_swaps]], parts[coming[:n_swaps]] = least, most
        counts[most] -= n_swaps
        counts[least] += n_swaps


def _loosest(indptr, indices, parts, nodes: np.ndarray, target: int, n: int) -> np.ndarray:
    """The n of some nodes of one part that lose the fewest, or gain the most, neighbours by going
    to another part."""
    if not len(nodes):
        return nodes
    taken_indptr = take_indptr(indptr, nodes)
    gains = []
    for block in row_blocks(taken_indptr):
        own = taken_indptr[block.start:block.stop + 1]
        there = parts[indices[entry_positions(indptr, nodes[block], own)]]
        value = (there == target).astype(np.int64) - (there == parts[nodes[0]])
        gains.append(np.bincount(row_numbers(own), value, block.stop - block.start))
    return nodes[np.argsort(-np.concatenate(gains), kind="stable")[:n]]


def without_empty_parts(parts: np.ndarray, n_parts: int) -> np.ndarray:
    """Give every empty part one node of the then largest part: METIS leaves parts of tiny graphs
    empty."""
    sizes = np.bincount(parts, minlength=n_parts)
    for empty in np.flatnonzero(sizes == 0):
        donor = int(sizes.argmax())
        parts[np.flatnonzero(parts == donor)[-1]] = empty
        sizes[donor] -= 1
        sizes[empty] = 1
    return parts


def _cut_and_halo(indptr, indices, assignment, n_parts: int) -> tuple[np.ndarray, np.ndarray]:
    """For every part: entries that lie in other parts, and how many distinct nodes they are."""
    cut, halo = np.zeros(n_parts, np.int64), np.zeros(n_parts, np.int64)
    order = np.argsort(assignment, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(assignment, minlength=n_parts))])
    for part in range(n_parts):
        rows = order[offsets[part]:offsets[part + 1]]
        taken_indptr = take_indptr(indptr, rows)
        is_halo = np.zeros(len(assignment), bool)
        for block in row_blocks(taken_indptr):
            columns = indices[entry_positions(indptr, rows[block],
                                              taken_indptr[block.start:block.stop + 1])]
            remote = columns[assignment[columns] != part]
            is_halo[remote] = True
            cut[part] += len(remote)
        halo[part] = np.count_nonzero(is_halo)
    return cut, halo


def _check_choice(name: str, value: str, known: tuple[str, ...]):
    if value not in known:
        raise ConfigError(f"{name} is {value!r}; known are {', '.join(known)}")
