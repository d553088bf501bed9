"""Who holds what, and the products of a cut graph, on any number of ranks and for awkward cuts."""

import numpy as np
import pytest
from parts import KINDS, awkward, cut, matrix_of

from hpcgcn.backend.reference import ReferenceBackend
from hpcgcn.exchange.codecs import make_codec
from hpcgcn.exchange.exchange import Exchange
from hpcgcn.exchange.schedules import Schedule
from hpcgcn.exchange.types import Policy
from hpcgcn.graph.data import TRAIN
from hpcgcn.mpi.halo import find_halo
from hpcgcn.nn.fields import Field
from hpcgcn.nn.models import Hop, Model, Shape
from hpcgcn.nn.steps import PassContext
from hpcgcn.parallel.local_graph import build_local, restrict
from hpcgcn.parallel.partition.aggregations import HaloAggregations
from hpcgcn.parallel.partition.halo_plans import HaloPlans
from hpcgcn.parallel.partition.matrices import PartitionedMatrices

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(60)]

WIDTH = 3


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(params=["undirected", "directed"])
def directed(request):
    return request.param == "directed"


@pytest.fixture
def local(comm, kind, directed):
    """(graph, owner, this rank's local graph with self loops)."""
    graph, owner = awkward(kind, comm.size, directed=directed)
    return graph, owner, build_local(comm, cut(graph, owner, comm.rank, comm.size), True)


def edges(graph) -> set[tuple[int, int]]:
    """(reader, read) of the whole graph."""
    return {(v, int(u)) for v in range(graph.n_nodes)
            for u in graph.indices[graph.indptr[v]:graph.indptr[v + 1]]}


def test_the_halo_is_what_rows_of_mine_read_elsewhere(comm, local):
    graph, owner, mine = local
    wanted = sorted({u for v, u in edges(graph) if owner[v] == comm.rank and owner[u] != comm.rank})
    assert sorted(mine.halo_ids) == wanted
    assert [owner[u] for u in mine.halo_ids] == sorted(owner[u]
                                                       for u in mine.halo_ids), "grouped by owner"
    assert sorted(mine.ids) == sorted(np.flatnonzero(owner == comm.rank))
    assert all(n.rank != comm.rank for n in mine.plan.neighbours)


def test_interior_rows_have_nothing_to_do_with_others(comm, local):
    graph, owner, mine = local
    touching = {v for v, u in edges(graph)
                if owner[v] != owner[u]} | {u for v, u in edges(graph) if owner[v] != owner[u]}
    assert not touching & set(mine.ids[~mine.boundary].tolist())
    assert set(mine.ids[mine.boundary].tolist()) <= touching


def test_find_halo_says_who_wants_which_row(comm, kind, directed):
    graph, owner = awkward(kind, comm.size, directed=directed)
    part = cut(graph, owner, comm.rank, comm.size)
    halo, counts, wanted = find_halo(comm, part.offsets, comm.rank, part.indices)
    assert len(halo) == counts.sum() and counts[comm.rank] == 0 and len(wanted[comm.rank]) == 0
    for rank in range(comm.size):
        readers = {u for v, u in edges(graph) if owner[v] == rank and owner[u] == comm.rank}
        assert sorted(part.original_ids[wanted[rank]]) == sorted(readers) or rank == comm.rank


def test_scatter_brings_each_halo_row_its_owners_value(local):
    _, _, mine = local
    for shape, dtype in (((), np.float64), ((1,), np.int64), ((7,), np.float32)):
        values = (mine.ids.reshape(-1, *[1] * len(shape)) * np.ones(shape)).astype(dtype)
        halo = mine.plan.scatter(values)
        assert halo.shape == (mine.n_halo, *shape) and halo.dtype == dtype
        np.testing.assert_array_equal(
            halo, (mine.halo_ids.reshape(-1, *[1] * len(shape)) * np.ones(shape)).astype(dtype))


def plain_exchange(runtime, backend, cut_graph, direction, width=WIDTH) -> Exchange:
    n_received = cut_graph.local.n_halo if direction == "forward" else cut_graph.local.plan.n_sent
    routes = cut_graph.halo(HaloPlans(cut_graph.local).whole()).routes(direction)
    return Exchange(runtime, backend, routes, n_received, width,
                    Policy(make_codec("fp32"), Schedule(1.0)), seed=0, layer=1)


