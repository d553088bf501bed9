"""One exchange: the rows of one layer and direction, coded, sent, and used now or an epoch later.

    start(x, epoch)      code and send rows of x
    finish() -> rows     what the receiver uses this epoch, (n_landing, width)

Staleness 0 waits in `finish` for what `start` sent. With staleness 1 `start` first takes in what was sent an epoch ago,
then sends; `finish` returns at once. One set of buffers serves both, because a message is always taken in before the
next one is coded.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from hpcgcn.exchange.codecs import Codec, Draw, Rows
from hpcgcn.exchange.schedules import Schedule
from hpcgcn.mpi.progress import Transfer


@dataclass
class Route:
    """One peer of an exchange: what goes to it and where what comes from it lands."""

    peer: int
    outgoing: Rows
    source: slice | None             # send a slice of the array, or (None) the rows outgoing.index of it
    incoming: Rows
    landing: slice | None            # rows of the exchange's own array; None if the caller gives an array to land in
    source_columns: slice | None = None     # send only these columns
    out_width: int | None = None     # where it is not the exchange's width
    in_width: int | None = None
    out_lane: int = 0                # tells apart messages whose draws would otherwise be the same
    in_lane: int = 0                 # the out_lane of what arrives


@dataclass
class Policy:
    """When and how messages are used; one object serves all exchanges of a direction."""

    codec: Codec
    rate: Schedule
    staleness: int = 0
    refresh_every: int = 0           # 0: never
    first_epoch: str = "zeros"
    smoothing: float = 0.0
    smoothing_correction: bool = False
    error_feedback: bool = False
    residual: bool = False

    def synchronous(self, epoch: int) -> bool:
        """Are this epoch's messages used in the epoch itself?"""
        if self.staleness == 0:
            return True
        if self.refresh_every and (epoch + 1) % self.refresh_every == 0:
            return True
        return epoch == 0 and self.first_epoch == "sync"


@dataclass
class Meter:
    """What one exchange cost, since the last reset."""

    bytes_sent: int = 0
    bytes_received: int = 0
    bytes_parameters: int = 0        # the share of bytes_sent that is zero points and steps
    bytes_plain: int = 0             # what fp32 would have sent
    seconds: dict = field(default_factory=lambda: {"wait": 0.0, "pack": 0.0, "unpack": 0.0})
    flight: float = 0.0              # from the start of messages to the end of the wait for them
    stale_uses: int = 0
    uses: int = 0


