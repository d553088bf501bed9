"""The part of a host, held once by its ranks, and the rows that each of them updates."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from hpcgcn.graph.data import Part, SparseRows
from hpcgcn.mpi import large
from hpcgcn.parallel.hosts.groups import HostGroups
from hpcgcn.parallel.hosts.layout import cut_blocks, rows_of
from hpcgcn.parallel.hosts.shared import share_object
from hpcgcn.parallel.local_graph import LocalGraph, build_local
from hpcgcn.parallel.needed import Depth
from hpcgcn.parallel.partition.halo_plans import HaloPlans
from hpcgcn.parallel.partition.settings import halo_kind


@dataclass
class HostGraph:
    """A host's local graph, and this rank's rows of it."""

    host: LocalGraph                 # of all rows of the host, in memory that its ranks share
    halos: HaloPlans                 # what its hops exchange with other hosts, shared as well
    bounds: np.ndarray               # of the blocks of rows, see layout
    in_pass: np.ndarray              # these blocks in the order of a pass
    rows: np.ndarray                 # (n_owned,) rows of the host that this rank updates
    first: bool                      # is this the host's first rank? It counts for the host
    window: object                   # keeps the shared memory alive

    @property
    def order(self) -> np.ndarray:
        """Position of each local row in a part whose rows are in order already."""
        return np.arange(len(self.rows))

    @property
    def ids(self) -> np.ndarray:
        """Original ids of this rank's rows."""
        return self.host.ids[self.rows]

    @property
    def n_owned(self) -> int:
        """Number of rows that this rank updates."""
        return len(self.rows)

    @property
    def n_halo(self) -> int:
        """Halo rows, counted once per host."""
        return self.host.n_halo if self.first else 0

    @property
    def n_entries(self) -> int:
        """Entries of the host's rows of the adjacency, counted once per host."""
        return self.host.n_entries if self.first else 0


@dataclass
class HostPart(Part):
    """The rows of a part that this rank updates, in order, with the graph that they belong to."""

    graph: HostGraph = None              # type: ignore[assignment] # always given; Part has defaults


def host_part(groups: HostGroups, part: Part, config, self_loops: bool, depth: Depth,
              precompute: bool) -> HostPart:
    """From the run of rows that a rank has read to the rows that it updates. Collective.

    depth: of the model that is trained, or EVALUATED. precompute: hop 0 is done once.
    """
    gathered, built = _gathered(groups, part), None
    if groups.number == 0:
        local = build_local(groups.across.comm, gathered, self_loops, depth.n_hops,
                            all_rows=not config.needed_rows, whole_blocks=depth.whole_blocks)
        halos = HaloPlans(local, halo_kind(config))
        halos.whole()
        for hop in range(0 if precompute else 1, (depth.n_hops or 0) + 1):
            halos.of_hop(hop)
        built = local, halos, *cut_blocks(local, groups.per_host)
    built, window = share_object(groups.within.comm, built, groups.across.comm)
    local, halos, bounds, in_pass = built
    graph = HostGraph(local, halos, bounds, in_pass,
                      rows_of(bounds, groups.number, groups.per_host), groups.number == 0, window)
    runs = part.offsets[groups.host * groups.per_host:][:groups.per_host + 1] - gathered.offsets[
        groups.host]
    return _moved(groups, part, graph, runs)


def _gathered(groups: HostGroups, part: Part) -> Part:
    """The host's whole part, without features, on its first rank; elsewhere without rows."""
    comm = groups.within.comm
    lengths, weights = _on_first(comm, np.diff(part.indptr)), part.edge_weights
    return replace(part, offsets=part.offsets[::groups.per_host], rank=groups.host,
                   indptr=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
                   indices=_on_first(comm, part.indices),
                   edge_weights=None if weights is None else _on_first(comm, weights),
                   features=_no_rows(part.features),
                   labels=_on_first(comm, part.labels), split=_on_first(comm, part.split),
                   original_ids=_on_first(comm, part.original_ids))


