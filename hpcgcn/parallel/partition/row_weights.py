"""What an error of a halo row adds to the sums of its receiver, told to its sender once.

If the errors of rows are independent, the variance of a sum is that of each row times its squared
coefficient. So a row weighs the square root of the sum of its squared coefficients at the receiver:
its column of A_outer for values; for gradients 1, or the coefficients of what a partial sum adds
up. The coefficients are the receiver's, so it works them out.
"""

from __future__ import annotations

import numpy as np

from hpcgcn.exchange.types import Route
from hpcgcn.mpi import large
from hpcgcn.parallel.local_graph import Structure
from hpcgcn.parallel.partition.halo_plans import HopHalo


def tell_weights(comm, plan: HopHalo, direction: str, routes: list[Route],
                 scales: tuple[np.ndarray | None, np.ndarray | None, np.ndarray | None]):
    """Give the outgoing rows of all routes their weights. Collective.

    scales: of owned rows, of owned columns and of what is received, as the matrices have them.
    """
    rows, columns, received = scales
    if direction == "forward":
        arriving = with_readers_of_host(comm, plan, norms(plan.outer_t, rows, received))
        known = [arriving[neighbour.received] for neighbour in plan.neighbours]
    else:
        known = [np.concatenate([np.ones(len(neighbour.send_rows)),
                                 norms(neighbour.sums, columns, None)])
                 for neighbour in plan.neighbours]
    told = [np.empty(len(route.outgoing)) for route in routes]
    large.exchange(comm, [(array, route.peer) for array, route in zip(told, routes)],
                   [(np.ascontiguousarray(array), route.peer)
                    for array, route in zip(known, routes)])
    for array, route in zip(told, routes):
        route.outgoing.weights = array


def with_readers_of_host(comm, plan: HopHalo, weights: np.ndarray) -> np.ndarray:
    """(n_received,) what rows weigh to this rank, and to those of its host that it passes them on
    to."""
    squares = weights ** 2
    told = [np.empty(len(p.places)) for p in plan.passing]
    large.exchange(comm, [(array, p.rank) for array, p in zip(told, plan.passing)],
                   [(np.ascontiguousarray(squares[p.received]), p.rank) for p in plan.passing])
    for array, p in zip(told, plan.passing):
        squares[p.places] += array               # a rank reads each of them once
    return np.sqrt(squares)


def norms(structure: Structure, column_scale: np.ndarray | None,
          row_scale: np.ndarray | None) -> np.ndarray:
    """(n_rows,) the Euclidean norm of each row of a matrix with these scales."""
    entries = np.ones(len(structure.indices))
    if structure.weights is not None:
        entries *= structure.weights
    if column_scale is not None:
        entries *= column_scale[structure.indices]
    row = np.repeat(np.arange(structure.n_rows), np.diff(structure.indptr))
    squares = np.bincount(row, weights=entries * entries, minlength=structure.n_rows)
    lengths = np.sqrt(squares)
    return lengths if row_scale is None else lengths * np.abs(row_scale)
