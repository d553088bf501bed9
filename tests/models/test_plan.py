"""The plan of a model: nothing that is alive is overwritten; its bytes are those allocated."""

import itertools

import numpy as np
import pytest
from cases import CASES
from small_graphs import make_trainer, small_graph

from hpcgcn.backend.reference import ReferenceBackend
from hpcgcn.nn import plan as plan_module
from hpcgcn.nn.fields import Array
from hpcgcn.nn.models import MODELS, Inputs, Shape, build_model, parameter_specs, plan_model
from hpcgcn.nn.parameters import Parameters
from hpcgcn.nn.plan import KINDS, Buffer, Line, Plan, share_memory, whole_line
from hpcgcn.nn.steps import eager_weight_gradients
from hpcgcn.nn.timeline import Lifetime

# How a model may be run: as one rank or a partition does, and chunk by chunk as a pipeline does.
RUNS = {"together": {}, "chunks": {"by_chunk": True},
        "recompute": {"by_chunk": True, "recompute_rows": lambda width: 16}}


class CountingBackend(ReferenceBackend):
    """Counts the bytes of the arrays that it makes."""

    allocated = 0

    def zeros(self, shape, dtype=None):
        made = super().zeros(shape, dtype)
        self.allocated += made.nbytes
        return made


def built(name: str, backend, n_rows: int = 40, **changes):
    settings = {"layers": 5, "hidden": 8, "dropout": 0.5, "norm": MODELS[name].norm} | changes
    shape = Shape(name, 6, 3, **settings)
    parameters = Parameters(backend, parameter_specs(shape), 0, allocate=False)
    inputs = Inputs(np.arange(n_rows), dense=np.zeros((n_rows, 6), np.float32))
    return build_model(backend, shape, parameters, n_rows, inputs)


def overlap(a: Lifetime, b: Lifetime) -> bool:
    return a.first <= b.last and b.first <= a.last


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("name", MODELS)
def test_arrays_that_live_at_once_do_not_share_memory(name, run):
    plan = Plan(whole_line(built(name, None)), **RUNS[run])
    lives = {life.array: life for life in plan.lifetimes}
    placed = [array for buffer in plan.buffers for array in buffer.arrays]
    assert len(placed) == len(lives) and set(placed) == set(lives), "each has one place"
    for buffer in plan.buffers:
        arrays = buffer.arrays
        assert {array.shape for array in arrays} == {buffer.shape}
        pairs = itertools.combinations(arrays, 2)
        assert not any(overlap(lives[a], lives[b]) for a, b in pairs)
    assert len(plan.buffers) < len(plan.lifetimes), "some memory is shared"


@pytest.mark.parametrize("name", MODELS)
def test_what_hops_gather_lives_until_the_last_row_is_through(name):
    """Some rows are in the block behind a hop while others are still gathered from its input."""
    model = built(name, None)
    lives = {life.array: life for life in Plan(whole_line(model)).lifetimes}
    for hop in model.hops:
        behind = [step.target.planned_value for step in model.blocks[hop.number]]
        before = [field.planned_grad for step in model.blocks[hop.number - 1]
                  for field in step.written_gradients()]
        assert all(overlap(lives[hop.source.planned_value], lives[array]) for array in behind)
        if hop.source.wants_gradient:
            assert all(overlap(lives[hop.target.planned_grad], lives[array]) for array in before)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("name", MODELS)
def test_bytes_are_those_that_are_allocated(name, run):
    backend = CountingBackend(np.float64)
    model = built(name, backend)
    plan = Plan(whole_line(model), **RUNS[run])
    expected = plan.bytes(itemsize=8)
    assert tuple(expected) == KINDS and backend.allocated == 0, "known before anything is allocated"
    plan.bind(backend)
    assert backend.allocated == sum(n for kind, n in expected.items() if kind != "parameters") > 0
    backend.allocated = 0
    model.parameters.allocate({p.spec.name for p in plan.parameters})
    assert backend.allocated == expected["parameters"]


