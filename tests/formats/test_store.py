"""Graph and partition files: what is written is read again, and what is damaged is noticed."""

import h5py
import numpy as np
import pytest
from graphs import assert_same, dense, random_graph, varieties, with_weights

from hpcgcn.errors import ConfigError, FileError, GraphError, HpcgcnError
from hpcgcn.files import datasets
from hpcgcn.graph import checks, csr
from hpcgcn.graph.data import SparseRows
from hpcgcn.graph.store import header, kind, read_graph, read_part, write_graph, write_partition
from hpcgcn.info.verify import verify

VARIETIES = varieties()


@pytest.fixture(params=VARIETIES)
def graph(request):
    return VARIETIES[request.param]


def assignment_of(graph, n_parts=3, seed=1):
    """A random part for every node, none empty as far as nodes go."""
    n_parts = min(n_parts, graph.n_nodes)
    parts = np.random.default_rng(seed).integers(0, n_parts, graph.n_nodes)
    parts[:n_parts] = np.arange(n_parts)
    return parts, n_parts


def test_graph_round_trip(graph, tmp_path):
    path = tmp_path / "g.h5"
    uuid = write_graph(path, graph)
    again = read_graph(path)
    assert_same(again, graph)
    assert again.uuid == graph.uuid == uuid
    assert verify(path) == []


def test_pieces_do_not_show(graph, tmp_path, monkeypatch):
    """Files written and checked in tiny pieces are those written at once."""
    def write(name):
        write_graph(tmp_path / f"{name}.h5", graph)
        write_partition(tmp_path / f"{name}-p.h5", graph, assignment_of(graph)[0], settings={})

    write("whole")
    monkeypatch.setattr(datasets, "PIECE_BYTES", 16)
    monkeypatch.setattr(csr, "BLOCK_EDGES", 7)
    monkeypatch.setattr(checks, "_INDPTR_ROWS", 5)
    write("pieces")
    for suffix in (".h5", "-p.h5"):
        assert verify(tmp_path / f"pieces{suffix}") == []
        assert header(tmp_path / f"pieces{suffix}")["checksum"] == header(
            tmp_path / f"whole{suffix}")["checksum"]


def test_header_tells_all(tmp_path):
    path = tmp_path / "g.h5"
    graph = random_graph(features=np.ones((41, 4), np.float16), source="here")
    write_graph(path, graph, command="hpcgcn something", settings={"a": 1})
    found = header(path)
    assert kind(path) == found["kind"] == "graph"
    wanted = dict(format="hpcgcn-graph", version=2, n_nodes=41, n_edges=graph.n_edges, n_features=4,
                  n_classes=3, n_parts=1, n_splits=1, multilabel=False, directed=False,
                  sparse_features=False, feature_dtype="float16", command="hpcgcn something",
                  source="here", settings={"a": 1})
    assert {name: found[name] for name in wanted} == wanted
    assert found["creator"].startswith("hpcgcn ")
    assert found["split_counts"][0]["train"] == np.count_nonzero(graph.split == 1)


def test_files_of_version_1_are_read(tmp_path):
    """As earlier releases wrote them: without a word of weights."""
    graph = random_graph()
    write_graph(tmp_path / "g.h5", graph)
    with h5py.File(tmp_path / "g.h5", "a") as file:
        file.attrs["version"] = 1
        del file.attrs["weighted"]
    assert_same(read_graph(tmp_path / "g.h5"), graph)
    assert verify(tmp_path / "g.h5") == []


def test_weights_that_cannot_be_are_found(tmp_path):
    graph = with_weights(random_graph())
    for value, words in ((np.nan, "the edge weight nan"), (-1.0, "the edge weight -1.0"),
                         (0.125, "another weight the other way")):
        write_graph(tmp_path / "g.h5", graph)
        with h5py.File(tmp_path / "g.h5", "a") as file:
            file["edge_weights"][3] = value
            del file["edge_weights"].attrs["crc32"]
        assert any(words in problem for problem in verify(tmp_path / "g.h5"))
        with pytest.raises(HpcgcnError, match=words):
            read_graph(tmp_path / "g.h5")


def test_a_double_is_stored_as_a_single(tmp_path):
    graph = random_graph()
    graph.features = graph.features.astype(np.float64)
    write_graph(tmp_path / "g.h5", graph)
    assert read_graph(tmp_path / "g.h5").features.dtype == np.float32


def test_parts_cover_exactly_the_graph(graph, tmp_path):
    """All parts together, renumbered to original ids, are the graph: every edge, feature, label and
    split."""
    path = tmp_path / "p.h5"
    parts, n_parts = assignment_of(graph)
    write_partition(path, graph, parts, settings={"n_parts": n_parts})
    assert verify(path) == [] and kind(path) == "partition"
    pieces = [read_part(path, rank, n_parts) for rank in range(n_parts)]
    original = np.concatenate([part.original_ids for part in pieces])
    np.testing.assert_array_equal(np.sort(original), np.arange(graph.n_nodes))
    for rank, part in enumerate(pieces):
        assert (parts[part.original_ids] == rank).all()
        assert (part.n_parts, part.n_nodes, part.n_classes) == (n_parts, graph.n_nodes,
                                                                graph.n_classes)
        assert part.directed == graph.directed and part.multilabel == graph.multilabel
        np.testing.assert_array_equal(dense(part.features),
                                      dense(graph.features)[part.original_ids])
        np.testing.assert_array_equal(part.labels, graph.labels[part.original_ids])
        np.testing.assert_array_equal(part.split, graph.split[0, part.original_ids])
        for row, node in enumerate(part.original_ids):
            neighbours = part.indices[part.indptr[row]:part.indptr[row + 1]]
            assert (np.diff(neighbours) > 0).all()
            np.testing.assert_array_equal(np.sort(original[neighbours]),
                                          graph.indices[graph.indptr[node]:graph.indptr[node + 1]])


