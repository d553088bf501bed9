"""Loading a part takes little more memory than the part."""

import json
import subprocess
import sys

import numpy as np
import pytest
from graphs import edges_graph

from hpcgcn.graph.divide import divide
from hpcgcn.graph.halo_cover import distinct_remote

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"),
                                reason="the peak is read from /proc")
# A small part first, so that libraries and their buffers are there before memory is counted.
LOAD = """if True:
    import json, sys
    from hpcgcn.graph.checks import part_balance
    from hpcgcn.graph.store import read_part

    def status(name):
        with open("/proc/self/status") as file:
            return next(1024 * int(line.split()[1]) for line in file if line.startswith(name))

    part_balance(read_part(sys.argv[1], 0, 2))
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")                              # the peak starts again from here
    before = status("VmRSS")
    part = read_part(sys.argv[2], 0, 2)
    part_balance(part)
    held = sum(array.nbytes for array in (part.indptr, part.indices, part.features, part.labels,
                                          part.split, part.original_ids, part.halo_cover))
    print(json.dumps([status("VmHWM") - before, held]))
    """


def made(n_nodes: int, path):
    rng = np.random.default_rng(0)
    graph = edges_graph(n_nodes, *rng.integers(0, n_nodes, (2, 6 * n_nodes)), directed=True,
                        features=rng.standard_normal((n_nodes, 128), np.float32))
    divide(graph, path, 2, "block")
    return path


def test_the_peak_of_loading_is_a_fifth_above_what_stays(tmp_path):
    paths = [str(made(n_nodes, tmp_path / f"{n_nodes}.h5")) for n_nodes in (1000, 400_000)]
    run = subprocess.run([sys.executable, "-c", LOAD, *paths], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    grown, held = json.loads(run.stdout)
    assert held > 100e6
    assert grown < 1.2 * held


@pytest.mark.parametrize("block", [1, 3, 50, 10_000])
def test_distinct_remote_numbers(block, monkeypatch):
    monkeypatch.setattr("hpcgcn.graph.halo_cover.REMOTE_BLOCK", block)
    numbers = np.random.default_rng(1).integers(0, 90, 1000).astype(np.int32)
    outside = numbers[(numbers < 20) | (numbers >= 60)]
    np.testing.assert_array_equal(distinct_remote(numbers, 20, 60), np.unique(outside))
    assert len(distinct_remote(numbers[:0], 20, 60)) == 0
