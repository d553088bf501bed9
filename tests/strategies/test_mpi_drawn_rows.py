"""Boundary nodes that are not drawn are left out of products, which changes no number; each
receiver has its own draw."""

import numpy as np
import pytest
from parts import awkward, cut

from hpcgcn.backend import native
from hpcgcn.backend.reference import ReferenceBackend
from hpcgcn.config import make_config
from hpcgcn.exchange.codecs import NoCodec, NodesCodec
from hpcgcn.train.trainer import Trainer

pytestmark = [pytest.mark.mpi(min_size=2), pytest.mark.timeout(120)]

BACKENDS = {"reference": lambda: ReferenceBackend(np.float32),
            "native": lambda: native.NativeBackend(1)}
CASES = {"bns": {"method": "bns", "rate": "3"},
         "moving": {"method": "bns", "rate": "step:4@0,1@2,2@3"},
         "stale": {"method": "bns", "rate": "3", "staleness": "1,narrow=0"},
         "none": {"method": "no-communication"}}


def train(comm, runtime, backend: str, settings: dict) -> tuple[list[float], int]:
    """(losses, multiply-adds of this rank in the last epoch)."""
    graph, owner = awkward("random", comm.size, n_nodes=60, n_edges=300)
    config = make_config({"layers": 3, "hidden": 9, "dropout": 0.3, "lr": 0.03, "model": "sage",
                          "needed_rows": False, "backend": backend} | settings)
    trainer = Trainer(runtime, BACKENDS[backend](), cut(graph, owner, comm.rank, comm.size), config)
    losses = [trainer.run_epoch()[0] for _ in range(5)]
    multiply_adds = trainer.engine.aggregations.multiply_adds()
    trainer.close()
    return losses, multiply_adds


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", CASES)
def test_what_is_left_out_changes_no_number(comm, runtime, monkeypatch, backend, case):
    without, few = train(comm, runtime, backend, CASES[case])
    monkeypatch.setattr(NodesCodec, "leaves_out", False)
    monkeypatch.setattr(NoCodec, "leaves_out", False)
    zeros, many = train(comm, runtime, backend, CASES[case])
    assert without == zeros
    few, many = comm.allreduce(few), comm.allreduce(many)
    assert few < many
