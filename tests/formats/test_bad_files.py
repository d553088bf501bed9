"""Files and graphs that cannot be used: each gets one clear message, and no half-written file is
left."""

import os

import h5py
import numpy as np
import pytest
from graphs import edges_graph, random_graph, sparse_features

from hpcgcn.errors import FileError, GraphError
from hpcgcn.files.h5 import atomic_h5
from hpcgcn.graph.checks import edge_problems
from hpcgcn.graph.replaceable import own_h5
from hpcgcn.graph.store import (
    header,
    kind,
    read_graph,
    read_part,
    validate_graph,
    write_graph,
    write_partition,
)
from hpcgcn.info.describe import describe
from hpcgcn.info.verify import verify


@pytest.fixture
def graph_file(tmp_path):
    write_graph(tmp_path / "g.h5", random_graph())
    return tmp_path / "g.h5"


@pytest.fixture
def partition_file(tmp_path):
    write_partition(tmp_path / "p.h5", random_graph(), np.arange(41) % 2, settings={})
    return tmp_path / "p.h5"


OPENERS = [kind, header, read_graph, verify, describe, lambda path: read_part(path, 0, 2)]


def edit(path, change):
    with h5py.File(path, "r+") as file:
        change(file)


def set_value(name, position, value):
    """A change of one number of a dataset."""
    def change(file):
        file[name][position] = value
    return change


