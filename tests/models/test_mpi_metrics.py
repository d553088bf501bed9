"""Metrics are the same to the last bit however nodes are divided among ranks, empty ranks among
them; in every strategy a node is scored once."""

import numpy as np
import pytest
from mpi4py import MPI
from test_metrics import NAMES, drawn

from hpcgcn.train import ranking
from hpcgcn.train.scores import scores

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(60)]


@pytest.mark.parametrize("block", [7, ranking.BLOCK])
@pytest.mark.parametrize("n_classes, multilabel", [(2, False), (4, True)])
def test_scores_do_not_depend_on_the_division(n_classes, multilabel, block, monkeypatch):
    monkeypatch.setattr(ranking, "BLOCK", block)
    comm = MPI.COMM_WORLD
    logits, labels, split = drawn(n_classes, multilabel, ties=True, n=300)
    owner = np.random.default_rng(5).integers(0, max(comm.size - 1, 1), 300)   # the last has none
    mine = owner == comm.rank
    for name in NAMES:
        if multilabel and name == "accuracy":
            continue
        whole = scores(MPI.COMM_SELF, logits, labels, split, name)
        assert scores(comm, logits[mine], labels[mine], split[mine], name) == whole, name