def _on_first(comm, array: np.ndarray) -> np.ndarray:
    """The arrays of all ranks one after another on rank 0, an empty one elsewhere. Collective."""
    array = np.ascontiguousarray(array)
    counts = comm.gather(len(array))
    if comm.rank:
        large.exchange(comm, [], [(array, 0)])
        return array[:0]
    parts = [array] + [np.empty((n, *array.shape[1:]), array.dtype) for n in counts[1:]]
    large.exchange(comm, [(of_rank, rank) for rank, of_rank in enumerate(parts) if rank], [])
    return np.concatenate(parts)


def _no_rows(features):
    return features.rows(0, 0) if isinstance(features, SparseRows) else features[:0]


def _moved(groups: HostGroups, part: Part, graph: HostGraph, runs: np.ndarray) -> HostPart:
    """Every rank's rows from those who have read them; runs: what each has read."""
    moves = _Moves(groups, graph, runs)
    kept = {field.name: getattr(part, field.name) for field in fields(Part)}
    kept |= {"indptr": np.zeros(graph.n_owned + 1, np.int64), "indices": part.indices[:0],
             "edge_weights": None,               # those of the host are in `graph`
             "features": moves.features(part.features), "labels": moves.rows(part.labels),
             "split": moves.rows(part.split), "original_ids": graph.ids}
    return HostPart(**kept, graph=graph)


class _Moves:
    """Moves rows of arrays within a host, from those who have read them to those who update
    them."""

    def __init__(self, groups: HostGroups, graph: HostGraph, runs: np.ndarray):
        self.comm, mine = groups.within.comm, groups.number
        self.sends, self.receives = [], []       # per rank: positions in my run, in my rows
        for rank in range(groups.per_host):
            theirs = graph.host.order[rows_of(graph.bounds, rank, groups.per_host)]
            here = (theirs >= runs[mine]) & (theirs < runs[mine + 1])
            self.sends.append(theirs[here] - runs[mine])
            positions = graph.host.order[graph.rows]
            there = (positions >= runs[rank]) & (positions < runs[rank + 1])
            self.receives.append(np.flatnonzero(there))
        self.n_rows = graph.n_owned

    def rows(self, array: np.ndarray) -> np.ndarray:
        """Rows of the array that every rank has of its run."""
        array = np.ascontiguousarray(array)
        received = [np.empty((len(to), *array.shape[1:]), array.dtype) for to in self.receives]
        large.exchange(self.comm, list(zip(received, range(len(received)))),
                       [(array[rows], rank) for rank, rows in enumerate(self.sends)])
        moved = np.empty((self.n_rows, *array.shape[1:]), array.dtype)
        for to, rows in zip(self.receives, received):
            moved[to] = rows
        return moved

    def features(self, features):
        """The same for features, dense or sparse."""
        if not isinstance(features, SparseRows):
            return self.rows(features)
        lengths = self.rows(np.diff(features.indptr))
        taken = [features.take(rows) for rows in self.sends]
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        names = ("indices",) if features.values is None else ("indices", "values")
        moved = {name: self._entries(taken, name, lengths, indptr) for name in names}
        return SparseRows(indptr, moved["indices"], moved.get("values"), features.n_columns)

    def _entries(self, taken: list[SparseRows], name: str, lengths, indptr) -> np.ndarray:
        """The entries of sparse rows, of the lengths that are known already."""
        arrays = [np.ascontiguousarray(getattr(rows, name)) for rows in taken]
        received = [np.empty(int(lengths[to].sum()), arrays[0].dtype) for to in self.receives]
        large.exchange(self.comm, list(zip(received, range(len(received)))),
                       list(zip(arrays, range(len(arrays)))))
        moved = np.empty(int(indptr[-1]), arrays[0].dtype)
        for to, entries in zip(self.receives, received):
            places = np.repeat(indptr[to] - np.cumsum(lengths[to]) + lengths[to], lengths[to])
            moved[places + np.arange(len(places))] = entries
        return moved
