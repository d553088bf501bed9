"""Covers that a partition file keeps: as small as an independent matching says, used by training,
and refused where they do not fit the graph."""

import h5py
import networkx as nx
import numpy as np
import pytest
from many_runs import job, run_many
from small_graphs import small_graph

from hpcgcn.errors import FileError
from hpcgcn.files.datasets import content_checksum, write_array
from hpcgcn.graph.divide import divide
from hpcgcn.graph.store import read_part
from hpcgcn.info.verify import verify

pytestmark = [pytest.mark.mpi_skip, pytest.mark.timeout(300)]

N_PARTS = 3
GRAPH = small_graph(160, 700, train_share=1.0)       # all train: every hop needs all rows


@pytest.fixture
def partition(tmp_path):
    path = tmp_path / "p.h5"
    divide(GRAPH, path, N_PARTS, "random", reorder="degree")
    return path


def rewritten(path, **arrays):
    """With other arrays, and checksums that fit them."""
    with h5py.File(path, "r+") as file:
        for name, array in arrays.items():
            del file[name]
            if array is not None:
                write_array(file, name, array)
        file.attrs["checksum"] = content_checksum(file)
    return path


def test_covers_are_the_smallest(partition):
    assert verify(partition) == []
    n_sums = 0
    for rank in range(N_PARTS):
        part = read_part(partition, rank, N_PARTS)
        start, stop = part.offsets[rank], part.offsets[rank + 1]
        reader = np.repeat(np.arange(part.n_owned), np.diff(part.indptr))
        remote = (part.indices < start) | (part.indices >= stop)
        source, reader = part.indices[remote], reader[remote]
        halo = np.unique(source)
        assert part.halo_cover is not None and part.halo_cover.shape == halo.shape
        for owner in set(range(N_PARTS)) - {rank}:
            first, last = part.offsets[owner], part.offsets[owner + 1]
            edges = [(f"s{s}", f"r{r}") for s, r in zip(source, reader) if first <= s < last]
            by_row = dict(zip(halo, part.halo_cover))
            sums = {r for s, r in edges if not by_row[int(s[1:])]}
            rows = [s for s in halo if first <= s < last and by_row[s]]
            sources = {s for s, _ in edges}
            matching = nx.bipartite.hopcroft_karp_matching(nx.Graph(edges), sources)
            assert len(rows) + len(sums) == len(matching) // 2
            n_sums += len(sums)
    assert n_sums > 0


def test_training_takes_the_covers_of_the_file(partition, tmp_path):
    """The same messages as with covers made at load; with a cover of rows alone, rows alone."""
    copies = {name: tmp_path / f"{name}.h5" for name in ("kept", "none", "rows")}
    for path in copies.values():
        path.write_bytes(partition.read_bytes())
    rewritten(copies["none"], halo_cover=None, halo_offsets=None)
    with h5py.File(partition) as file:
        everything = np.ones_like(file["halo_cover"])
    rewritten(copies["rows"], halo_cover=everything)
    jobs = [job(name, path, model="sage", halo="cover", epochs=3) for name, path in copies.items()]
    jobs.append(job("asked for rows", partition, model="sage", halo="rows", epochs=3))
    ran = run_many(N_PARTS, jobs, tmp_path)
    sent = {name: run["summary"]["bytes_sent"] for name, run in ran.items()}
    assert sent["kept"] == sent["none"] < sent["rows"] == sent["asked for rows"]
    assert ran["kept"]["losses"] == ran["none"]["losses"]


def without_last(path, name):
    with h5py.File(path) as file:
        return file[name][:-1]


@pytest.mark.parametrize("damage, message", [
    (lambda path: {"halo_cover": without_last(path, "halo_cover")}, "halo_offsets must rise from"),
    (lambda path: {"halo_cover": np.full(len(without_last(path, "halo_cover")) + 1, 7, np.uint8)},
     "must have 0 or 1 for each"),
    (lambda path: {"halo_offsets": np.array([0, 0, 0, 1 + len(without_last(path, "halo_cover"))])},
     "halo rows of part 0"),
    (lambda path: {"halo_offsets": None}, "/halo_offsets is missing")])
def test_covers_that_do_not_fit_are_refused(partition, damage, message):
    rewritten(partition, **damage(partition))
    assert any(message in problem for problem in verify(partition))
    with pytest.raises(FileError, match=message):
        read_part(partition, 0, N_PARTS)
