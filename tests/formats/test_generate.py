"""Made graphs are what their settings say, and the same again for the same seed."""

import os

import numpy as np
import pytest
from graphs import assert_same

from hpcgcn.cli import main
from hpcgcn.errors import ConfigError
from hpcgcn.graph.csr import row_numbers
from hpcgcn.graph.data import TEST, TRAIN, VAL
from hpcgcn.graph.generate import generate_grid, generate_rmat, generate_sbm
from hpcgcn.graph.header import header
from hpcgcn.graph.store import validate_graph
from hpcgcn.info.verify import verify

KINDS = {"sbm": (generate_sbm, 12), "rmat": (generate_rmat, 12), "grid": (generate_grid, 4)}


def make(kind, n_nodes=3000, n_features=16, n_classes=5, seed=0, **settings):
    generate, degree = KINDS[kind]
    return generate(n_nodes, settings.pop("degree", degree), n_features, n_classes, seed,
                    **settings)


@pytest.mark.parametrize("kind", KINDS)
def test_sound_and_of_the_size_asked_for(kind):
    graph = make(kind)
    validate_graph(graph)
    assert (graph.n_nodes, graph.n_features, graph.n_classes) == (3000, 16, 5)
    assert not graph.directed and graph.features.dtype == np.float32
    assert set(np.unique(graph.labels)) == set(range(5))
    assert graph.n_edges / graph.n_nodes == pytest.approx(KINDS[kind][1], rel=0.04)


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_decides(kind):
    assert_same(make(kind, seed=3), make(kind, seed=3))
    assert not np.array_equal(make(kind, seed=3).features, make(kind, seed=4).features)
    if kind != "grid":
        assert not np.array_equal(make(kind, seed=3).indices, make(kind, seed=4).indices)


@pytest.mark.parametrize("degree", [0.5, 1, 3.7, 60])
def test_mean_degree(degree):
    graph = make("sbm", degree=degree)
    assert graph.n_edges / graph.n_nodes == pytest.approx(degree, rel=0.01)


@pytest.mark.parametrize("homophily", [0.0, 0.3, 0.8, 1.0])
def test_homophily(homophily):
    graph = make("sbm", homophily=homophily, label_noise=0)
    same = graph.labels[row_numbers(graph.indptr)] == graph.labels[graph.indices]
    assert same.mean() == pytest.approx(homophily, abs=0.03)


def test_communities():
    """Edges stay within smaller blocks, so the graph divides with less cut; the classes are as
    before."""
    from hpcgcn.graph.partition import partition_graph, statistics
    cuts = []
    for communities in (1, 8):
        graph = make("sbm", n_classes=2, communities=communities, homophily=0.95, label_noise=0)
        same = graph.labels[row_numbers(graph.indptr)] == graph.labels[graph.indices]
        assert same.mean() > 0.94 and np.bincount(graph.labels).tolist() == [1500, 1500]
        cuts.append(statistics(graph, partition_graph(graph, 8))["edge_cut"])
    assert cuts[1] < 0.4 * cuts[0]


def test_label_noise_moves_labels_only():
    clean, noisy = make("sbm", label_noise=0), make("sbm", label_noise=0.2)
    np.testing.assert_array_equal(clean.indices, noisy.indices)
    np.testing.assert_array_equal(clean.features, noisy.features)
    assert np.mean(clean.labels != noisy.labels) == pytest.approx(0.2, abs=0.03)


def test_degrees_have_a_heavy_tail():
    steep, flat = (np.diff(make("sbm", power=power).indptr) for power in (2.1, 20.0))
    assert steep.max() > 3 * flat.max()


def test_features_tell_the_class_as_noise_allows():
    """Nearest class mean is right more often the less noise there is, and always without any."""
    def accuracy(noise):
        graph = make("sbm", feature_noise=noise, label_noise=0)
        means = np.stack([graph.features[graph.labels == c].mean(axis=0) for c in range(5)])
        distances = ((graph.features[:, None] - means) ** 2).sum(axis=2)
        return np.mean(distances.argmin(axis=1) == graph.labels)

    assert accuracy(0.0) == 1.0
    assert 0.99 > accuracy(0.5) > accuracy(1.5) > 0.3


