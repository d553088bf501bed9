"""What the parts of a model cost, measured: every step and sparse product is run on some rows."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

import numpy as np

from hpcgcn.nn.models import Hop, Inputs, Shape, build_model, parameter_specs
from hpcgcn.nn.parameters import Parameters
from hpcgcn.nn.plan import Plan, whole_line
from hpcgcn.nn.steps import PassContext
from hpcgcn.parallel.aggregation import largest_block, row_blocks
from hpcgcn.parallel.layers.division import find_cuts, units_of
from hpcgcn.parallel.layers.matrices import ChunkedGraph

SAMPLE_ROWS = 2048
REPEATS = 3                          # the fastest counts


def measure_units(backend, shape: Shape, inputs: Inputs, graph: ChunkedGraph, seed: int,
                  recompute: bool) -> list[float]:
    """Seconds of each unit of the model (see division.py), both ways, on a sample of rows."""
    n = min(SAMPLE_ROWS, graph.local.n_owned)
    parameters = Parameters(backend, parameter_specs(shape), seed)
    model = build_model(backend, shape, parameters, n, _sample(inputs, n))
    plan = Plan(whole_line(model), by_chunk=True,
                recompute_rows=partial(largest_block, backend) if recompute else None)
    plan.bind(backend)
    widths = {hop.source.width for hop in model.hops}
    products = {width: _product_seconds(backend, graph, width, n) for width in widths}
    context = PassContext(seed, 0, True)

    def seconds(item) -> float:
        if isinstance(item, Hop):
            return products[item.source.width]
        return _step_seconds(backend, item, n, context)

    units = units_of(model, find_cuts(model))
    costs = _alike([sum(map(seconds, unit)) for unit in units],
                   [_signature(unit) for unit in units])
    return [cost * share for cost, share in zip(costs, _shares(graph, units))]


def _shares(graph: ChunkedGraph, units: list[list]) -> list[float]:
    """The share of the rows that training runs each unit on, the mean of its items."""
    needed, block, shares = graph.local.needed, 0, []
    for unit in units:
        of_items = []
        for item in unit:
            block = item.number if isinstance(item, Hop) else block
            of_items.append(needed.count(block) / max(graph.local.n_owned, 1))
        shares.append(float(np.mean(of_items)))
    return shares


def _sample(inputs: Inputs, n: int) -> Inputs:
    """The first n rows."""
    return replace(inputs, ids=inputs.ids[:n],
                   dense=None if inputs.dense is None else inputs.dense[:n],
                   aggregated=None if inputs.aggregated is None else inputs.aggregated[:n],
                   sparse=None if inputs.sparse is None else inputs.sparse.rows(0, n))


def _fastest(backend, work) -> float:
    seconds = []
    for _ in range(1 + REPEATS):
        began = time.perf_counter()
        work()
        backend.synchronize()
        seconds.append(time.perf_counter() - began)
    return min(seconds[1:])


def _step_seconds(backend, step, n: int, context: PassContext) -> float:
    def there_and_back():
        for rows in row_blocks(backend, 0, n, step.target.width):
            step.forward(rows, context)
            step.backward(rows, context)
            step.weight_gradients(rows, context)
    return _fastest(backend, there_and_back)


def _product_seconds(backend, graph: ChunkedGraph, width: int, n: int) -> float:
    """Both directions of a hop at this width, for n rows of mean degree."""
    x, out = (backend.zeros((graph.local.n_owned, width)) for _ in range(2))
    backend.copy(np.ones(x.shape, backend.dtype), x)     # pages never written would all be one
    seconds = _fastest(backend, lambda: [backend.spmm(a, x, out, rows=(0, n))
                                         for a, _ in graph.forward])
    indptr = graph.local.inner.indptr
    return 2 * seconds * (indptr[-1] / graph.local.n_owned) / max(indptr[n] / n, 1)


def _signature(unit: list) -> tuple:
    return tuple((type(item).__name__, item.target.width) for item in unit)


def _alike(costs: list[float], signatures: list[tuple]) -> list[float]:
    """Units of the same shape cost the same: their mean."""
    return [float(np.mean([c for c, s in zip(costs, signatures) if s == mine]))
            for mine in signatures]
