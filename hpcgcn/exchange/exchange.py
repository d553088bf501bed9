"""One exchange: the rows of one layer and direction, coded, sent, and used now or an epoch later.

    start(x, epoch)      code and send rows of x
    finish() -> rows     what the receiver uses this epoch, (n_received, width)

Staleness 0 waits in `finish` for what `start` sent. With staleness 1 `start` first takes in what was sent an epoch ago,
then sends; `finish` returns at once. One set of buffers serves both, because a message is always taken in before the
next one is coded.
"""

from __future__ import annotations

import time

import numpy as np

from hpcgcn.exchange.codecs import Draw
from hpcgcn.exchange.memory import Feedback, RunningAverage
from hpcgcn.exchange.messages import Messages
from hpcgcn.exchange.types import Meter, Policy, Route


class Exchange:
    """Rows of one layer and direction; built once, with buffers and persistent requests that are reused."""

    def __init__(self, runtime, backend, routes: list[Route], n_received: int, width: int, policy: Policy, *, seed: int,
                 layer: int, receive_arrays: list | None = None, source=None):
        """receive_arrays: arrays of the caller's for each route's rows. source: the array that `start` will always be given.

        Exact rows that are used at once move without copies where MPI can reach them: they are sent from the source, which must
        not change from `start` to `finish`, and arrive where they are used. In receive_arrays of the caller's that is done only if a
        source is given too: they are written from `start` to `finish`.
        """
        self.backend, self.routes, self.width, self.policy = backend, routes, width, policy
        self.seed, self.layer = seed, layer
        self._set_widths()
        self.received = backend.zeros((n_received, width)) if receive_arrays is None else None
        # Where each route's rows land: slices of `received`, or arrays of the caller's own.
        self.receive_arrays = [self.received[r.receive_slice] for r in routes] if receive_arrays is None else receive_arrays
        remembers = policy.error_feedback or policy.residual
        shapes = [(len(r.outgoing), width) for r, width in zip(routes, self.out_widths)]
        self.feedback = Feedback(backend, policy.codec, policy.residual, shapes) if remembers else None
        self.smoothing = (RunningAverage(backend, (n_received, width), policy.smoothing, policy.smoothing_correction)
                          if policy.smoothing else None)
        incoming = max((len(r.incoming) * w for r, w in zip(routes, self.in_widths)), default=0)
        self.change = backend.zeros((incoming,)) if policy.residual else None
        # Codecs read whole rows: some columns of longer ones are packed for them first.
        packs = not remembers and not policy.codec.exact and any(r.source_columns is not None for r in routes)
        self.packed = backend.zeros((max(n_rows * w for n_rows, w in shapes),)) if packs else None
        as_they_are = policy.codec.exact and policy.staleness == 0 and not remembers
        in_place = as_they_are and (receive_arrays is None or source is not None)
        self._messages = Messages(
            runtime, backend, [r.peer for r in routes],
            [self._rows_in_place(r, source) if as_they_are and source is not None else None for r in routes],
            [backend.message_over(array) if in_place else None for array in self.receive_arrays])
        self._wait_for_all = True
        self._anew = False
        self._active = None                       # the messages in flight
        self._sent_epoch = None                   # the epoch whose messages are in flight
        self._result = self.received
        self._started_at = 0.0
        self.meter = Meter()

    def _set_widths(self):
        self.out_widths = [self.width if r.out_width is None else r.out_width for r in self.routes]
        self.in_widths = [self.width if r.in_width is None else r.in_width for r in self.routes]

    def retarget(self, routes: list[Route], receive_arrays: list):
        """From the next start on move other rows between the same ranks. Nothing is in flight, and nothing is remembered."""
        if self._sent_epoch is not None or self.stateful or [route.peer for route in routes] != self._messages.peers:
            raise RuntimeError("an exchange with messages in flight, with a memory, or with other peers cannot be retargeted")
        self._messages.use_buffers()
        self.routes, self.receive_arrays = routes, receive_arrays
        self._set_widths()

    # -- the two calls of the engine ----------------------------------------------------------------------------------
    def start(self, x, epoch: int):
        """Code and send the rows of x; in a stale epoch take in last epoch's messages first."""
        self._drain()
        synchronous = self.policy.synchronous(epoch) or self._anew
        self._anew = False
        if not synchronous:
            self._result = self.received if self.smoothing is None else self.smoothing.value()
            self.meter.stale_uses += 1
        self.meter.uses += 1
        self._send(x, epoch)
        self._wait_for_all = synchronous

    def finish(self):
        """The rows to use this epoch, (n_received, width). Valid until the next start."""
        if self._wait_for_all:
            self._drain()
            self._result = self.received
        return self._result

    # -- sending ------------------------------------------------------------------------------------------------------
    def _draw(self, stream: int, epoch: int) -> Draw:
        return Draw(self.seed, epoch, self.layer, stream)

    def _send(self, x, epoch: int):
        rate, codec, backend = self.policy.rate.rate(epoch), self.policy.codec, self.backend
        began = time.perf_counter()
        sizes = []
        for k, route in enumerate(self.routes):
            draw = self._draw(route.out_stream, epoch)
            out_bytes = codec.nbytes(backend, route.outgoing, self.out_widths[k], rate, draw)
            in_bytes = codec.nbytes(backend, route.incoming, self.in_widths[k], rate, self._draw(route.in_stream, epoch))
            sizes.append((out_bytes, in_bytes))
            outgoing, incoming = self._messages.reserve(k, out_bytes, in_bytes)
            if len(route.outgoing) and self._messages.sent_from[k] is None:
                self._encode(k, x, rate, draw, outgoing.array[:out_bytes])
            backend.before_send(outgoing)
            backend.before_receive(incoming)
            self._count(k, rate, out_bytes, in_bytes)
        self.meter.seconds["pack"] += time.perf_counter() - began
        self._active = self._messages.transfer(tuple(sizes))
        self._active.start()
        self._sent_epoch, self._sent_rate, self._sizes = epoch, rate, sizes
        self._started_at = time.perf_counter()

    def _rows_in_place(self, route: Route, source):
        """A route's rows as a message of their own memory, if they are whole rows that MPI can reach."""
        whole = route.source_columns is None or route.source_columns == slice(0, source.shape[1])
        return self.backend.message_over(source[route.source]) if whole and route.source is not None else None

    def _encode(self, k, x, rate, draw, data):
        route = self.routes[k]
        rows = x if route.source is None else x[route.source]
        if route.source_columns is not None:
            rows = self._packed(rows[:, route.source_columns])
        if self.feedback is not None:
            self.feedback.encode(k, rows, route.outgoing, rate, draw, data)
        else:
            self.policy.codec.encode(self.backend, rows, route.outgoing, rate, draw, data)

    def _packed(self, rows):
        """Some columns of rows, where a codec will read them next to each other."""
        if self.packed is None:
            return rows
        packed = self.packed[:rows.size].reshape(rows.shape)
        self.backend.copy(rows, packed)
        return packed

    def _count(self, k, rate, out_bytes, in_bytes):
        meter, route = self.meter, self.routes[k]
        meter.bytes_sent += out_bytes
        meter.bytes_received += in_bytes
        meter.bytes_plain += len(route.outgoing) * self.out_widths[k] * self.backend.dtype.itemsize
        if hasattr(self.policy.codec, "parameter_bytes"):
            meter.bytes_parameters += self.policy.codec.parameter_bytes(len(route.outgoing), rate)

    # -- receiving ----------------------------------------------------------------------------------------------------
    def _drain(self):
        """Wait for the messages in flight, if any, and decode them into `received`."""
        if self._sent_epoch is None:
            return
        began = time.perf_counter()
        self._active.wait()
        waited = time.perf_counter()
        self.meter.seconds["wait"] += waited - began
        self.meter.flight += waited - self._started_at
        for k, route in enumerate(self.routes):
            if len(route.incoming) and self._messages.received_in[k] is None:
                self._decode(k, route)
        if self.smoothing is not None:
            self.smoothing.add(self.received)
        self._active = self._sent_epoch = None
        self.meter.seconds["unpack"] += time.perf_counter() - waited

    def _decode(self, k, route):
        backend, message = self.backend, self._messages.incoming(k)
        backend.after_receive(message)
        target = self.receive_arrays[k]
        arrived = target
        if self.change is not None:
            arrived = self.change[:len(route.incoming) * self.in_widths[k]].reshape(target.shape)
        draw = self._draw(route.in_stream, self._sent_epoch)
        self.policy.codec.decode(backend, message.array[:self._sizes[k][1]], route.incoming, self._sent_rate, draw, arrived)
        if self.change is not None:
            backend.axpby(1.0, target, 1.0, arrived, target)

    # -- checkpoint ---------------------------------------------------------------------------------------------------
    @property
    def stateful(self) -> bool:
        """Does the next epoch depend on earlier ones?"""
        return self.policy.staleness > 0 or self.feedback is not None

    def _state_arrays(self) -> dict:
        arrays = ({"received": self.received} if self.received is not None
                  else {f"received_{route.peer}": array for route, array in zip(self.routes, self.receive_arrays)})
        if self.smoothing is not None:
            arrays["average"] = self.smoothing.average
        memory = self.feedback.memory if self.feedback is not None else []
        return arrays | {f"memory_{route.peer}": rows for route, rows in zip(self.routes, memory)}

    def _row_ids(self) -> np.ndarray:
        """Which nodes the rows of the state belong to."""
        return np.concatenate([np.zeros(0, np.int64), *(rows.host_ids for r in self.routes for rows in (r.outgoing, r.incoming))])

    def state(self) -> dict[str, np.ndarray]:
        """Everything the next epoch depends on. Messages in flight are taken in first (all ranks do so together)."""
        if not self.stateful:
            return {}
        self._drain()
        arrays = {name: np.array(self.backend.to_host(a)) for name, a in self._state_arrays().items()}
        n_averaged = self.smoothing.n_averaged if self.smoothing is not None else 0
        return arrays | {"n_averaged": np.array([n_averaged]), "ids": self._row_ids()}

    def fits(self, state: dict[str, np.ndarray]) -> bool:
        """Is this the state of an exchange like this one: of the same nodes, with the same filters and feedback?"""
        if not self.stateful:
            return True
        wanted = self._state_arrays()
        return (np.array_equal(state.get("ids"), self._row_ids())
                and all(name in state and state[name].shape == a.shape for name, a in wanted.items()))

    def restore(self, state: dict[str, np.ndarray]):
        """Go on from `state()`."""
        if not self.stateful:
            return
        for name, array in self._state_arrays().items():
            self.backend.copy(np.ascontiguousarray(state[name], self.backend.dtype), array)
        if self.smoothing is not None:
            self.smoothing.n_averaged = int(state["n_averaged"][0])

    def start_anew(self):
        """Nothing is known of earlier epochs: the next one is synchronous, so that it does not compute with zeros."""
        self._anew = True

    def close(self):
        """Take in what is in flight and free the requests."""
        self._drain()
        self._messages.free()