def test_neighbours_help_more_than_features_do():
    """The default task: class means of twice-averaged neighbours beat the node's own features by
    far."""
    graph = generate_sbm(4000, 20, 32, 8, seed=0)
    rows, degree = row_numbers(graph.indptr), np.maximum(1, np.diff(graph.indptr))
    hidden = graph.features.astype(np.float64)
    for _ in range(2):
        summed = np.zeros_like(hidden)
        np.add.at(summed, rows, hidden[graph.indices])
        hidden = (summed + hidden) / (degree + 1)[:, None]

    def accuracy(x):
        train, test = graph.split[0] == TRAIN, graph.split[0] == TEST
        onehot = np.eye(8)[graph.labels[train]]
        design = np.hstack([x, np.ones((len(x), 1))])
        weights = np.linalg.lstsq(design[train], onehot, rcond=None)[0]
        return np.mean((design[test] @ weights).argmax(axis=1) == graph.labels[test])

    assert 0.75 < accuracy(hidden) < 0.97
    assert accuracy(graph.features) < 0.5


def test_split_shares():
    counts = np.bincount(make("sbm", train=0.1, val=0.3).split[0], minlength=4)
    assert counts[[TRAIN, VAL, TEST]].tolist() == [300, 900, 1800]
    assert np.bincount(make("sbm", n_nodes=10, degree=2, train=0.001).split[0])[TRAIN] == 1


@pytest.mark.parametrize("n_nodes, degree, neighbours", [
    (9, 4, {0: [1, 3], 4: [1, 3, 5, 7], 2: [1, 5]}),
    (9, 8, {0: [1, 3, 4], 4: [0, 1, 2, 3, 5, 6, 7, 8]}),
    (7, 4, {6: [3], 5: [2, 4]}), (1, 4, {0: []})])
def test_grid(n_nodes, degree, neighbours):
    graph = generate_grid(n_nodes, degree, 2, 1, 0)
    for node, wanted in neighbours.items():
        assert graph.indices[graph.indptr[node]:graph.indptr[node + 1]].tolist() == wanted


@pytest.mark.parametrize("n_nodes, degree", [(2, 1), (5, 4), (30, 20)])
def test_tiny_and_dense(n_nodes, degree):
    graph = generate_sbm(n_nodes, degree, 3, 2, 0, homophily=0.5, power=10)
    validate_graph(graph)
    assert graph.n_edges == pytest.approx(n_nodes * degree, rel=0.02)


def test_one_class():
    validate_graph(make("sbm", n_classes=1))


@pytest.mark.parametrize("settings, message", [
    (dict(n_nodes=0), "at least one"), (dict(degree=0), "above 0"),
    (dict(degree=3000), "below the number of nodes"), (dict(n_classes=0), "classes"),
    (dict(n_classes=3001), "classes"), (dict(n_features=0), "features"),
    (dict(homophily=1.5), "homophily"), (dict(power=1), "power"), (dict(train=0), "train"),
    (dict(train=0.9, val=0.2), "together at most 1"), (dict(feature_noise=-1), "feature_noise"),
    (dict(label_noise=1), "label_noise"), (dict(communities=0), "communities"),
    (dict(communities=601), "at most 3000"),
    (dict(n_nodes=20, n_classes=10, degree=19, homophily=1), "lower the degree")])
def test_settings_that_cannot_be(settings, message):
    with pytest.raises(ConfigError, match=message):
        make("sbm", **settings)


def test_settings_of_the_others():
    with pytest.raises(ConfigError, match="4 or 8"):
        make("grid", degree=5)
    with pytest.raises(ConfigError, match="sum to 1"):
        make("rmat", quadrants=(0.5, 0.5, 0.5, 0.5))


@pytest.mark.parametrize("kind", [["sbm", "--communities", "3"], ["rmat"], ["sbm", "--fp16"]])
def test_a_graph_made_on_disk_is_that_of_memory(kind, tmp_path, monkeypatch):
    """Also where most edges are drawn again, and a run holds few of them."""
    words = ["generate", *kind, "--nodes", "400", "--degree", "40", "--features", "5"]
    assert main([*words, "-o", str(tmp_path / "memory.h5")]) == 0
    monkeypatch.setattr("hpcgcn.cli.generate.IN_MEMORY", 0)
    monkeypatch.setattr("hpcgcn.graph.spool.RUN_KEYS", 700)
    assert main([*words, "-o", str(tmp_path / "disk.h5")]) == 0
    assert sorted(os.listdir(tmp_path)) == ["disk.h5", "memory.h5"]
    checksums = {header(tmp_path / name)["checksum"] for name in ("disk.h5", "memory.h5")}
    assert len(checksums) == 1 and verify(tmp_path / "disk.h5") == []
