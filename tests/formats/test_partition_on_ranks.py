"""`mpirun hpcgcn partition`: one answer, one message, and a kill -9 at any time leaves nothing that
is taken for a partition."""

import json
import os
import signal
import sys
import time

import numpy as np
import pytest
from launch import end, launch, ranks_of, start, wait_for

from hpcgcn.files.tidy import is_temporary
from hpcgcn.graph.generate import generate_sbm
from hpcgcn.graph.partitioners import PARTITIONERS
from hpcgcn.graph.store import header, write_graph
from hpcgcn.info.verify import verify

pytestmark = [pytest.mark.one_machine, pytest.mark.timeout(300),
              pytest.mark.skipif(bool(PARTITIONERS["labels"].missing()), reason="no kernels")]
PARTITION = [sys.executable, "-m", "hpcgcn", "partition", "g.h5", "-n", "3", "--method", "labels"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A graph whose parts take a moment to write."""
    path = tmp_path_factory.mktemp("ranks")
    graph = generate_sbm(20_000, 10, 8, 4, seed=1, homophily=0.95)
    graph.features = np.random.default_rng(0).standard_normal((20_000, 500), np.float32)
    write_graph(path / "g.h5", graph)
    return path


@pytest.fixture(scope="module")
def whole(folder):
    """What a job that is left alone makes, and says."""
    said = launch(2, [*PARTITION, "-o", "whole.h5", "--json"], cwd=folder).check().stdout
    return folder / "whole.h5", json.loads(said)


def test_two_ranks_make_one_sound_file(whole):
    path, costs = whole
    assert verify(path) == [] and costs["method"] == "labels"
    assert max(costs["balance"]["nodes"], costs["halo_ratio"]) < 1.04
    assert header(path)["settings"]["method"] == "labels"


def test_what_does_not_fit_is_refused_once(folder):
    outcome = launch(2, [*PARTITION, "-o", "never.h5", "--memory", "1MB"], cwd=folder)
    assert outcome.code == 2 and "Traceback" not in outcome.stderr
    assert outcome.stderr.count("'labels' would take about") == 1
    assert not (folder / "never.h5").exists()


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("phase", ["dividing", "writing"])
def test_after_a_kill_the_same_command_makes_the_same_file(folder, whole, phase, victim):
    path = folder / f"{phase}-{victim}.h5"
    job = start(2, [*PARTITION, "-o", path.name], cwd=folder)
    try:
        wait_for(lambda: len(ranks_of(path.name)) == 2)
        if phase == "writing":
            wait_for(lambda: any(map(is_temporary, os.listdir(folder))) or path.exists())
        else:
            time.sleep(0.5)
        if not path.exists():
            os.kill(ranks_of(path.name)[victim], signal.SIGKILL)
        job.wait(timeout=60)
    finally:
        end(job)
    assert not path.exists() or verify(path) == []
    launch(2, [*PARTITION, "-o", path.name], cwd=folder).check()
    assert verify(path) == []
    assert header(path)["checksum"] == header(whole[0])["checksum"]