class Exchange:
    """Rows of one layer and direction; built once, with buffers and persistent requests that are reused."""

    def __init__(self, comm, backend, routes: list[Route], n_landing: int, width: int, policy: Policy, *, seed: int,
                 layer: int, tag: int, landings: list | None = None, source=None):
        """landings: arrays of the caller's for each route's rows. source: the array that `start` will always be given.

        Exact rows that are used at once move without copies where MPI can reach them: they are sent from the source, which must
        not change from `start` to `finish`, and arrive where they are used. In landings of the caller's that is done only if a
        source is given too: they are written from `start` to `finish`.
        """
        self.comm, self.backend, self.routes, self.width, self.policy = comm, backend, routes, width, policy
        self.seed, self.layer, self.tag = seed, layer, tag
        self._set_widths()
        self.received = backend.zeros((n_landing, width)) if landings is None else None
        # Where each route's rows land: slices of `received`, or arrays of the caller's own.
        self.landings = [self.received[r.landing] for r in routes] if landings is None else landings
        self.average = backend.zeros((n_landing, width)) if policy.smoothing else None
        self.corrected = backend.zeros((n_landing, width)) if policy.smoothing and policy.smoothing_correction else None
        self.n_averaged = 0
        feedback = policy.error_feedback or policy.residual
        # What the code lost so far (error feedback), or what the receiver already has (residual coding).
        self.memory = [backend.zeros((len(r.outgoing), w)) for r, w in zip(routes, self.out_widths)] if feedback else None
        coded = feedback or not policy.codec.exact and any(r.source_columns is not None for r in routes)
        largest = max((len(r.outgoing) * w for r, w in zip(routes, self.out_widths)), default=0)
        self.scratch = [backend.zeros((largest,)) for _ in range(1 + feedback)] if coded else None
        incoming = max((len(r.incoming) * w for r, w in zip(routes, self.in_widths)), default=0)
        self.change = backend.zeros((incoming,)) if policy.residual else None
        self._messages = [None] * len(routes)
        as_they_are = policy.codec.exact and policy.staleness == 0 and not feedback
        self._sent_from = [self._rows_in_place(r, source) if as_they_are and source is not None else None for r in routes]
        in_place = as_they_are and (landings is None or source is not None)
        self._received_in = [backend.message_over(array) if in_place else None for array in self.landings]
        self._transfers = {}                      # by the sizes of the messages
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

    def aim(self, routes: list[Route], landings: list):
        """From the next start on move other rows. Nothing is in flight, and nothing is remembered from message to message."""
        if self._sent_epoch is not None or self.stateful:
            raise RuntimeError("an exchange with messages in flight, or with a memory, cannot be aimed anew")
        if len(routes) != len(self.routes):
            self._free_requests()
            self._messages = [None] * len(routes)
        self._sent_from = self._received_in = [None] * len(routes)     # not in place: rows land when they are asked for
        self.routes, self.landings = routes, landings
        self._set_widths()

    # -- the two calls of the engine ----------------------------------------------------------------------------------
    def start(self, x, epoch: int):
        """Code and send the rows of x; in a stale epoch take in last epoch's messages first."""
        self._drain()
        synchronous = self.policy.synchronous(epoch) or self._anew
        self._anew = False
        if not synchronous:
            self._result = self._filtered()
            self.meter.stale_uses += 1
        self.meter.uses += 1
        self._send(x, epoch)
        self._wait_for_all = synchronous

    def finish(self):
        """The rows to use this epoch, (n_landing, width). Valid until the next start."""
        if self._wait_for_all:
            self._drain()
            self._result = self.received
        return self._result

    @property
    def hidden(self) -> bool:
        """Nothing to wait for: what `finish` returns is already here."""
        return not self._wait_for_all

    # -- sending ------------------------------------------------------------------------------------------------------
    def _draw(self, lane: int, epoch: int) -> Draw:
        return Draw(self.seed, epoch, self.layer, lane)

    def _send(self, x, epoch: int):
        rate, codec, backend = self.policy.rate.rate(epoch), self.policy.codec, self.backend
        began = time.perf_counter()
        sizes = []
        for k, route in enumerate(self.routes):
            draw = self._draw(route.out_lane, epoch)
            out_bytes = codec.nbytes(backend, route.outgoing, self.out_widths[k], rate, draw)
            in_bytes = codec.nbytes(backend, route.incoming, self.in_widths[k], rate, self._draw(route.in_lane, epoch))
            sizes.append((out_bytes, in_bytes))
            self._reserve(k, out_bytes, in_bytes)
            if len(route.outgoing) and self._sent_from[k] is None:
                self._encode(k, self._source_rows(k, x), rate, draw, self._messages[k][0].array[:out_bytes])
            backend.before_send(self._messages[k][0])
            backend.before_receive(self._messages[k][1])
            self._count(k, rate, out_bytes, in_bytes)
        self.meter.seconds["pack"] += time.perf_counter() - began
        self._active = self._persistent(tuple(sizes))
        self._active.start()
        self._sent_epoch, self._sent_rate, self._sizes = epoch, rate, sizes
        self._started_at = time.perf_counter()

    def _rows_in_place(self, route: Route, source):
        """A route's rows as a message of their own memory, if they are whole rows that MPI can reach."""
        whole = route.source_columns is None or route.source_columns == slice(0, source.shape[1])
        return self.backend.message_over(source[route.source]) if whole and route.source is not None else None

    def _source_rows(self, k, x):
        """The rows that a route takes from: contiguous, or for a plain copy perhaps some columns of longer ones."""
        route = self.routes[k]
        rows = x if route.source is None else x[route.source]
        if route.source_columns is None:
            return rows
        if self.scratch is None:
            return rows[:, route.source_columns]
        packed = self._scratch(0, len(route.outgoing), self.out_widths[k])
        self.backend.copy(rows[:, route.source_columns], packed)
        return packed

    def _scratch(self, number, n_rows, width):
        return self.scratch[number][:n_rows * width].reshape(n_rows, width)

    def _encode(self, k, rows, rate, draw, data):
        """Code the rows, and remember what the receiver does not get (error feedback) or now has (residual)."""
        backend, codec, outgoing = self.backend, self.policy.codec, self.routes[k].outgoing
        if self.memory is None:
            codec.encode(backend, rows, outgoing, rate, draw, data)
            return
        wanted, seen = (self._scratch(number, len(outgoing), self.out_widths[k]) for number in (0, 1))
        if outgoing.index is not None:
            backend.gather_rows(rows, outgoing.index, wanted)
        elif self.routes[k].source_columns is None:          # otherwise the rows are in this scratch already
            backend.copy(rows, wanted)
        sign = -1.0 if self.policy.residual else 1.0
        backend.axpby(1.0, wanted, sign, self.memory[k], wanted)
        codec.encode(backend, wanted, Rows(None, outgoing.ids, outgoing.host_ids), rate, draw, data)
        codec.decode(backend, data, outgoing, rate, draw, seen)
        if self.policy.residual:
            backend.axpby(1.0, self.memory[k], 1.0, seen, self.memory[k])
        else:
            backend.axpby(1.0, wanted, -1.0, seen, self.memory[k])

    def _reserve(self, k, out_bytes, in_bytes):
        """Buffers at least this large; growing drops the persistent requests that point to the old ones."""
        current = self._messages[k]
        if current is not None and len(current[0].array) >= out_bytes and len(current[1].array) >= in_bytes:
            return
        self._free_requests()
        self._messages[k] = (
            self._sent_from[k] or self.backend.message(max(out_bytes, len(current[0].array) if current else 0)),
            self._received_in[k] or self.backend.message(max(in_bytes, len(current[1].array) if current else 0)))

    def _persistent(self, sizes) -> Transfer:
        """The persistent requests for messages of these sizes."""
        if sizes not in self._transfers:
            if len(self._transfers) >= 4:         # a moving rate meets each size once: do not keep them all
                self._free_requests()
            peers = [route.peer for route in self.routes]
            sends = [message[0].mpi[:size[0]] for message, size in zip(self._messages, sizes)]
            receives = [message[1].mpi[:size[1]] for message, size in zip(self._messages, sizes)]
            self._transfers[sizes] = Transfer(self.comm, list(zip(receives, peers)), list(zip(sends, peers)), self.tag)
        return self._transfers[sizes]

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
            if len(route.incoming) and self._received_in[k] is None:
                self._decode(k, route)
        self._average_in()
        self._active = self._sent_epoch = None
        self.meter.seconds["unpack"] += time.perf_counter() - waited

    def _decode(self, k, route):
        backend, message = self.backend, self._messages[k][1]
        backend.after_receive(message)
        target = self.landings[k]
        arrived = target
        if self.change is not None:
            arrived = self.change[:len(route.incoming) * self.in_widths[k]].reshape(target.shape)
        draw = self._draw(route.in_lane, self._sent_epoch)
        self.policy.codec.decode(backend, message.array[:self._sizes[k][1]], route.incoming, self._sent_rate, draw, arrived)
        if self.change is not None:
            backend.axpby(1.0, target, 1.0, arrived, target)

    # -- smoothing ----------------------------------------------------------------------------------------------------
    def _average_in(self):
        if self.average is None:
            return
        gamma = self.policy.smoothing
        self.backend.axpby(gamma, self.average, 1.0 - gamma, self.received, self.average)
        self.n_averaged += 1

    def _filtered(self):
        """What a stale epoch uses: the last rows received, or their running average."""
        if self.average is None:
            return self.received
        if self.corrected is None or not self.n_averaged:
            return self.average
        self.backend.axpby(1.0 / (1.0 - self.policy.smoothing ** self.n_averaged), self.average, 0.0, None, self.corrected)
        return self.corrected

    # -- checkpoint ---------------------------------------------------------------------------------------------------
    @property
    def stateful(self) -> bool:
        """Does the next epoch depend on earlier ones?"""
        return self.policy.staleness > 0 or self.memory is not None

    def _state_arrays(self) -> dict:
        arrays = ({"received": self.received} if self.received is not None
                  else {f"landing_{route.peer}": array for route, array in zip(self.routes, self.landings)})
        if self.average is not None:
            arrays["average"] = self.average
        return arrays | {f"memory_{route.peer}": memory for route, memory in zip(self.routes, self.memory or [])}

    def _row_ids(self) -> np.ndarray:
        """Which nodes the rows of the state belong to."""
        return np.concatenate([np.zeros(0, np.int64), *(rows.host_ids for r in self.routes for rows in (r.outgoing, r.incoming))])

    def state(self) -> dict[str, np.ndarray]:
        """Everything the next epoch depends on. Messages in flight are taken in first (all ranks do so together)."""
        if not self.stateful:
            return {}
        self._drain()
        arrays = {name: np.array(self.backend.to_host(a)) for name, a in self._state_arrays().items()}
        return arrays | {"n_averaged": np.array([self.n_averaged]), "ids": self._row_ids()}

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
        self.n_averaged = int(state["n_averaged"][0])

    def start_anew(self):
        """Nothing is known of earlier epochs: the next one is synchronous, so that it does not compute with zeros."""
        self._anew = True

    def close(self):
        """Take in what is in flight and free the requests (some MPI libraries complain otherwise)."""
        self._drain()
        self._free_requests()

    def _free_requests(self):
        for transfer in self._transfers.values():
            transfer.free()
        self._transfers = {}
