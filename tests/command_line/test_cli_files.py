"""The commands generate, partition and info, as a user types them."""

import json
import os
import subprocess
import sys

import h5py
import numpy as np
import pytest
from graphs import assert_same, random_graph

from hpcgcn.cli import main, text
from hpcgcn.graph.store import header, read_graph, write_graph
from hpcgcn.info.verify import verify


@pytest.fixture
def graph_file(tmp_path):
    path = tmp_path / "g.h5"
    assert main(["generate", "sbm", "-o", str(path), "--nodes", "300", "--degree", "8",
                 "--features", "6", "--classes", "3", "--seed", "7"]) == 0
    return path


@pytest.mark.parametrize("kind", ["sbm", "rmat", "grid"])
def test_generate(kind, tmp_path, capsys):
    path = tmp_path / "g.h5"
    assert main(["generate", kind, "-o", str(path), "--nodes", "400", "--features", "6",
                 "--classes", "3"]) == 0
    assert "400 nodes" in capsys.readouterr().out
    facts = header(path)
    assert (facts["n_nodes"], facts["n_features"], facts["n_classes"]) == (400, 6, 3)
    assert facts["settings"]["kind"] == kind and facts["source"].startswith(f"generated {kind}")
    assert verify(path) == []


def test_generate_passes_every_knob_on(tmp_path):
    from hpcgcn.graph.generate import generate_rmat, generate_sbm
    path = str(tmp_path / "g.h5")
    main(["generate", "sbm", "-o", path, "--nodes", "200", "--degree", "5.5", "--features", "4",
          "--classes", "3", "--seed", "2", "--homophily", "0.3", "--feature-noise", "0.1",
          "--power", "3", "--label-noise", "0.2",
          "--train", "0.5", "--val", "0.1", "--communities", "2"])
    assert_same(read_graph(path),
                generate_sbm(200, 5.5, 4, 3, 2, homophily=0.3, feature_noise=0.1, power=3.0,
                             label_noise=0.2, train=0.5, val=0.1, communities=2))
    main(["generate", "rmat", "-o", path, "--nodes", "200", "--quadrants", "0.4", "0.3", "0.2",
          "0.1", "--fp16", "--overwrite"])
    wanted = generate_rmat(200, 20, 64, 8, 0, quadrants=(0.4, 0.3, 0.2, 0.1))
    found = read_graph(path)
    np.testing.assert_array_equal(found.indices, wanted.indices)
    np.testing.assert_array_equal(found.features, wanted.features.astype(np.float16))


def test_partition_table_and_file(graph_file, capsys):
    assert main(["partition", str(graph_file), "-n", "3"]) == 0
    shown = capsys.readouterr().out
    for word in ("edge cut", "halo rows M", "M/N", "max/mean", "g-3.h5"):
        assert word in shown
    facts = header(graph_file.with_name("g-3.h5"))
    assert facts["n_parts"] == 3 and facts["source_uuid"] == header(graph_file)["uuid"]


def test_partition_json(graph_file, tmp_path, capsys):
    output = tmp_path / "other.h5"
    assert main(["partition", str(graph_file), "-n", "2", "--method", "random", "--objective",
                 "cut", "--balance",
                 "train", "--reorder", "degree", "--seed", "3", "-o", str(output), "--json"]) == 0
    # What the fixture printed comes first.
    shown = capsys.readouterr().out
    costs = json.loads(shown[shown.index("{"):])
    assert costs["file"] == str(output) and costs["n_parts"] == 2 and costs["reorder"] == "degree"
    assert (costs["halo_rows"] == sum(costs["parts"]["halo"])
            and costs["halo_ratio"] == costs["halo_rows"] / 300)
    assert costs["balance"]["train"] < 1.1 and verify(output) == []