def test_forward_and_reverse_are_adjoint(comm, runtime, kind, local):
    """<F x, y> = <x, F' y> over all ranks, for random x on owned and y on halo rows."""
    _, _, mine = local
    backend, rng = ReferenceBackend(np.float64), np.random.default_rng(comm.rank)
    cut_graph = PartitionedMatrices(backend, mine, "symmetric")
    there, back = (plain_exchange(runtime, backend, cut_graph, d) for d in ("forward", "backward"))
    x, y = rng.standard_normal((mine.n_owned, WIDTH)), rng.standard_normal((mine.n_halo, WIDTH))
    there.start(x, 0)
    forward = float((there.finish() * y).sum())
    back.start(y, 0)
    arrived, returned = back.finish(), np.zeros_like(x)
    for neighbour in mine.plan.neighbours:
        np.add.at(returned, neighbour.send_rows, arrived[neighbour.receive_slice])
    backward = float((x * returned).sum())
    assert comm.allreduce(forward) == pytest.approx(comm.allreduce(backward), rel=1e-12)
    if comm.size > 1 and kind == "random":
        assert comm.allreduce(mine.n_halo) > 0
    there.close(), back.close()


@pytest.mark.parametrize("how", ["rows", "cover", "auto"])
@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("normalisation", ["symmetric", "mean"])
def test_aggregations_are_the_matrix_and_its_transpose(runtime, local, normalisation, blocking,
                                                       how):
    graph, _, mine = local
    backend, rng = ReferenceBackend(np.float64), np.random.default_rng(4)
    x, dz = rng.standard_normal((graph.n_nodes, WIDTH)), rng.standard_normal((graph.n_nodes, WIDTH))
    before = rng.standard_normal((graph.n_nodes, WIDTH))
    matrix = matrix_of(graph, normalisation, self_loops=True)
    source = Field.of("h", x[mine.ids].copy(), before[mine.ids].copy())
    target = Field.of("z", np.zeros((mine.n_owned, WIDTH)), dz[mine.ids].copy())
    hop = Hop(1, source, target)
    source.read_by(hop)
    source.read_by("a later consumer: the hop adds to the gradient")
    shape = Shape("sage" if normalisation == "mean" else "gcn", WIDTH, 2, 2, 4)
    plain = Policy(make_codec("fp32"), Schedule(1.0))
    strategy = HaloAggregations(runtime, backend, mine,
                                Model(shape, None, [[], []], [hop], target, []), lambda *_: plain,
                                plain, seed=0, blocking=blocking, halos=HaloPlans(mine, how))
    for aggregation in (strategy.forward[0], strategy.backward[0]):
        for rows in strategy.blocks:
            aggregation.push(rows, PassContext(0, 0, True))
        yielded = list(aggregation.pull(PassContext(0, 0, True)))
        assert sorted(r for start, stop in yielded
                      for r in range(start, stop)) == list(range(mine.n_owned)), "each row once"
    np.testing.assert_allclose(target.value, (matrix @ x)[mine.ids], atol=1e-12)
    np.testing.assert_allclose(source.grad, (before + matrix.T @ dz)[mine.ids], atol=1e-12)
    strategy.close()


@pytest.mark.parametrize("keeps", ["half", "none-here", "none", "all"])
def test_restrict_is_the_induced_subgraph(comm, kind, directed, keeps):
    graph, owner = awkward(kind, comm.size, directed=directed)
    part = cut(graph, owner, comm.rank, comm.size)
    rng = np.random.default_rng(2)
    kept = {"half": rng.random(graph.n_nodes) < 0.5, "none-here": owner != 0,
            "none": np.zeros(graph.n_nodes, bool), "all": np.ones(graph.n_nodes, bool)}[keeps]
    small = restrict(comm, part, kept[part.original_ids])
    assert small.offsets[-1] == kept.sum() and small.n_owned == (kept & (owner == comm.rank)).sum()
    everywhere = np.concatenate(comm.allgather(small.original_ids))
    found = {(int(small.original_ids[row]), int(everywhere[small.indices[e]]))
             for row in range(small.n_owned)
             for e in range(small.indptr[row], small.indptr[row + 1])}
    assert found == {(v, u)
                     for v, u in edges(graph) if kept[v] and kept[u] and owner[v] == comm.rank}
    np.testing.assert_array_equal(small.labels, graph.labels[small.original_ids])
    np.testing.assert_array_equal(small.features, graph.features[small.original_ids])
    build_local(comm, small, True)


