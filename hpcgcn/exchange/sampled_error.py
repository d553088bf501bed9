"""How far off the rows of an exchange are, measured by their sender on a sample of them.

    change    |h_t - h_(t-1)| / |h_t|: how far last epoch's rows are from today's
    drift     the part of the change that does not average out, see below
    coding    |h_t - what the receiver decodes| / |h_t|

Dropout makes rows differ from epoch to epoch even if nothing is learned: with a rate of 0.5 the
change is about 1 from the first epoch to the last, and does no harm, for its mean is zero. What
does harm is the drift of the mean. If rows are a mean that moves plus noise that is drawn anew,
|h_t - h_(t-1)|^2 and |h_t - h_(t-2)|^2 hold the same noise, and their difference holds at least the
square of the mean's step. That is the drift, or the change itself if that is less.

The sample is every k-th row that is sent, at most SAMPLED_ROWS of an exchange on each rank: all
rows would cost a second pass over them. It is the same in every epoch. A codec that divides bytes
among the rows of a message (`adaptive`), or draws a number of them (`nodes`), does so here among
those that are sampled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hpcgcn.exchange.codec import Draw, Rows
from hpcgcn.exchange.types import Policy, Route

SAMPLED_ROWS = 512


@dataclass
class Sums:
    """Sums of squares over sampled rows; they add up over exchanges and ranks."""

    change: float = 0.0              # since the epoch before
    change_of_two: float = 0.0       # since the one before that; as `change` if it is not known
    sent: float = 0.0
    coding: float = 0.0

    def as_list(self) -> list[float]:
        """In the order of the fields."""
        return [self.change, self.change_of_two, self.sent, self.coding]


@dataclass
class _Group:
    """Sampled rows that are coded alike: one draw, the same columns of the same array."""

    index: Any                       # (n,) int32: rows of the array that is sent from
    rows: Rows                       # their ids
    columns: slice | None
    stream: int
    places: list[tuple[int, Any]]    # (route, rows of its message), in order
    now: Any                         # (n, width): this epoch's rows
    before: Any                      # last epoch's
    earlier: Any                     # those of the epoch before that
    delivered: Any                   # (n, width): what the receiver makes of them; None: the same


class SampledError:
    """Measures one exchange. `measure` when rows are sent; `sums` after the epoch's last kernel."""

    def __init__(self, backend, policy: Policy, routes: list[Route], source_width: int,
                 widths: list[int], seed: int):
        """source_width: of the array that is sent from; widths: of the rows to each peer."""
        self.backend, self.codec, self.seed = backend, policy.codec, seed
        self._lossy = policy.lossy
        self.epoch = -1                          # the last one measured
        self.n_known = 0                         # of the two epochs before it
        self.groups = self._groups(routes, widths)
        most = max((len(group.rows) for group in self.groups), default=0)
        self._whole = backend.zeros((most, source_width))
        self._data: Any = None                   # a message buffer
        # On the host: differences, and the same in double precision, in which they are squared.
        largest = max((group.now.size for group in self.groups), default=0)
        self._difference, self._double = np.zeros(largest, backend.dtype), np.zeros(largest)

    def _groups(self, routes: list[Route], widths: list[int]) -> list[_Group]:
        sampled: dict[tuple, list[tuple[int, np.ndarray]]] = {}
        counts = [len(route.outgoing) for route in routes]
        for k, (route, chosen) in enumerate(zip(routes, sample(counts, SAMPLED_ROWS))):
            if len(chosen):
                columns = route.source_columns
                key = (columns and (columns.start, columns.stop), route.out_stream, widths[k],
                       k if self.codec.by_message else 0)
                sampled.setdefault(key, []).append((k, chosen))
        return [self._group(routes, places, key) for key, places in sampled.items()]

    def _group(self, routes, places, key) -> _Group:
        backend, (columns, stream, width, _) = self.backend, key
        index = [_source_rows(backend, routes[k], chosen) for k, chosen in places]
        ids = np.concatenate([routes[k].outgoing.host_ids[chosen] for k, chosen in places])
        drawn_by = np.concatenate([np.asarray(backend.to_host(routes[k].outgoing.ids))[chosen]
                                   for k, chosen in places])     # rounding is keyed by these

        def array(needed=True):
            return backend.zeros((len(ids), width)) if needed else None
        return _Group(backend.from_host(np.concatenate(index).astype(np.int32)),
                      Rows(None, backend.from_host(drawn_by), ids,
                           reader=routes[places[0][0]].outgoing.reader,
                           weights=_sampled_weights(routes, places)),
                      columns and slice(*columns), stream,
                      [(k, backend.from_host(chosen.astype(np.int32))) for k, chosen in places],
                      array(), array(), array(), array(self._lossy))

    # -- in an epoch -------------------------------------------------------------------------------
    def measure(self, x, epoch: int, rate: float, layer: int, coding):
        """The rows of x are about to be coded; coding: with the memory that they are coded with."""
        if epoch <= self.epoch:
            return                               # an evaluation, which sends through it as well
        self.n_known = min(self.n_known + 1, 2) if epoch == self.epoch + 1 and epoch else 0
        self.epoch = epoch
        for group in self.groups:
            group.now, group.before, group.earlier = group.earlier, group.now, group.before
            self._take(x, group, group.now)
            if group.delivered is not None:
                self._code(group, rate, Draw(self.seed, epoch, layer, group.stream), coding)

    def _take(self, x, group: _Group, out):
        """out = the sampled rows of x."""
        if group.columns is None:
            self.backend.gather_rows(x, group.index, out)
            return
        whole = self._whole[:len(group.rows)]
        self.backend.gather_rows(x, group.index, whole)
        self.backend.copy(whole[:, group.columns], out)

    def _code(self, group: _Group, rate: float, draw: Draw, coding):
        """delivered = what the receiver has after the message that is sent now."""
        backend, delivered = self.backend, group.delivered
        shift = coding.shift                     # of what is coded: h, h + memory or h - memory
        if shift:
            for at, (k, chosen) in zip(_starts(group), group.places):
                backend.gather_rows(coding.memory[k], chosen, delivered[at:at + len(chosen)])
        coded = self._whole[:len(group.rows)] if shift else group.now
        if shift:
            coded = coded.reshape(-1)[:delivered.size].reshape(delivered.shape)
            backend.axpby(1.0, group.now, shift, delivered, coded)
        if coding.varies:
            coding.keep_moved(group.now, coded, group.rows.ids)
        n = self.codec.nbytes(backend, group.rows, delivered.shape[1], rate, draw)
        if self._data is None or len(self._data.array) < n:
            self._data = backend.message(n)
        data = self._data.array[:n]
        self.codec.encode(backend, coded, group.rows, rate, draw, data)
        if shift < 0:                            # the receiver adds the change to what it has
            self.codec.decode(backend, data, group.rows, rate, draw, coded)
            backend.axpby(1.0, delivered, 1.0, coded, delivered)
        else:
            self.codec.decode(backend, data, group.rows, rate, draw, delivered)

    def sums(self) -> Sums:
        """What was measured in the epoch, once the backend has computed it."""
        total = Sums()
        for group in self.groups:
            now = np.asarray(self.backend.to_host(group.now))
            sent = self._square(now)
            change = self._square(now, group.before) if self.n_known else sent
            total.sent += sent
            total.change += change
            total.change_of_two += (self._square(now, group.earlier) if self.n_known == 2
                                    else 2 * change)
            if group.delivered is not None:
                total.coding += self._square(now, group.delivered)
        return total

    def _square(self, rows: np.ndarray, others=None) -> float:
        """The sum of the squares of rows, or of their difference to others on the backend."""
        if others is not None:
            difference = self._difference[:rows.size].reshape(rows.shape)
            rows = np.subtract(rows, np.asarray(self.backend.to_host(others)), out=difference)
        double = self._double[:rows.size].reshape(rows.shape)
        np.copyto(double, rows)
        return float(np.vdot(double, double))

    # -- checkpoint --------------------------------------------------------------------------------
    def state(self) -> dict[str, np.ndarray]:
        """What the next epochs are compared with."""
        if self.epoch < 0:
            return {}
        arrays = {f"sampled_{name}_{k}": np.array(self.backend.to_host(array))
                  for name, k, array in self._kept()}
        return arrays | {"sampled_epoch": np.array([self.epoch, self.n_known])}

    def _kept(self) -> list[tuple[str, int, Any]]:
        return [(name, k, getattr(group, name))
                for k, group in enumerate(self.groups) for name in ("now", "before")]

    def restore(self, state: dict[str, np.ndarray]):
        """Go on from `state()`; without it the next epoch is compared with nothing."""
        held = [(array, state.get(f"sampled_{name}_{k}")) for name, k, array in self._kept()]
        counted = state.get("sampled_epoch", np.zeros(0))
        if counted.shape != (2,) or any(rows is None or rows.shape != array.shape
                                        for array, rows in held):
            return
        self.epoch, self.n_known = int(counted[0]), int(counted[1])
        for array, rows in held:
            self.backend.copy(np.ascontiguousarray(rows, self.backend.dtype), array)


def sample(counts: list[int], most: int) -> list[np.ndarray]:
    """Rows of each message, spread evenly over all of them; counts: how many each has."""
    total = sum(counts)
    chosen = (np.arange(total) if total <= most
              else np.arange(most, dtype=np.int64) * total // most)
    bounds = np.cumsum([0, *counts])
    return [chosen[(chosen >= a) & (chosen < b)] - a for a, b in zip(bounds, bounds[1:])]


def _starts(group: _Group) -> list[int]:
    return np.cumsum([0, *(len(chosen) for _, chosen in group.places)])[:-1].tolist()


def _sampled_weights(routes: list[Route], places) -> np.ndarray | None:
    """What sampled rows weigh in the receivers' sums, where that is known."""
    if any(routes[k].outgoing.weights is None for k, _ in places):
        return None
    return np.concatenate([routes[k].outgoing.weights[chosen] for k, chosen in places])


def _source_rows(backend, route: Route, chosen: np.ndarray) -> np.ndarray:
    """Where sampled rows of a message are in the array that is sent from."""
    rows = route.outgoing
    within = chosen if rows.index is None else np.asarray(backend.to_host(rows.index))[chosen]
    return within + (route.source.start if route.source is not None else 0)