def arrays_of(model) -> list[Array]:
    """All that a plan gives memory to."""
    steps = [step for block in model.blocks for step in block]
    fields = [field for item in (*steps, *model.hops) for field in (*item.reads, item.target)]
    arrays = [a for field in fields for a in (field.planned_value, field.planned_grad)]
    arrays += [array for step in steps for array in (*step.saves, *step.scratch)]
    arrays += [array for hop in model.hops for array in hop.saves]
    return [a for a in arrays if a is not None and not a.is_given]


@pytest.mark.parametrize("name", CASES)
def test_a_plan_without_a_graph_has_the_bytes_of_the_run(name):
    """What is asked of a plan alone, against the arrays that a trainer really holds."""
    graph_changes, settings = CASES[name]
    graph = small_graph(**graph_changes)
    trainer = make_trainer(graph, **settings, needed_rows=False)
    model, shape = trainer.engine.model, trainer.shape
    trainer.engine.memory.use_training()
    held = {a.data.ctypes.data: a.data for a in arrays_of(model)}
    every_hop = shape.layers - shape.linear_layers       # if the input is aggregated in every epoch
    planned = plan_model(shape, graph.n_nodes, sparse="sparse" in graph_changes,
                         precomputed=len(model.hops) < every_hop).bytes(itemsize=8)
    assert planned["parameters"] == 4 * trainer.parameters.value.nbytes
    without_parameters = sum(planned.values()) - planned["parameters"]
    assert sum(data.nbytes for data in held.values()) == without_parameters


@pytest.mark.parametrize("name", CASES)
def test_arrays_of_few_rows_do_not_touch_one_another(name):
    """Arrays of which a pass uses the first rows lie over what is behind these: of any two that
    live at once the used rows are apart."""
    graph_changes, settings = CASES[name]
    trainer = make_trainer(small_graph(200, 300, train_share=0.02, **graph_changes), **settings)
    memory, needed = trainer.engine.memory, trainer.engine.local.needed
    memory.use_training()
    plan = Plan(whole_line(trainer.engine.model, False), n_needed=needed.count)
    lives = [life for life in plan.lifetimes if life.array.fill is None]
    few = needed.count(len(trainer.engine.model.hops)) < trainer.engine.local.n_owned
    assert any(life.n_elements < life.array.size for life in lives) == few
    spans = [(life, life.array.data.ctypes.data, life.n_elements * 8) for life in lives]
    for (one, start, length), (other, start_of_other, _) in itertools.permutations(spans, 2):
        if overlap(one, other) and start_of_other >= start:
            assert start_of_other >= start + length, (one.array.name, other.array.name)


@pytest.mark.parametrize("name", MODELS)
def test_needed_rows_take_less_memory_and_evaluation_takes_it_again(name):
    graph = small_graph(400, 500, train_share=0.01)
    held = {}
    for needed_rows in (True, False):
        trainer = make_trainer(graph, model=name, layers=4, hidden=16, dropout=0.5,
                               precompute="no", needed_rows=needed_rows)
        memory, model = trainer.engine.memory, trainer.engine.model
        memory.use_training()
        held[needed_rows] = memory.nbytes
        trainer.engine.evaluate()
        forward = Plan(whole_line(model, False), trains=False).bytes(itemsize=8)
        of_rows = sum(forward.values()) - forward["parameters"]
        assert max(held[needed_rows], of_rows) >= memory.nbytes - 64 * 8 * len(arrays_of(model))
        assert not any(a.bound for a in arrays_of(model) if a.gradient), "a forward pass has none"
    assert held[True] < 0.6 * held[False]


def outcome(graph, settings):
    trainer = make_trainer(graph, **settings)
    losses = [trainer.run_epoch()[0] for _ in range(3)]
    return losses, trainer.parameters.value.copy(), trainer.engine.evaluate().copy()


def assert_sharing_changes_no_bit(monkeypatch, graph, settings):
    """Against a run in which every array has memory of its own."""
    shared = outcome(graph, settings)
    monkeypatch.setattr(plan_module, "share_memory", lambda lives: [
        Buffer(life.array.shape, [life.array], life.array.size) for life in lives])
    for found, wanted in zip(shared, outcome(graph, settings)):
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize("name", CASES)
def test_shared_memory_changes_no_bit(name, monkeypatch):
    graph_changes, settings = CASES[name]
    assert_sharing_changes_no_bit(monkeypatch, small_graph(200, 600, **graph_changes), settings)


