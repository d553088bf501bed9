"""Whole models on the stand-in, from the sources and as PTX: the losses and scores of the
reference, for every model and kind of input."""

import pytest
from small_graphs import make_trainer, small_graph

CASES = {
    "sage": ({"model": "sage"}, {}),
    "gcn, two linear layers": ({"model": "gcn", "layers": 3, "linear_layers": 2}, {}),
    "gcnii": ({"model": "gcnii", "layers": 4}, {}),
    "resgcn": ({"model": "resgcn", "layers": 4}, {}),
    "gat": ({"model": "gat", "heads": 3, "output_heads": 2, "attention_dropout": 0.4}, {}),
    "gat on a directed graph": ({"model": "gat", "heads": 2}, {"directed": True}),
    "gin": ({"model": "gin"}, {}),
    "appnp": ({"model": "appnp"}, {}),
    "batch norm": ({"model": "gcn", "norm": "batch"}, {}),
    "weighted edges": ({"model": "gcn", "precompute": "no"}, {"weighted": True}),
    "sparse features": ({"model": "gcn"}, {"sparse": True}),
    "many labels per node": ({"model": "sage"}, {"multilabel": True}),
    "a directed graph": ({"model": "sage"}, {"directed": True}),
    "rows stored in bf16": ({"model": "sage", "precision": "bf16"}, {}),
    "a clipped gradient": ({"model": "sage", "clip": 0.1}, {}),
    "no aggregation in advance": ({"model": "sage", "precompute": "no"}, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_model_trains_as_on_the_reference(stand_in, case):
    compare(*CASES[case])


@pytest.mark.parametrize("case, architecture",
                         [*((case, 80) for case in CASES), ("sparse features", 70),
                          *(("rows stored in bf16", other) for other in (90, 100))])
def test_a_model_trains_on_ptx(ptx_machine, case, architecture):
    ptx_machine(architecture)
    compare(*CASES[case])


def compare(settings, kind):
    """Four epochs and an evaluation on both backends."""
    graph = small_graph(**kind)
    runs = []
    for backend in ("reference", "cuda"):
        trainer = make_trainer(graph, backend=backend,
                               **{"hidden": 12, "layers": 2, "epochs": 4, "seed": 1, **settings})
        runs.append([trainer.run_epoch()[0] for _ in range(4)]
                    + [trainer.evaluate()[k] for k in ("train", "val", "test")])
        trainer.close()
    assert runs[1] == pytest.approx(runs[0], abs=2e-5)