@pytest.mark.parametrize("how", ["rows", "cover"])
@pytest.mark.parametrize("all_rows", [False, True])
def test_hops_of_training_make_the_rows_that_the_loss_needs(comm, runtime, kind, directed, how,
                                                            all_rows):
    """Two hops and back, on needed rows alone: values and gradients are those of all rows."""
    graph, owner = awkward(kind, comm.size, directed=directed, train_share=0.1)
    mine = build_local(comm, cut(graph, owner, comm.rank, comm.size), True, 2, all_rows)
    trains = graph.split[0] == TRAIN
    assert (np.diff(mine.needed.distance) >= 0).all()
    np.testing.assert_array_equal(mine.needed.distance == 0, trains[mine.ids])
    backend, plain = ReferenceBackend(np.float64), Policy(make_codec("fp32"), Schedule(1.0))
    rng, nowhere = np.random.default_rng(4), np.full((mine.n_owned, WIDTH), np.nan)
    x, dz = rng.standard_normal((2, graph.n_nodes, WIDTH)) * trains_or_one(trains)
    fields = [Field.of(name, nowhere.copy(), nowhere.copy()) for name in "abc"]
    hops = [Hop(number, fields[number - 1], fields[number]) for number in (1, 2)]
    model = Model(Shape("gcn", WIDTH, WIDTH, 2, WIDTH), None, [[], [], []], hops, fields[-1], [])
    for hop in hops:
        hop.source.read_by(hop)
    strategy = HaloAggregations(runtime, backend, mine, model, lambda *_: plain, plain, seed=0,
                                blocking=False, halos=HaloPlans(mine, how))
    matrix, context = matrix_of(graph, "symmetric", self_loops=True), PassContext(0, 0, True)
    needed = [strategy.n_needed(block) for block in range(3)]
    assert needed == [mine.n_owned] * 3 if all_rows else needed == sorted(needed)[::-1]

    def run(aggregations, blocks, numbers):
        for aggregation, number in zip(aggregations, numbers):
            for rows in blocks:
                aggregation.push(rows, context)
            blocks = list(aggregation.pull(context))
            rows = sorted(row for start, stop in blocks for row in range(start, stop))
            assert rows == list(range(needed[number]))

    fields[0].value[:needed[0]] = x[mine.ids][:needed[0]]
    run(strategy.forward, strategy.needed_blocks(0), (1, 2))
    np.testing.assert_allclose(fields[2].value[:needed[2]],
                               (matrix @ matrix @ x)[mine.ids][:needed[2]], atol=1e-12)
    fields[2].grad[:needed[2]] = dz[mine.ids][:needed[2]]
    run(strategy.backward[::-1], strategy.needed_blocks(2), (1, 0))
    np.testing.assert_allclose(fields[0].grad[:needed[0]],
                               (matrix.T @ matrix.T @ dz)[mine.ids][:needed[0]], atol=1e-12)
    fields[0].value[:] = x[mine.ids]                     # evaluation makes all rows
    for aggregation in strategy.evaluation:
        for rows in strategy.blocks:
            aggregation.push(rows, context)
        assert sum(stop - start for start, stop in aggregation.pull(context)) == mine.n_owned
    np.testing.assert_allclose(fields[2].value, (matrix @ matrix @ x)[mine.ids], atol=1e-12)
    strategy.close()


def trains_or_one(trains: np.ndarray) -> np.ndarray:
    """(2, n, 1): values are anywhere, the loss has gradients at training nodes alone."""
    return np.stack([np.ones(len(trains)), trains])[..., None]
