"""What rows weigh at their receivers, told to the senders; and sums over ranks that lose less for
it."""

import numpy as np
import pytest
from parts import awkward, cut

from hpcgcn.backend.reference import ReferenceBackend
from hpcgcn.exchange.codecs import make_codec
from hpcgcn.exchange.exchange import Exchange
from hpcgcn.exchange.schedules import Schedule
from hpcgcn.exchange.types import Policy
from hpcgcn.parallel.local_graph import build_local
from hpcgcn.parallel.partition.halo_plans import HaloPlans
from hpcgcn.parallel.partition.matrices import PartitionedMatrices

pytestmark = [pytest.mark.mpi(min_size=2), pytest.mark.timeout(60)]
WIDTH = 24


def halo_of(comm, how, n_nodes=60, n_edges=400):
    graph, owner = awkward("random", comm.size, n_nodes=n_nodes, n_edges=n_edges)
    local = build_local(comm, cut(graph, owner, comm.rank, comm.size), True)
    matrices = PartitionedMatrices(ReferenceBackend(np.float64), local, "symmetric")
    return local, matrices.halo(HaloPlans(local, how).whole())


def dense(matrix) -> np.ndarray:
    """A matrix of the reference backend, worked out by multiplying."""
    backend, out = ReferenceBackend(np.float64), np.zeros(matrix.shape)
    backend.spmm(matrix, np.eye(matrix.shape[1]), out)
    return out


@pytest.mark.parametrize("how", ["rows", "cover"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_senders_know_the_norms_of_the_receivers_columns(comm, how, direction):
    _, halo = halo_of(comm, how)
    routes = halo.routes(direction, weighted=True)
    if direction == "forward":
        column_norms = np.sqrt((dense(halo.outer) ** 2).sum(0))
        mine = {n.rank: column_norms[n.received] for n in halo.plan.neighbours}
    else:                            # dx gets back a unit of each thing that was sent
        mine = {}
        for neighbour in halo.plan.neighbours:
            norms = []
            for k in range(neighbour.sent.start, neighbour.sent.stop):
                arrived = np.zeros((halo.plan.n_sent, 1))
                arrived[k] = 1.0
                dx = np.zeros((halo.matrices.n_owned, 1))
                halo.add_gradients(arrived, dx, np.zeros((halo.n_summed, 1)))
                norms.append(np.sqrt((dx ** 2).sum()))
            mine[neighbour.rank] = np.array(norms)
    everyone = comm.allgather(mine)
    n_weights = 0
    for route in routes:
        np.testing.assert_allclose(route.outgoing.weights, everyone[route.peer][comm.rank],
                                   rtol=1e-6)
        n_weights += len(route.outgoing)
    assert comm.allreduce(n_weights) > 0
    assert all(route.outgoing.weights is None for route in halo.routes(direction))


@pytest.mark.parametrize("how", ["rows", "cover"])
def test_sums_lose_less_than_with_uniform_bits_of_the_same_size(comm, runtime, how):
    local, halo = halo_of(comm, how, n_nodes=400, n_edges=1500)
    backend, rng = halo.backend, np.random.default_rng(comm.rank)
    x = rng.standard_normal((local.n_owned, WIDTH))
    x *= np.exp(rng.standard_normal((local.n_owned, 1)))
    exact = packed = None
    lost, sent = {}, {}
    if halo.plan.has_sums:
        packed = np.zeros((halo.plan.n_sent, WIDTH))
        halo.pack(x, x, packed)
    for name, rate in (("fp32", 1), ("bits", 4), ("adaptive", 4)):
        codec = make_codec(name)
        exchange = Exchange(runtime, backend, halo.routes("forward", codec.weighs_rows),
                            halo.plan.n_received, WIDTH, Policy(codec, Schedule(rate)), seed=1,
                            layer=1)
        total = 0.0
        for epoch in range(12):
            exchange.start(x if packed is None else packed, epoch)
            sums = np.zeros((local.n_owned, WIDTH))
            backend.spmm(halo.outer, exchange.finish(), sums)
            exact = sums if name == "fp32" else exact
            total += ((sums - exact) ** 2).sum()
        sent[name] = comm.allreduce(exchange.statistics.bytes_sent)
        lost[name] = comm.allreduce(total)
        exchange.close()
    assert lost["fp32"] == 0 < lost["adaptive"] < 0.8 * lost["bits"]
    n_messages = comm.allreduce(sum(len(route.outgoing) > 0 for route in halo.routes("forward")))
    assert sent["adaptive"] == sent["bits"] + 12 * 8 * n_messages