@pytest.mark.parametrize("name", MODELS)
def test_shared_memory_changes_no_bit_where_rows_go_in_blocks(name, monkeypatch):
    """Rows this wide go in blocks of 256: some are past a hop while others are gathered from."""
    settings = {"model": name, "layers": 4, "hidden": 1024, "dropout": 0.5, "precompute": "no"}
    assert_sharing_changes_no_bit(monkeypatch, small_graph(520, 1500), settings)


def test_memory_is_shared_where_it_can_be():
    """A GCNII saves two activations per layer; its gradients need a few arrays, however deep."""
    few, many = (plan_model(Shape("gcnii", 6, 3, layers, 8), 100).bytes() for layers in (10, 40))
    row_array, weight = 100 * 8 * 4, 8 * 8 * 4
    assert many["saved for backward"] - few["saved for backward"] == 30 * (2 * row_array + weight)
    assert few["gradients"] == many["gradients"] < 6 * row_array
    assert few["activations"] == many["activations"] and few["scratch"] == many["scratch"]


def test_lifetimes_that_touch_do_not_share():
    a, b, c, d = (Array(name, (3, 2)) for name in "abcd")
    lives = [Lifetime(a, 0, 2), Lifetime(b, 2, 4), Lifetime(c, 3, 6), Lifetime(d, 5, 7)]
    assert [buffer.arrays for buffer in share_memory(lives)] == [[a, c], [b, d]]


def test_what_outlives_the_epoch_shares_with_nothing():
    model = built("gcnii", None)
    kept = [hop.target.planned_grad for hop in model.hops]
    plan = Plan(whole_line(model), by_chunk=True, outlive_epoch=kept)
    for array in kept:
        assert [b.arrays for b in plan.buffers if array in b.arrays] == [[array]]


def test_the_loss_of_a_chunk_stays_out_of_what_hops_gather():
    model = built("gcn", None)           # the last layer narrows: its logits are a hop's output
    assert model.hops[-1].target.planned_grad is model.logits.planned_grad
    assert Plan(whole_line(model)).loss_gradient is model.logits.planned_grad
    assert Plan(whole_line(model), by_chunk=True).loss_gradient is not model.logits.planned_grad
    deep = built("resgcn", None)
    assert Plan(whole_line(deep), by_chunk=True).loss_gradient is deep.logits.planned_grad


def test_weight_gradients_wait_unless_that_costs_memory():
    model = built("gcn", None, layers=7, linear_layers=5)
    block = model.blocks[-1]
    matrices = [step for step in block if step.has_weight_gradients]
    names = {step: step.parameters[0].spec.name for step in matrices}
    assert list(names.values()) == [f"conv{k}.weight" for k in range(2, 8)]
    eager = {names[step] for step in eager_weight_gradients(block)}
    assert eager == {f"conv{k}.weight" for k in range(4, 8)}
    assert not any(eager_weight_gradients(block) for block in built("sage", None).blocks)


@pytest.mark.parametrize("name, fused", [("sage", ("bias", "norm", "relu", "dropout")),
                                         ("gcn", ("bias", "relu", "dropout")),
                                         ("resgcn", ("norm", "relu", "dropout"))])
def test_what_follows_a_product_is_one_pass(name, fused):
    plan = Plan(whole_line(built(name, None, layers=3)))
    assert list(plan.fused.values()) == [fused] * (4 if name == "resgcn" else 2)
    assert not any(step.has_weight_gradients for step in plan.fused)


def test_a_part_plans_its_own_steps_only():
    model = built("resgcn", None)
    hops = model.hops
    line = Line(model.blocks[2:4], hops[2:3], received=[hops[1].target], sent=[hops[3].source])
    plan = Plan(line, by_chunk=True)
    used = {p.spec.name for block in model.blocks[2:4] for step in block for p in step.parameters}
    assert {p.spec.name for p in plan.parameters} == used and used < set(model.parameters.by_name)
    assert sum(plan.bytes().values()) < sum(Plan(whole_line(model), by_chunk=True).bytes().values())