def test_a_partition_can_be_divided_anew(graph_file):
    assert main(["partition", str(graph_file), "-n", "3"]) == 0
    three = graph_file.with_name("g-3.h5")
    two = graph_file.with_name("two.h5")
    assert main(["partition", str(three), "-n", "2", "-o", str(two)]) == 0
    assert_same(read_graph(two), read_graph(graph_file))
    assert header(two)["source_uuid"] == header(graph_file)["uuid"]


def test_partition_mistakes(graph_file, capsys):
    assert main(["partition", str(graph_file), "-n", "301"]) == 2
    assert "between 1 and 300" in capsys.readouterr().err
    assert main(["partition", str(graph_file), "-n", "2", "-o", str(graph_file)]) == 2
    assert "it is an input of this command" in capsys.readouterr().err
    assert main(["partition", "missing.h5", "-n", "2"]) == 2
    assert "missing.h5: no such file" in capsys.readouterr().err
    assert sorted(path.name for path in graph_file.parent.iterdir()) == ["g.h5"]


def test_info_of_sound_files(graph_file, capsys):
    main(["partition", str(graph_file), "-n", "2"])
    capsys.readouterr()
    assert main(["info", str(graph_file)]) == 0
    shown = capsys.readouterr().out
    assert "graph" in shown and "/indices" in shown and "sound" in shown and "NOT" not in shown
    assert main(["info", str(graph_file.with_name("g-2.h5")), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["sound"] is True and facts["header"]["kind"] == "partition"
    assert sum(facts["contents"]["parts"]["nodes"]) == 300
    assert (facts["contents"]["labelled_nodes"] == 300
            and sum(facts["contents"]["class_sizes"]) == 300)


def test_info_of_an_unsound_file(graph_file, capsys):
    with h5py.File(graph_file, "r+") as file:
        file["features"][3, 2] = np.nan
    assert main(["info", str(graph_file)]) == 2
    shown = capsys.readouterr().out
    assert "NOT SOUND" in shown and "node 3" in shown and "checksum" in shown
    assert main(["info", str(graph_file), "--json"]) == 2
    facts = json.loads(capsys.readouterr().out)
    assert facts["sound"] is False and len(facts["problems"]) == 2


def test_info_of_what_is_not_ours(tmp_path, capsys):
    (tmp_path / "x.h5").write_text("hello")
    assert main(["info", str(tmp_path / "x.h5")]) == 2
    assert "not an HDF5 file" in capsys.readouterr().err


def test_info_counts_degrees_and_labels(tmp_path, capsys):
    labels = np.zeros((41, 3), np.uint8)
    labels[:7, 1] = 1
    graph = random_graph(n_edges=0, labels=labels)
    write_graph(tmp_path / "g.h5", graph)
    main(["info", str(tmp_path / "g.h5"), "--json"])
    contents = json.loads(capsys.readouterr().out)["contents"]
    assert contents == {"degree": {"mean": 0.0, "min": 0, "max": 0}, "isolated_nodes": 41,
                        "labelled_nodes": 7, "class_sizes": [0, 7, 0],
                        "degree_histogram": [[0, 0, 41]], "components": {"count": 41, "largest": 1},
                        "training_nodes": [np.count_nonzero(graph.split == 1)]}


@pytest.mark.parametrize("command",
                         ["generate", "partition", "info", "import", "export", "weights"])
def test_help_is_light(command):
    """Help imports neither NumPy nor HDF5, let alone MPI."""
    code = ("import sys; from hpcgcn.cli import main\n"
            f"try: main([{command!r}, '--help'])\nexcept SystemExit: pass\n"
            "print(sorted({'numpy', 'h5py', 'scipy', 'mpi4py', 'pymetis'} & set(sys.modules)))")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                         env={**os.environ, "PYTHONPATH": ":".join(sys.path)})
    assert run.stdout.splitlines()[-1] == "[]", run.stderr


def test_sizes_in_words():
    assert [text.size(n) for n in (0, 1023, 2048, 3 << 20, 5 << 30)] == ["0 B", "1023 B", "2 KiB",
                                                                         "3 MiB", "5 GiB"]
