"""The parts of a pipeline of layers, each alone: grids, chunks, cuts, balance, schedules,
storage."""

import itertools

import numpy as np
import pytest
from small_graphs import small_graph

from hpcgcn.backend.reference import ReferenceBackend
from hpcgcn.errors import ConfigError
from hpcgcn.graph.generate import generate_sbm
from hpcgcn.nn.models import Inputs, Shape, build_model, parameter_specs
from hpcgcn.nn.parameters import Parameters
from hpcgcn.parallel.layers import chunks
from hpcgcn.parallel.layers.accounting import ages_line
from hpcgcn.parallel.layers.chunk_schedule import (
    chunk_order,
    free_schedule,
    historical_entries,
    waiting_schedule,
    waiting_schedules,
)
from hpcgcn.parallel.layers.chunks import chunk_parts, cut_runs, make_chunking, partition_of_graph
from hpcgcn.parallel.layers.division import balance, find_cuts, line_of, stage_plan
from hpcgcn.parallel.layers.grid import grid_shape
from hpcgcn.parallel.layers.storage import plan_stage

BACKEND = ReferenceBackend(np.float32)


# -- grids -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("per_stage, stages, ranks, wanted", [
    (1, 0, 4, (1, 4)), (2, 0, 4, (2, 2)), (0, 0, 4, (2, 2)), (0, 0, 6, (2, 3)), (0, 0, 3, (3, 1)),
    (0, 0, 1, (1, 1)), (0, 2, 8, (4, 2)), (2, 4, 8, (2, 4)), (1, 1, 1, (1, 1))])
def test_grids(per_stage, stages, ranks, wanted):
    assert grid_shape(per_stage, stages, ranks) == wanted


@pytest.mark.parametrize("per_stage, stages, ranks",
                         [(1, 3, 4), (3, 0, 4), (2, 2, 8), (0, 3, 4), (5, 0, 4), (0, 5, 4)])
def test_grids_that_do_not_fit_are_refused(per_stage, stages, ranks):
    with pytest.raises(ConfigError, match=f"but {ranks} were started"):
        grid_shape(per_stage, stages, ranks)


# -- chunks ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("method", ["metis", "random", "block"])
@pytest.mark.parametrize("per_stage, n_chunks", [(1, 1), (1, 7), (2, 3), (3, 5)])
def test_chunks_hold_every_node_once(directed, method, per_stage, n_chunks):
    graph = small_graph(200, 700, directed=directed)
    chunking = make_chunking(graph, per_stage, n_chunks, method, "volume", 0)
    assert np.array_equal(np.sort(chunking.order), np.arange(200))
    assert len(chunking.chunks) == per_stage and chunking.offsets[-1] == 200
    for ends, size in zip(chunking.chunks, np.diff(chunking.offsets)):
        assert (len(ends) == n_chunks + 1 and ends[0] == 0 and ends[-1] == size
                and (np.diff(ends) > 0).all())
    entries = 0
    for partition in range(per_stage):
        part = partition_of_graph(graph, chunking, partition, 0)
        for row, node in enumerate(part.original_ids):
            read = np.sort(chunking.order[part.indices[part.indptr[row]:part.indptr[row + 1]]])
            assert np.array_equal(read, graph.indices[graph.indptr[node]:graph.indptr[node + 1]])
        entries += len(part.indices)
    assert entries == graph.n_edges


def test_chunks_do_about_equal_work():
    graph = generate_sbm(4000, 12, 4, 5, seed=0)
    part = chunk_parts(graph.indptr, graph.indices, 8, "metis", 0)
    work = np.bincount(part, 50 + np.diff(graph.indptr))
    assert work.max() < 1.1 * work.mean()


