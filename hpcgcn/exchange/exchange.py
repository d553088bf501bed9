"""One exchange: the rows of one layer and direction, coded, sent, and used now or an epoch later.

    start(x, epoch)      code and send rows of x
    finish() -> rows     what the receiver uses this epoch, (n_received, width)

It is put together from four parts: a channel moves bytes, a compressor makes bytes of rows, a
staleness buffer says which rows are used, statistics count. Staleness 0 waits in `finish` for what
`start` sent. With staleness 1 `start` first takes in what was sent an epoch ago, then sends;
`finish` returns at once. One set of buffers serves both, because a message is always taken in
before the next one is coded.
"""

from __future__ import annotations

import time

import numpy as np

from hpcgcn.exchange.channel import Channel
from hpcgcn.exchange.compressor import Compressor
from hpcgcn.exchange.sampled_error import SampledError
from hpcgcn.exchange.staleness import StalenessBuffer
from hpcgcn.exchange.statistics import Statistics
from hpcgcn.exchange.types import Policy, Route


class Exchange:
    """Rows of one layer and direction; built once, with buffers and requests that are reused."""

    def __init__(self, runtime, backend, routes: list[Route], n_received: int, width: int,
                 policy: Policy, *, seed: int, layer: int, receive_arrays: list | None = None,
                 source=None):
        """receive_arrays: of the caller, one per route. source: the array that `start` always gets.

        Exact rows that are used at once move without copies where MPI can reach them: they are sent
        from the source, which must not change from `start` to `finish`, and arrive where they are
        used. In receive_arrays of the caller's that is done only if a source is given too: they are
        written from `start` to `finish`.
        """
        self.backend, self.routes, self.width, self.policy = backend, routes, width, policy
        self.buffer = StalenessBuffer(backend, policy, routes, (n_received, width), receive_arrays)
        self.compressor = Compressor(backend, policy, routes, width, seed=seed, layer=layer)
        zero_copy = policy.exact and not self.compressor.remembers
        in_place = zero_copy and (receive_arrays is None or source is not None)
        sent_from = [_rows_in_place(backend, route, source) if zero_copy else None
                     for route in routes]
        received_in = [backend.message_over(array) if in_place else None
                       for array in self.buffer.arrays]
        self.channel = Channel(runtime, backend, [r.peer for r in routes], sent_from, received_in)
        self.statistics = Statistics()
        self.marks = runtime.trace.exchange(layer)       # the trainer names the direction
        self._same_host = [runtime.shares_host[route.peer] for route in routes]
        widths = [self.compressor.widths(k)[0] for k in range(len(routes))]
        self.error = (SampledError(backend, policy, routes, width, widths, seed)
                      if policy.measured and any(len(route.outgoing) for route in routes) else None)
        self._started_at = 0.0

    @property
    def received(self):
        """The array that rows arrive in, (n_received, width); None: they arrive in the caller's."""
        return self.buffer.received

    def retarget(self, routes: list[Route], receive_arrays: list):
        """From the next start on move other rows between the same ranks.

        Only where nothing is in flight and nothing is remembered from epoch to epoch.
        """
        same_peers = [route.peer for route in routes] == self.channel.peers
        if self.channel.in_flight or self.stateful or not same_peers:
            raise RuntimeError("an exchange with messages in flight, with a memory, or with other "
                               "peers cannot be retargeted")
        self.channel.use_buffers()
        self.compressor.retarget(routes)
        self.routes, self.buffer.arrays = routes, receive_arrays

    # -- the two calls of the engine ------------------------------------------------------------
    def start(self, x, epoch: int):
        """Code and send the rows of x; in a stale epoch take in last epoch's messages first."""
        self._drain()
        synchronous = self.buffer.begin(epoch)
        self.statistics.count_use(stale=not synchronous)
        self._send(x, epoch)

    def finish(self):
        """The rows to use this epoch, (n_received, width). Valid until the next start."""
        if self.buffer.synchronous:
            self._drain()
        return self.buffer.value()

    def _send(self, x, epoch: int):
        compressor, channel, statistics = self.compressor, self.channel, self.statistics
        began = time.perf_counter()
        before = self.marks.trace.switch(self.marks.pack, began)
        compressor.begin(epoch)
        if self.error is not None:
            self.error.measure(x, epoch, compressor.rate, compressor.layer, compressor.coding)
        for k, route in enumerate(self.routes):
            out_bytes, in_bytes = compressor.sizes(k)
            data = channel.reserve(k, out_bytes, in_bytes)
            if data is not None and len(route.outgoing):
                out_bytes = compressor.encode(k, x, data)
            if compressor.coding.varies:
                channel.shorten(k, out_bytes)
                in_bytes = 0                     # counted when it is there
            channel.stage(k)
            statistics.count_message(out_bytes, in_bytes, *compressor.overheads(k),
                                     same_host=self._same_host[k])
        statistics.pack_seconds += time.perf_counter() - began
        self.marks.trace.switch(self.marks.send)
        self._started_at = time.perf_counter()
        channel.start()
        self.marks.trace.sent(self.marks, channel, self._started_at)
        self.marks.trace.switch(before)

    def _drain(self):
        """Wait for the messages in flight, if any, and decode them."""
        if not self.channel.in_flight:
            return
        began = time.perf_counter()
        before = self.marks.trace.switch(self.marks.wait, began)
        self.channel.wait()
        arrived = time.perf_counter()
        self.marks.trace.switch(self.marks.unpack, arrived)
        self.marks.trace.flight(self.marks, self._started_at, began, arrived)
        self.statistics.wait_seconds += arrived - began
        self.statistics.flight_seconds += arrived - self._started_at
        for k, route in enumerate(self.routes):
            data = self.channel.incoming(k) if len(route.incoming) else None
            if data is not None:
                n_bytes = self.compressor.decode(k, data, self.buffer.arrays[k])
                self.statistics.bytes_received += n_bytes if self.compressor.coding.varies else 0
        self.buffer.complete()
        self.statistics.unpack_seconds += time.perf_counter() - arrived
        self.marks.trace.switch(before)

    def expect_error(self, relative: float):
        """How far off the next epoch is expected to be if it uses this one's rows."""
        self.buffer.expected_error = relative

    # -- checkpoint -----------------------------------------------------------------------------
    @property
    def stateful(self) -> bool:
        """Does the next epoch depend on earlier ones?"""
        return self.policy.staleness > 0 or self.compressor.remembers

    def _state_arrays(self) -> dict:
        return self.buffer.state_arrays(self.channel.peers) | self.compressor.state_arrays()

    def state(self) -> dict[str, np.ndarray]:
        """All that the next epoch depends on. Collective: messages in flight are taken in first."""
        sampled = self.error.state() if self.error is not None else {}
        if not self.stateful and not sampled:
            return {}
        arrays: dict[str, np.ndarray] = {}
        if self.stateful:
            self._drain()
            arrays = {name: np.array(self.backend.to_host(array))
                      for name, array in self._state_arrays().items()}
        return arrays | self.buffer.state_numbers() | sampled | {"ids": _row_ids(self.routes)}

    def fits(self, state: dict[str, np.ndarray]) -> bool:
        """Is this the state of an exchange of the same nodes, with the same kinds of memory?"""
        if not self.stateful:
            return True
        return ("ids" in state and np.array_equal(state["ids"], _row_ids(self.routes))
                and all(name in state and state[name].shape == array.shape
                        for name, array in self._state_arrays().items()))

    def restore(self, state: dict[str, np.ndarray]):
        """Go on from `state()`."""
        if self.error is not None:
            self.error.restore(state)
        if not self.stateful:
            return
        for name, array in self._state_arrays().items():
            self.backend.copy(np.ascontiguousarray(state[name], self.backend.dtype), array)
        self.buffer.restore_numbers(state)

    def start_anew(self):
        """Nothing is known of earlier epochs: the next one is synchronous."""
        self.buffer.refresh_next()

    def close(self):
        """Take in what is in flight and free the requests."""
        self._drain()
        self.channel.close()


def _rows_in_place(backend, route: Route, source):
    """A route's rows of the source as a message, if they are whole rows that MPI can reach."""
    if source is None or route.source is None:
        return None
    whole = route.source_columns is None or route.source_columns == slice(0, source.shape[1])
    return backend.message_over(source[route.source]) if whole else None


def _row_ids(routes: list[Route]) -> np.ndarray:
    """Which nodes the rows of an exchange's state belong to."""
    both = [rows.host_ids for route in routes for rows in (route.outgoing, route.incoming)]
    return np.concatenate([np.zeros(0, np.int64), *both])
