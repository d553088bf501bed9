"""Training on parts cut by hand, awkward ones among them, against one rank that holds the whole
graph."""

import dataclasses

import numpy as np
import pytest
from parts import KINDS, awkward, cut
from small_graphs import make_trainer

from hpcgcn.backend import native
from hpcgcn.backend.reference import ReferenceBackend
from hpcgcn.config import make_config
from hpcgcn.errors import ConfigError, GraphError
from hpcgcn.graph.data import TEST, TRAIN, VAL, Part
from hpcgcn.mpi.world import collective_errors
from hpcgcn.train.trainer import Trainer

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

EPOCHS = 4
SETTINGS = {"backend": "reference", "dtype": "float64", "layers": 3, "hidden": 7, "dropout": 0.4,
            "lr": 0.03, "seed": 1}


def losses(trainer, epochs=EPOCHS) -> list[float]:
    return [trainer.run_epoch()[0] for _ in range(epochs)]


def trainer_on(runtime, graph, owner, **settings) -> Trainer:
    config, comm = make_config(SETTINGS | settings), runtime.comm
    with collective_errors(comm):
        return Trainer(runtime, ReferenceBackend(np.float64),
                       cut(graph, owner, comm.rank, comm.size), config)


@pytest.mark.parametrize("inductive", [False, True])
@pytest.mark.parametrize("model", ["gcn", "sage", "gcnii", "resgcn"])
@pytest.mark.parametrize("kind", KINDS)
def test_awkward_cuts_change_nothing(comm, runtime, kind, model, inductive):
    method = "vanilla" if (model in ("gcn", "resgcn")) == inductive else "overlap"
    graph, owner = awkward(kind, comm.size, directed=model in ("sage", "gcnii"),
                           sparse=kind == "blocks", multilabel=kind == "random")
    settings = {"model": model, "inductive": inductive,
                "precompute": "no" if kind in ("no-halo", "random") else "auto"}
    control = make_trainer(graph, **SETTINGS, **settings)
    trainer = trainer_on(runtime, graph, owner, **settings, method=method)
    np.testing.assert_allclose(losses(trainer), losses(control), rtol=1e-9)
    found, wanted = trainer.evaluate(), control.evaluate()
    assert found == pytest.approx(wanted, nan_ok=True)
    trainer.close()


@pytest.mark.parametrize("given", ["balanced", "3,0.5,1,0.25"])
def test_weights_of_classes_count_nodes_of_all_ranks(comm, runtime, given):
    graph, owner = awkward("random", comm.size)
    weights = given if given == "balanced" else ",".join(given.split(",")[k % 4]
                                                         for k in range(graph.n_classes))
    control = make_trainer(graph, **SETTINGS, class_weights=weights)
    trainer = trainer_on(runtime, graph, owner, class_weights=weights)
    np.testing.assert_allclose(losses(trainer), losses(control), rtol=1e-12)
    trainer.close()


def test_a_rank_without_train_nodes(comm, runtime):
    """All train nodes are with rank 0: the others have nothing to add in the transductive case, no
    nodes in the inductive."""
    graph, owner = awkward("random", comm.size)
    graph.split[0] = np.where(owner == 0, TRAIN, VAL)
    for inductive in (False, True):
        for method in ("overlap", "pipegcn-gf", "sylvie-a", "bns"):
            trainer = trainer_on(runtime, graph, owner, inductive=inductive, method=method)
            found = losses(trainer)
            if method == "overlap":
                np.testing.assert_allclose(
                    found, losses(make_trainer(graph, **SETTINGS, inductive=inductive)), rtol=1e-9)
            trainer.evaluate()
            trainer.close()