@pytest.mark.parametrize("opener", OPENERS)
@pytest.mark.parametrize("damage, message", [
    (lambda path: os.unlink(path), "no such file"),
    (lambda path: path.write_bytes(b""), "is empty"),
    (lambda path: path.write_text("source,target\n0,1\n"), "not an HDF5 file"),
    (lambda path: os.truncate(path, path.stat().st_size // 2), "truncated"),
    (lambda path: (os.unlink(path), path.mkdir()), "is a folder"),
    (lambda path: edit(path, lambda file: file.attrs.pop("format")), "not one of hpcgcn"),
    (lambda path: edit(path, lambda file: file.attrs.__setitem__("format", "other-graph")),
     "not one.*other-graph"),
    (lambda path: edit(path, lambda file: file.attrs.__setitem__("format", 7)),
     "not one of hpcgcn"),
    (lambda path: edit(path, lambda file: file.attrs.__setitem__("version", 99)),
     "version 99.*reads version 1 and 2"),
    (lambda path: edit(path, lambda file: file.attrs.__setitem__("version", "new")), "version new"),
])
def test_files_that_cannot_be_opened(opener, damage, message, partition_file):
    damage(partition_file)
    with pytest.raises(FileError, match=message):
        opener(partition_file)


@pytest.mark.parametrize("missing", ["indptr", "indices", "features", "labels", "split", "offsets",
                                     "original_ids"])
def test_missing_datasets(missing, partition_file):
    edit(partition_file, lambda file: file.__delitem__(missing))
    assert verify(partition_file)
    with pytest.raises(FileError, match="damaged"):
        read_part(partition_file, 0, 2)


@pytest.mark.parametrize("name", ["indptr", "indices", "features", "labels", "split", "offsets",
                                  "original_ids"])
def test_a_changed_byte_is_found(name, partition_file):
    """Wherever one byte of the data differs, verify names the dataset."""
    with h5py.File(partition_file) as file:
        place = file[name].id.get_offset()
    data = bytearray(partition_file.read_bytes())
    data[place] ^= 1
    partition_file.write_bytes(data)
    assert any(f"/{name}: the checksum does not match" in problem
               for problem in verify(partition_file))


def test_a_dataset_more_is_found(graph_file):
    edit(graph_file, lambda file: file.create_dataset("more", data=[1.0]))
    (problem,) = verify(graph_file)
    assert "/more does not belong here" in problem
    with pytest.raises(FileError, match="/more does not belong here"):
        read_graph(graph_file)


@pytest.mark.parametrize("change, message", [
    (set_value("indices", 3, 41), "neighbour ids must be in 0..40"),
    (set_value("indices", 3, -1), "neighbour ids must be in 0..40"),
    (set_value("indptr", 5, 10 ** 6), "indptr falls after row 5"),
    (set_value("indptr", 41, 7), "indptr runs from 0 to 7"),
    (set_value("features", (4, 2), np.nan), "features of node 4 hold NaN or infinity"),
    (set_value("features", (4, 2), -np.inf), "features of node 4 hold NaN or infinity"),
    (set_value("features", (4, 2), 2e30), "or more than 1e"),
    (set_value("labels", 6, 3), "labels must be in -1..2, but node 6 has 3"),
    (set_value("labels", 6, -2), "labels must be in -1..2"),
    (set_value("split", (0, 6), 4), "split 0 has the code 4"),
])
def test_values_out_of_range(change, message, graph_file):
    edit(graph_file, change)
    assert any(message in problem for problem in verify(graph_file))
    with pytest.raises(GraphError, match=message) as caught:
        read_graph(graph_file)
    assert str(graph_file) in str(caught.value)


@pytest.mark.parametrize("change, message", [
    (set_value("indices", 0, 41), "neighbour ids"),
    (set_value("features", (0, 0), np.nan), "NaN"),
    (set_value("labels", 0, 17), "labels must be"),
    (set_value("indptr", 2, 10 ** 6), "falls"),
    (set_value("indptr", 0, 10 ** 6), "damaged"),
    (set_value("offsets", 1, 10 ** 6), "damaged"),
])
def test_a_rank_checks_its_part(change, message, partition_file):
    edit(partition_file, change)
    with pytest.raises(FileError, match=message):
        read_part(partition_file, 0, 2)


@pytest.mark.parametrize("name, position, value, message", [
    ("offsets", 1, 0, "part 0 is empty"), ("offsets", 2, 40, "do not divide 41 nodes"),
    ("original_ids", 0, 40, "not a permutation"), ("original_ids", 0, 400, "not a permutation")])
def test_partition_tables_are_checked(name, position, value, message, partition_file):
    edit(partition_file, set_value(name, position, value))
    assert any(message in problem for problem in verify(partition_file))


def test_header_must_fit_the_arrays(graph_file):
    edit(graph_file, lambda file: file.attrs.__setitem__("n_edges", 1))
    assert any("n_edges = 1" in problem for problem in verify(graph_file))


def changed(**changes):
    graph = random_graph()
    for name, value in changes.items():
        setattr(graph, name, value)
    return graph


def one_way():
    graph = random_graph(directed=True)
    graph.directed = False
    return graph


@pytest.mark.parametrize("graph, message", [
    (changed(split=np.full((1, 41), 3, np.uint8)), "no training nodes"),
    (changed(split=np.stack([np.ones(41, np.uint8), np.zeros(41, np.uint8)])),
     "split 1 has no training nodes"),
    (changed(labels=np.zeros(40, np.int32)), "labels are for 40 nodes, but indptr says 41"),
    (changed(features=np.zeros((42, 2), np.float32)), "features are for 42 nodes"),
    (changed(features=np.zeros((41, 0), np.float32)), "no features"),
    (changed(split=np.ones((1, 3), np.uint8)), "split are for 3 nodes"),
    (changed(split=np.ones(41, np.uint8)), "n_splits"),
    (changed(node_names=np.arange(3)), "node_names are for 3"),
    (changed(labels=np.full(41, -1, np.int32)), "has no label"),
    (changed(labels=np.full((41, 3), 2, np.uint8)), "labels must be in 0..1"),
    (changed(labels=np.ones((41, 2), np.uint8)), "2 columns for 3 classes"),
    (changed(n_classes=0), "at least one class"),
    (changed(indices=random_graph().indices.astype(float)), "must be integers"),
    (changed(indptr=np.zeros(1, np.int64)), "no nodes"),
    (changed(indices=random_graph().indices[::-1].copy()),
     "not sorted, or one is there twice|its own neighbour"),
    (changed(features=sparse_features(n_columns=9)), None),
    (one_way(), "one way only"),
])
def test_validate_graph(graph, message):
    if message is None:
        validate_graph(graph)
        return
    with pytest.raises(GraphError, match=message):
        validate_graph(graph)


def test_sparse_columns_out_of_range():
    features = sparse_features()
    features.n_columns = 4
    with pytest.raises(GraphError, match="columns are 0..3"):
        validate_graph(changed(features=features))
    features = sparse_features()
    features.values[3] = np.inf
    with pytest.raises(GraphError, match="NaN or infinity"):
        validate_graph(changed(features=features))


def test_self_loops_and_duplicates_are_named():
    graph = edges_graph(3, [0], [1])
    graph.indices[:] = [0, 1]
    with pytest.raises(GraphError, match="node 0 is its own neighbour"):
        validate_graph(graph)
    graph = edges_graph(3, [0, 0], [1, 2], directed=True)
    graph.indptr, graph.indices = np.array([0, 2, 2, 2]), np.array([1, 1], np.int32)
    with pytest.raises(GraphError, match="neighbours of node 0"):
        validate_graph(graph)


@pytest.mark.parametrize("graph", [edges_graph(5, [0], [1]), edges_graph(4, [0, 2], [1, 3]),
                                   edges_graph(1, [], []), random_graph(n_edges=0)])
def test_unusual_graphs_are_fine(graph):
    """Isolated nodes, several components, one class, one node, no edges."""
    validate_graph(graph)


def test_no_training_nodes_is_fine_for_prediction():
    validate_graph(changed(split=np.zeros((1, 41), np.uint8)), need_train=False)


def test_failed_write_leaves_the_old_file(graph_file):
    before = graph_file.read_bytes()
    with pytest.raises(ZeroDivisionError):
        with atomic_h5(graph_file, own_h5("graph")) as file:
            file["x"] = np.arange(1000)
            raise ZeroDivisionError
    assert graph_file.read_bytes() == before
    assert [path.name for path in graph_file.parent.iterdir()] == ["g.h5"]


def test_interrupt_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        with atomic_h5(tmp_path / "new.h5"):
            raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_seen_before_the_end(tmp_path):
    with atomic_h5(tmp_path / "new.h5") as file:
        file["x"] = 1
        assert not (tmp_path / "new.h5").exists()
    assert stored_x(tmp_path / "new.h5") == 1
    assert len(list(tmp_path.iterdir())) == 1


def stored_x(path):
    with h5py.File(path) as file:
        return file["x"][()]


def test_places_that_cannot_be_written(tmp_path):
    graph = random_graph()
    with pytest.raises(FileError, match="no folder.*create it"):
        write_graph(tmp_path / "missing" / "g.h5", graph)
    with pytest.raises(FileError, match="is a folder"):
        write_graph(tmp_path, graph)


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link.h5").symlink_to(tmp_path / "disk" / "g.h5")
    with pytest.raises(FileError, match="symbolic link"):
        write_graph(tmp_path / "link.h5", random_graph())
    assert (tmp_path / "link.h5").is_symlink() and not (tmp_path / "disk" / "g.h5").exists()


def test_any_edge_that_is_there_one_way_only_is_noticed():
    """Alone, and two of them, whichever they are."""
    graph = random_graph(n_nodes=12, n_edges=30)
    rows = np.repeat(np.arange(graph.n_nodes), np.diff(graph.indptr))

    def problems(kept):
        indptr = np.searchsorted(rows[kept], np.arange(graph.n_nodes + 1))
        return list(edge_problems(indptr, graph.indices[kept], graph.n_nodes, symmetric=True))

    everything = np.arange(len(rows))
    assert problems(everything) == []
    for one in everything:
        for other in everything[one:]:
            kept = np.setdiff1d(everything, [one, other])
            back = (rows[one], graph.indices[one]) == (graph.indices[other], rows[other])
            assert any("one way only" in text for text in problems(kept)) != back
