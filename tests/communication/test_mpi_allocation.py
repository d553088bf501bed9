"""The epoch loop works in arrays that were made before it: after the first epochs nothing large is
allocated."""

import tracemalloc

import pytest
from parts import awkward, cut

from hpcgcn.backend import native
from hpcgcn.config import make_config
from hpcgcn.mpi.world import collective_errors
from hpcgcn.train.trainer import Trainer

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

# the synchronous first epoch and the first stale ones are over
N_NODES, HIDDEN, WARM_UP = 1600, 64, 4


def largest_epoch(trainer, epochs: int = 3) -> int:
    """Bytes that Python and NumPy held at most in an epoch, beyond what was there before it."""
    for _ in range(WARM_UP):
        trainer.run_epoch()
    found = []
    for _ in range(epochs):
        tracemalloc.start()
        trainer.run_epoch()
        found.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return max(found)


@pytest.mark.parametrize("method, model",
                         [("vanilla", "gcn"), ("overlap", "sage"), ("pipegcn-gf", "gcnii"),
                          ("sylvie-a", "sage"), ("varco", "resgcn"), ("mixgcn", "gcn")])
def test_epochs_allocate_nothing_of_the_size_of_a_layer(comm, runtime, method, model):
    graph, owner = awkward("random", comm.size, n_nodes=N_NODES)
    config = make_config({"model": model, "method": method, "layers": 3, "hidden": HIDDEN,
                          "dropout": 0.4, "seed": 1})
    with collective_errors(comm):
        trainer = Trainer(runtime, native.NativeBackend(threads=1),
                          cut(graph, owner, comm.rank, comm.size), config)
    layer = 4 * HIDDEN * N_NODES // comm.size
    assert largest_epoch(trainer) < layer / 4
    trainer.close()
