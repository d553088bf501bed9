"""Partition files: a graph in the order of its parts, so that every rank reads contiguous slices
and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterable

import h5py
import numpy as np

from hpcgcn.errors import ConfigError, FileError, GraphError
from hpcgcn.files.datasets import content_checksum, write_array
from hpcgcn.files.h5 import atomic_h5
from hpcgcn.files.replace import Replaces
from hpcgcn.graph import checks
from hpcgcn.graph.contents import lazy_features, read_feature_rows, shape_facts, write_contents
from hpcgcn.graph.data import Graph, Part
from hpcgcn.graph.halo_cover import stored_cover
from hpcgcn.graph.header import kind, open_file, write_header
from hpcgcn.graph.replaceable import own_h5


def write_partition(path: str | os.PathLike, graph: Graph, assignment: np.ndarray, *,
                    settings: dict, command: str = "", order: np.ndarray | None = None,
                    replaces: Replaces | None = None, inputs: Iterable = (),
                    cover: tuple[np.ndarray, np.ndarray] | None = None) -> str:
    """Write a self-contained partition file; returns its uuid.

    assignment (n_nodes,): the part of every node. order (n_nodes,): node ids, to be kept within
    each part. The number of parts is settings["n_parts"] if given, or else that of the assignment.
    cover: what `halo_cover` says, for nodes in the order of `grouped`. replaces: what may be there
    already, by default a partition of this very graph.
    """
    assignment = np.asarray(assignment)
    offsets = _offsets(assignment, graph.n_nodes, settings.get("n_parts"))
    order = grouped(assignment, order)
    replaces = replaces or own_h5("partition", source_uuid=graph.uuid)
    with atomic_h5(path, replaces, inputs) as file:
        uuid = write_header(file, "partition", command=command, settings=settings,
                            source=graph.source,
                            source_uuid=graph.uuid, n_parts=len(offsets) - 1, **shape_facts(graph))
        write_array(file, "offsets", offsets, np.int64)
        write_array(file, "original_ids", order, np.int64)
        if cover is not None:
            write_array(file, "halo_offsets", cover[0], np.int64)
            write_array(file, "halo_cover", cover[1], np.uint8)
        write_contents(file, graph, order)
        file.attrs["checksum"] = content_checksum(file)
    return uuid


def read_slice(path: str | os.PathLike, rank: int, n_parts: int, split_index: int = 0) -> Part:
    """The nodes that `rank` of `n_parts` owns: a part of a partition file, or an equal run of a
    graph file's nodes."""
    if kind(path) == "partition":
        return read_part(path, rank, n_parts, split_index)
    with open_file(path, "graph") as file:
        n_nodes = len(file["indptr"]) - 1
        if n_parts > n_nodes:
            raise ConfigError(f"{path} has {n_nodes} nodes, fewer than the {n_parts} ranks that "
                              "were started")
        _check_split(path, file, split_index)
        offsets = np.array([n_nodes * k // n_parts for k in range(n_parts + 1)], np.int64)
        ids = np.arange(offsets[rank], offsets[rank + 1], dtype=np.int64)
        part = _rows_of(file, offsets, rank, split_index, ids)
    _check_part(path, part)
    return part


def read_part(path: str | os.PathLike, rank: int, n_parts: int, split_index: int = 0) -> Part:
    """The part that `rank` of `n_parts` owns, reading only its slices; every value is checked."""
    with open_file(path, "partition") as file:
        _check_request(path, file, n_parts, split_index)
        offsets = _checked_offsets(path, file)
        part = _rows_of(file, offsets, rank, split_index,
                        file["original_ids"][offsets[rank]:offsets[rank + 1]])
        try:
            part.halo_cover = stored_cover(file, offsets, rank, part.indices)
        except ValueError as error:
            raise FileError(f"{path} is damaged: {error}; partition again") from None
    _check_part(path, part)
    return part


def read_share(path: str | os.PathLike, rank: int, shares: int, split_index: int = 0) -> Part:
    """An equal run of the nodes of a part: `shares` ranks in a row share a part of a partition
    file, or all nodes of a graph file. The offsets are those of the runs."""
    with open_file(path) as file:
        _check_split(path, file, split_index)
        divided = "original_ids" in file
        parts = _checked_offsets(path, file) if divided else np.array([0, len(file["indptr"]) - 1])
        runs = [start + (stop - start) * np.arange(shares) // shares
                for start, stop in zip(parts[:-1], parts[1:])]
        offsets = np.concatenate([*runs, parts[-1:]]).astype(np.int64)
        start, stop = int(offsets[rank]), int(offsets[rank + 1])
        ids = file["original_ids"][start:stop] if divided else np.arange(start, stop)
        part = _rows_of(file, offsets, rank, split_index, ids)
    _check_part(path, part)
    return part


def read_parts(path: str | os.PathLike, group: int, n_groups: int, split_index: int = 0,
               with_features: bool = True) -> tuple[Part, np.ndarray]:
    """A group of consecutive parts as one, and where they begin in it; `n_groups` divides the
    number of parts."""
    with open_file(path, "partition") as file:
        _check_split(path, file, split_index)
        offsets = _checked_offsets(path, file)
        n_parts = (len(offsets) - 1) // n_groups
        mine = offsets[group * n_parts:(group + 1) * n_parts + 1]
        part = _rows_of(file, offsets[::n_parts], group, split_index,
                        file["original_ids"][mine[0]:mine[-1]], with_features)
    _check_part(path, part)
    return part, mine - mine[0]


def _rows_of(file, offsets: np.ndarray, rank: int, split_index: int, original_ids: np.ndarray,
             with_features: bool = True) -> Part:
    """The rows between two offsets, reading no others."""
    start, stop = int(offsets[rank]), int(offsets[rank + 1])
    _check_ends(file)
    indptr = file["indptr"][start:stop + 1]
    first, last = int(indptr[0]), int(indptr[-1])
    indptr -= first
    return Part(offsets=offsets, rank=rank, indptr=indptr,
                indices=file["indices"][first:last],
                edge_weights=file["edge_weights"][first:last] if "edge_weights" in file else None,
                features=read_feature_rows(lazy_features(file["features"]), start,
                                           stop if with_features else start),
                labels=file["labels"][start:stop], split=file["split"][split_index, start:stop],
                original_ids=original_ids,
                n_classes=int(file.attrs["n_classes"]), directed=bool(file.attrs["directed"]))


def _offsets(assignment: np.ndarray, n_nodes: int, n_parts: int | None) -> np.ndarray:
    """Where each part begins, (n_parts + 1,)."""
    if assignment.shape != (n_nodes,):
        raise GraphError(f"the assignment is for {len(assignment)} nodes, the graph has {n_nodes}")
    n_parts = n_parts or int(assignment.max()) + 1
    if assignment.min() < 0 or assignment.max() >= n_parts:
        raise GraphError(f"the assignment uses parts {assignment.min()}..{assignment.max()} of "
                         f"{n_parts}")
    sizes = np.bincount(assignment, minlength=n_parts)
    if not sizes.all():
        raise GraphError(f"part {int(np.flatnonzero(sizes == 0)[0])} of {n_parts} is empty: use "
                         "fewer parts, or another method")
    return np.concatenate([[0], np.cumsum(sizes)])


def grouped(assignment: np.ndarray, order: np.ndarray | None) -> np.ndarray:
    """The nodes part by part, in the given order within each."""
    if order is None:
        return np.argsort(assignment, kind="stable")
    order = np.asarray(order, np.int64)
    if order.shape != assignment.shape or not np.array_equal(np.sort(order), np.arange(len(order))):
        raise GraphError("the order of the nodes must name every node exactly once")
    return order[np.argsort(assignment[order], kind="stable")]


def _check_request(path, file, n_parts: int, split_index: int):
    held = int(file.attrs["n_parts"])
    if held != n_parts:
        raise FileError(f"{path} has {held} parts, but {n_parts} ranks were started: start "
                        f"{held} ranks (mpirun -n {held} ...), or partition again with `hpcgcn "
                        f"partition {path} -n {n_parts}`")
    _check_split(path, file, split_index)


def _check_split(path, file, split_index: int):
    if not 0 <= split_index < file["split"].shape[0]:
        raise ConfigError(f"split {split_index} was asked for, but {path} has splits "
                          f"0..{file['split'].shape[0] - 1}")


def _checked_offsets(path, file) -> np.ndarray:
    offsets = file["offsets"][...]
    for problem in checks.offset_problems(offsets, len(file["indptr"]) - 1):
        raise FileError(f"{path} is damaged: {problem}; partition again")
    return offsets


def _check_ends(file):
    """The first and the last row end, which the slices of the ranks do not tell from others."""
    groups = (file, file["features"]) if isinstance(file["features"], h5py.Group) else (file,)
    for group in groups:
        limits = (int(group["indptr"][0]), int(group["indptr"][-1]))
        if limits != (0, len(group["indices"])):
            raise ValueError(f"{group['indptr'].name} runs from {limits[0]} to {limits[1]}, not "
                             f"from 0 to the number of entries ({len(group['indices'])})")


def _check_part(path, part: Part):
    """Kernels trust their indices, so a damaged file must not reach them."""
    problems = list(checks.indptr_problems(part.indptr, len(part.indices), "indptr"))
    if not problems:
        start = int(part.offsets[part.rank])
        problems += checks.edge_problems(part.indptr, part.indices, part.n_nodes, first_row=start)
        problems += checks.weight_problems(part.edge_weights)
    problems += checks.feature_problems(part.features)
    problems += checks.label_problems(part.labels, part.n_classes)
    problems += checks.split_problems(part.split, part.labels)
    if part.n_owned and not (0 <= part.original_ids.min()
                             and part.original_ids.max() < part.n_nodes):
        problems.append(f"original_ids must be in 0..{part.n_nodes - 1}")
    if problems:
        raise FileError(f"part {part.rank} of {path} is damaged: " + "; ".join(problems)
                        + f"; `hpcgcn info {path}` checks the whole file")