def test_partition_is_self_contained(graph, tmp_path):
    """The graph comes back from the partition file alone, in its first order, and remembers where
    it came from."""
    write_graph(tmp_path / "g.h5", graph)
    parts, n_parts = assignment_of(graph)
    write_partition(tmp_path / "p.h5", read_graph(tmp_path / "g.h5"), parts, settings={})
    (tmp_path / "g.h5").unlink()
    again = read_graph(tmp_path / "p.h5")
    assert_same(again, graph)
    assert again.uuid == header(tmp_path / "p.h5")["source_uuid"] == graph.uuid
    assert header(tmp_path / "p.h5")["n_parts"] == n_parts


def test_order_within_parts(tmp_path):
    graph = random_graph()
    parts, n_parts = assignment_of(graph)
    order = np.random.default_rng(5).permutation(graph.n_nodes)
    write_partition(tmp_path / "p.h5", graph, parts, settings={}, order=order)
    for rank in range(n_parts):
        np.testing.assert_array_equal(read_part(tmp_path / "p.h5", rank, n_parts).original_ids,
                                      order[parts[order] == rank])
    write_partition(tmp_path / "p.h5", graph, parts, settings={})
    assert (np.diff(read_part(tmp_path / "p.h5", 1, n_parts).original_ids) > 0).all()


def test_any_split_can_be_read(tmp_path):
    graph = VARIETIES["splits"]
    write_partition(tmp_path / "p.h5", graph, np.zeros(graph.n_nodes, int), settings={})
    np.testing.assert_array_equal(read_part(tmp_path / "p.h5", 0, 1, split_index=7).split,
                                  graph.split[7])
    with pytest.raises(ConfigError, match="splits 0..9"):
        read_part(tmp_path / "p.h5", 0, 1, split_index=10)


def test_a_rank_reads_only_its_slices(tmp_path, monkeypatch):
    """No read of a dataset with one row per node or edge is larger than the part's share."""
    graph = random_graph(n_nodes=400, n_edges=3000)
    parts = np.arange(400) * 8 // 400
    write_partition(tmp_path / "p.h5", graph, parts, settings={})
    import h5py
    largest = {}
    read = h5py.Dataset.__getitem__

    def counting(dataset, key, *rest):
        result = read(dataset, key, *rest)
        largest[dataset.name] = max(largest.get(dataset.name, 0), np.size(result))
        return result

    monkeypatch.setattr(h5py.Dataset, "__getitem__", counting)
    part = read_part(tmp_path / "p.h5", 3, 8)
    assert largest == {"/offsets": 9, "/indptr": 51, "/indices": len(part.indices),
                       "/features": 50 * 5, "/labels": 50, "/split": 50, "/original_ids": 50}


@pytest.mark.parametrize("n_parts", [1, 2, 4, 100])
def test_part_file_for_another_number_of_ranks(n_parts, tmp_path):
    graph = random_graph()
    write_partition(tmp_path / "p.h5", graph, assignment_of(graph)[0], settings={})
    with pytest.raises(FileError,
                       match=f"has 3 parts, but {n_parts} ranks.*start 3 ranks.*-n {n_parts}"):
        read_part(tmp_path / "p.h5", 0, n_parts)


def test_graph_file_where_a_partition_is_needed(tmp_path):
    write_graph(tmp_path / "g.h5", random_graph())
    with pytest.raises(FileError, match="is a graph file, but a partition file is needed"):
        read_part(tmp_path / "g.h5", 0, 1)


@pytest.mark.parametrize("change, message", [
    (dict(assignment=np.array([0, 2] * 20 + [0])), "part 1 of 3 is empty"),
    (dict(assignment=np.zeros(5, int)), "for 5 nodes, the graph has 41"),
    (dict(assignment=np.full(41, -1)), "uses parts -1..-1"),
    (dict(settings={"n_parts": 2}, assignment=np.zeros(41, int)), "part 1 of 2 is empty"),
    (dict(settings={"n_parts": 2}, assignment=np.arange(41) % 3), "parts 0..2 of 2"),
    (dict(order=np.zeros(41, int)), "every node exactly once"),
    (dict(order=np.arange(40)), "every node exactly once"),
])
def test_bad_assignments(change, message, tmp_path):
    arguments = {"assignment": np.arange(41) % 3, "settings": {}, **change}
    with pytest.raises(GraphError, match=message):
        write_partition(tmp_path / "p.h5", random_graph(), **arguments)
    assert list(tmp_path.iterdir()) == []


def test_long_lists_of_facts_fit(tmp_path):
    """`extra` may be longer than the 64 KiB of an HDF5 attribute."""
    graph = random_graph(extra={"names": ["n" * 100] * 2000})
    write_graph(tmp_path / "g.h5", graph)
    assert read_graph(tmp_path / "g.h5").extra == graph.extra


def test_sparse_stays_sparse(tmp_path):
    write_graph(tmp_path / "g.h5", VARIETIES["sparse-ones"])
    features = read_graph(tmp_path / "g.h5").features
    assert isinstance(features, SparseRows) and features.values is None