@pytest.mark.parametrize("parallel", ["auto", "features"])
def test_inductive_validation_knows_nothing_of_test_nodes(comm, runtime, parallel):
    """Other features of test nodes, and other edges to them, change the test score alone."""
    found, logits = [], []
    for other in (False, True):
        graph, owner = awkward("random", comm.size)
        if other:
            graph.features[graph.split[0] == TEST] += 3.0
            ends = graph.indices.copy()
            ends[graph.split[0][ends] == TEST] = np.flatnonzero(graph.split[0] == TEST)[0]
            graph = dataclasses.replace(graph, indices=ends, directed=True)
        trainer = trainer_on(runtime, graph, owner, inductive=True, parallel=parallel)
        losses(trainer)
        found.append(trainer.evaluate())
        logits.append([np.array(engine.evaluate()) for engine, _ in trainer.evaluators])
        trainer.close()
    for name in ("train", "val"):
        assert found[0][name] == pytest.approx(found[1][name], nan_ok=True)
    validation, test = zip(*logits)
    # The order of sums may differ: entries that cancel are compared with what they are made of.
    np.testing.assert_allclose(validation[0], validation[1], rtol=1e-12, atol=1e-14)
    differs = comm.allreduce(float(np.abs(test[0] - test[1]).max(initial=0.0)))
    assert differs > 1e-3


def test_no_train_nodes_at_all_is_refused_by_all(comm, runtime):
    graph, owner = awkward("random", comm.size)
    graph.split[0] = VAL
    for inductive in (False, True):
        with pytest.raises(GraphError, match="no labelled training nodes"):
            trainer_on(runtime, graph, owner, inductive=inductive)


def test_one_class_trains(comm, runtime):
    graph, owner = awkward("random", comm.size, n_classes=1)
    assert losses(trainer_on(runtime, graph, owner)) == pytest.approx([0.0] * EPOCHS)


def test_a_graph_without_edges(comm, runtime):
    graph, owner = awkward("random", comm.size, n_edges=0)
    np.testing.assert_allclose(losses(trainer_on(runtime, graph, owner)),
                               losses(make_trainer(graph, **SETTINGS)), rtol=1e-9)


def test_single_is_for_one_rank(comm, runtime):
    graph, owner = awkward("random", comm.size)
    if comm.size == 1:
        assert trainer_on(runtime, graph, owner,
                          parallel="single").strategy.config.parallel == "single"
        return
    with pytest.raises(ConfigError, match="one rank"):
        trainer_on(runtime, graph, owner, parallel="single")


def test_float32_ranks_end_with_the_same_parameters(comm, runtime):
    """No rank may drift: parameters are updated by each rank for itself."""
    graph, owner = awkward("random", comm.size)
    config = make_config(SETTINGS | {"dtype": "float32", "method": "sylvie-a", "clip": 0.5})
    trainer = Trainer(runtime, ReferenceBackend(np.float32),
                      cut(graph, owner, comm.rank, comm.size), config)
    losses(trainer, 10)
    assert len(set(comm.allgather(trainer.parameters.value.tobytes()))) == 1
    trainer.close()


def test_the_whole_part_is_a_part(comm):
    graph, _ = awkward("random", comm.size)
    mine, whole = cut(graph, np.zeros(graph.n_nodes, int), 0, 1), Part.whole(graph)
    for name in ("offsets", "indptr", "indices", "original_ids", "split"):
        np.testing.assert_array_equal(getattr(mine, name), getattr(whole, name))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("model", ["sage", "gcnii"])
def test_rows_kept_in_tiles_change_no_bit(comm, runtime, model, precision, monkeypatch):
    """Hops take turns with two stores: deep models would show a row that is overwritten too
    early."""
    graph, owner = awkward("random", comm.size)
    settings = {"backend": "native", "dtype": "float32", "model": model, "layers": 6, "hidden": 48,
                "precision": precision}

    def run() -> list[float]:
        config = make_config(SETTINGS | settings)
        with collective_errors(comm):
            trainer = Trainer(runtime, native.NativeBackend(threads=1),
                              cut(graph, owner, comm.rank, comm.size), config)
        found = losses(trainer)
        trainer.close()
        return found

    plain = run()
    monkeypatch.setattr(native, "NEAR_BYTES", 0)
    monkeypatch.setattr(native, "MIN_REUSE", 0)
    assert run() == plain