def test_chunks_are_put_together_from_four_parts_each(monkeypatch):
    """The paper's rule: METIS with weights of 50 + degree into 4 K parts, their numbers shuffled,
    four merged into a chunk."""
    graph, asked = small_graph(400, 1500), {}

    def metis_parts(indptr, indices, n_parts, objective, seed, weights):
        asked.update(n_parts=n_parts, objective=objective, weights=weights)
        return np.arange(graph.n_nodes) % n_parts
    monkeypatch.setattr(chunks, "metis_parts", metis_parts)
    chunk = chunk_parts(graph.indptr, graph.indices, 5, "metis", 3)
    assert asked["n_parts"] == 20 and asked["objective"] == "cut"
    assert np.array_equal(asked["weights"], 50 + np.diff(graph.indptr))
    of_part = chunk[:20]
    assert (np.array_equal(chunk, of_part[np.arange(graph.n_nodes) % 20])
            and np.bincount(of_part).tolist() == [4] * 5)
    assert not np.array_equal(of_part, np.arange(20) // 4), "neighbouring parts were merged"


def test_runs_of_parts():
    indptr = np.arange(0, 301, 3)                      # 100 nodes of equal work
    assert cut_runs(indptr, np.array([0, 40, 100]), 2).tolist() == [0, 20, 40, 70, 100]
    with pytest.raises(ConfigError, match="cannot be cut into 50"):
        cut_runs(indptr, np.array([0, 40, 100]), 50)


# -- cuts and balance ------------------------------------------------------------------------------

def planned(model: str, layers: int = 4, sparse: bool = False, **more):
    shape = Shape(model, 6, 3, layers, 8, dropout=0.5, self_loops=model != "sage",
                  norm=model == "sage", **more)
    graph = small_graph(sparse=sparse)
    features = ({"sparse": graph.features} if sparse
                else {"dense": BACKEND.from_host(np.float32(graph.features))})
    if model in ("gcn", "sage") and not sparse:
        features["aggregated"] = features["dense"]
    parameters = Parameters(BACKEND, parameter_specs(shape), 0, allocate=False)
    return build_model(BACKEND, shape, parameters, graph.n_nodes,
                       Inputs(np.arange(graph.n_nodes), **features))


@pytest.mark.parametrize("model, crossing",
                         [("gcnii", [["h0"], ["e", "h0"], ["e", "h0"], ["e", "h0"]]),
                          ("resgcn", [["stream"]] * 4),
                          ("gcn", [["e"], ["e"], ["u"]]), ("sage", [["e"], ["e"], ["e"]])])
def test_as_little_as_possible_crosses_a_cut(model, crossing):
    cuts = find_cuts(planned(model))
    assert [sorted(field.name for field in cut.fields) for cut in cuts] == crossing
    assert len({cut.position for cut in cuts}) == len(cuts)


def test_features_stay_on_the_first_stage():
    model = planned("sage", sparse=True)
    reads = [k for k, item in enumerate(line_of(model)) if item.reads_features]
    assert all(cut.position > max(reads) for cut in find_cuts(model)) and len(reads) == 2


@pytest.mark.parametrize("model", ["gcn", "sage", "gcnii", "resgcn"])
def test_stages_share_a_model_out(model):
    whole = planned(model, layers=6)
    cuts = find_cuts(whole)
    plans = [stage_plan(whole, cuts, [1, 3, len(cuts) + 1], stage) for stage in range(3)]
    assert [id(hop) for plan in plans for hop in plan.hops] == [id(hop) for hop in whole.hops]
    steps = [step for plan in plans for segment in plan.segments for step in segment]
    assert [id(s) for s in steps] == [id(s) for block in whole.blocks for s in block]
    assert (plans[0].sent == plans[1].received and plans[1].sent == plans[2].received
            and not plans[0].received and not plans[2].sent)
    assert plans[0].next_hop == plans[1].first_hop


def test_the_most_expensive_stage_costs_least():
    rng = np.random.default_rng(0)
    for n_units, n_stages in itertools.product(range(1, 8), range(1, 5)):
        if n_stages > n_units:
            continue
        costs = rng.random(n_units).tolist()

        def worst(ends, costs=costs):
            return max(sum(costs[a:b]) for a, b in zip([0, *ends], ends))
        found = balance(costs, n_stages)
        every = [[*inner, n_units]
                 for inner in itertools.combinations(range(1, n_units), n_stages - 1)]
        assert found in every and worst(found) == pytest.approx(min(map(worst, every)))


def test_a_stage_allocates_its_own_arrays_and_parameters():
    model = planned("gcnii", layers=6)
    cuts, parameters = find_cuts(model), model.parameters
    stage = stage_plan(model, cuts, [3, len(cuts) + 1], 1)
    plan = plan_stage(BACKEND, stage, logits=model.logits)
    parameters.allocate({p.spec.name for p in plan.parameters})
    plan.bind(BACKEND)
    mine = {"conv3.weight", "conv4.weight", "conv5.weight", "conv6.weight", "output.weight",
            "output.bias"}
    assert {spec.name for spec in parameters.specs} == mine
    whole = Parameters(BACKEND, parameters.all_specs, 0)
    assert np.array_equal(whole.value[parameters.offset:parameters.offset + parameters.size],
                          parameters.value)
    assert np.array_equal(parameters["conv4.weight"].value, whole["conv4.weight"].value)
    assert parameters["conv1.weight"].value is None
    for hop in model.hops:
        arrays = (hop.source.planned_value, hop.source.planned_grad, hop.target.planned_value,
                  hop.target.planned_grad)
        assert [array.bound for array in arrays] == [hop in stage.hops] * 4
    for gathered in ([hop.source.value for hop in stage.hops],
                     [hop.target.grad for hop in stage.hops]):
        assert len({id(array)
                    for array in gathered}) == len(gathered), "gathered from at the same time"


@pytest.mark.parametrize("model, dead, recomputed",
                         [("gcnii", 4, 3), ("resgcn", 0, 0), ("gcn", 2, 0), ("sage", 1, 0)])
def test_gradients_take_the_place_of_inputs_that_can_be_recomputed(model, dead, recomputed):
    """Going forward a stage gathers inputs of hops, going back gradients of their outputs: these
    may share memory."""
    whole = planned(model, layers=6)
    cuts = find_cuts(whole)
    stage = stage_plan(whole, cuts, [len(cuts) - 3, len(cuts) + 1], 1)
    before = plan_stage(BACKEND, stage, logits=whole.logits).bytes()
    plan = plan_stage(BACKEND, stage, recompute=True, logits=whole.logits)
    # A stage's first input comes from another stage, which recomputes it if it has to.
    assert len(plan.recomputed) == recomputed and len({step.recomputed
                                                       for step in plan.recomputed}) <= 1
    buffer_of = {array: number for number, buffer in enumerate(plan.buffers)
                 for array in buffer.arrays}
    inputs = [buffer_of[hop.source.planned_value] for hop in stage.hops]
    gradients = [buffer_of[hop.target.planned_grad] for hop in stage.hops]
    assert (len(set(inputs)) == len(inputs)
            and len(set(gradients)) == len(gradients)), "alive at the same time"
    ends = {life.array: life.last for life in plan.lifetimes}
    begin_backward = min(life.first for life in plan.lifetimes
                         if life.array is stage.hops[-1].target.planned_grad)
    assert sum(ends[hop.source.planned_value] < begin_backward for hop in stage.hops) == dead
    if recomputed:
        small = sum(plan.bytes().values()) - sum(8 * 4 * step.recomputed.shape[0]
                                                 for step in plan.recomputed[:1])
        assert small < sum(before.values())


# -- schedules -------------------------------------------------------------------------------------

def check_schedule(schedule, n_hops, reads, n_chunks):
    """Every task once, in an order that respects what it reads."""
    done, arrived = set(), set()
    for chunk, tasks in zip(schedule.arrivals, schedule.tasks):
        arrived.add(chunk)
        for task in tasks:
            c, depth = task
            assert c in arrived and task not in done
            assert depth == 0 or all((d, depth - 1) in done for d in [c, *np.flatnonzero(reads[c])])
            done.add(task)
    assert len(done) == n_chunks * (n_hops + 1)
    assert sorted(schedule.departures) == list(range(n_chunks))


@pytest.mark.parametrize("density", [0.0, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("n_hops", [0, 1, 4])
def test_chunks_wait_for_all_that_they_read_and_for_nothing_else(density, n_hops):
    rng = np.random.default_rng(1)
    reads = rng.random((9, 9)) < density
    order = rng.permutation(9).tolist()
    schedule = waiting_schedule(order, n_hops, reads)
    check_schedule(schedule, n_hops, reads, 9)
    if density == 0:
        assert schedule.tasks == free_schedule(order, n_hops).tasks
    if density == 1 and n_hops:
        assert [len(tasks) for tasks in schedule.tasks] == [1] * 8 + [1 + 9 * n_hops]


def test_what_leaves_a_stage_arrives_at_the_next():
    reads = np.eye(6, dtype=bool) | np.eye(6, k=1, dtype=bool)
    schedules = waiting_schedules(list(range(6)), [2, 0, 3], reads)
    for before, after in zip(schedules, schedules[1:]):
        assert before.departures == after.arrivals
    # A chain: chunk 0 of the first stage waits for two more chunks at its second hop, not for all.
    assert (0, 2) in schedules[0].tasks[2]


def test_orders_change_with_the_epoch_and_are_kept_without_shuffling():
    orders = [chunk_order(3, epoch, 12, True) for epoch in range(4)]
    assert all(sorted(order) == list(range(12))
               for order in orders) and len(set(map(tuple, orders))) == 4
    assert chunk_order(3, 1, 12, True) == orders[1] and chunk_order(3, 1, 12,
                                                                    False) == list(range(12))


def test_entries_that_read_history_are_counted():
    entries = np.arange(9).reshape(3, 3)
    assert historical_entries([0, 1, 2], entries) == 1 + 2 + 5
    assert historical_entries([2, 1, 0], entries) == 3 + 6 + 7
    assert historical_entries([1, 2, 0], entries) == 3 + 5 + 6


def test_ages_are_told_in_a_line():
    assert ages_line({"current": 1.0}) == ages_line({}) == ""
    assert (ages_line({"current": 0.7, "zeros": 0.3})
            == "rows read of neighbours: 70 % current, 30 % before the first snapshot\n")
    told = ages_line({"current": 0.5, "zeros": 0.1, "1": 0.3, "5": 0.1})
    assert told == ("rows read of neighbours: 50 % current, 40 % from snapshots of 1 to 5 epochs "
                    "ago (mean 2.0), 10 % before the first snapshot\n")
