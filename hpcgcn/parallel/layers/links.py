"""Chunks on their way from stage to stage: non-blocking, two in flight in each direction, in any
codec."""

from __future__ import annotations

from collections import deque

import numpy as np

from hpcgcn.exchange.codec import Rows as MessageRows
from hpcgcn.exchange.exchange import Exchange
from hpcgcn.exchange.types import Policy, Route

SLOTS = 2                            # the transfer of a chunk overlaps with work on the next


class NoLink:
    """Before the first stage and behind the last: chunks are there, and stay."""

    exchanges = ()

    def __init__(self):
        self._waiting: deque[int] = deque()

    def begin(self, order: list[int], epoch: int):
        """Announce the order of the chunks of a pass."""
        self._waiting = deque(order)

    def take(self) -> int:
        """The next chunk, which is there."""
        return self._waiting.popleft()

    def send(self, chunk: int, epoch: int):
        """Nobody waits for it."""

    def finish(self):
        """Nothing is in flight."""

    def close(self):
        """There is nothing to free."""


class StageLink:
    """One direction between two stages: a chunk's rows of some arrays are sent as they are
    complete, and taken in order.

    An exchange serves one array and slot, with other rows each time.
    """

    def __init__(self, runtime, backend, peer: int, arrays: list, ids: np.ndarray,
                 chunks: list[tuple[int, int]], policy: Policy, *, seed: int, layer: int,
                 stream: int):
        """chunks: the rows of each that are sent."""
        self.peer, self.arrays, self.chunks, self.stream = peer, arrays, chunks, stream
        self.rows = [MessageRows(None, backend.from_host(ids[a:b]), ids[a:b]) for a, b in chunks]
        self.nothing = MessageRows(None, backend.from_host(ids[:0]), ids[:0])
        idle = Route(peer, self.nothing, slice(0, 0), self.nothing, None)
        self.slots = [[Exchange(runtime, backend, [idle], 0, array.shape[1], policy, seed=seed,
                                layer=layer, receive_arrays=[array[:0]]) for array in arrays]
                      for _ in range(SLOTS)]
        self._turn = 0
        self._waiting: deque[int] = deque()                  # chunks that are still to come
        self._expected: deque[tuple[int, list[Exchange]]] = deque()      # those with a slot

    @property
    def exchanges(self) -> list[Exchange]:
        """Of all slots and arrays."""
        return [exchange for slot in self.slots for exchange in slot]

    def _next_slot(self) -> list[Exchange]:
        self._turn = (self._turn + 1) % SLOTS
        return self.slots[self._turn]

    # -- the sending side --------------------------------------------------------------------------
    def send(self, chunk: int, epoch: int):
        """A chunk is complete; waits only if the chunk before the last one is still here."""
        block = slice(*self.chunks[chunk])
        for k, (exchange, array) in enumerate(zip(self._next_slot(), self.arrays)):
            exchange.finish()
            route = Route(self.peer, self.rows[chunk], block, self.nothing, None,
                          out_stream=self.stream + k)
            exchange.retarget([route], [array[:0]])
            exchange.start(array, epoch)

    def finish(self):
        """Wait until all that was sent is gone."""
        for exchange in self.exchanges:
            exchange.finish()

    # -- the receiving side ------------------------------------------------------------------------
    def begin(self, order: list[int], epoch: int):
        """Chunks will be taken in this order: the first ones are welcome now."""
        self._waiting, self._epoch = deque(order), epoch
        for _ in range(SLOTS):
            self._expect()

    def _expect(self):
        if not self._waiting:
            return
        chunk, slot = self._waiting.popleft(), self._next_slot()
        block = slice(*self.chunks[chunk])
        for k, (exchange, array) in enumerate(zip(slot, self.arrays)):
            route = Route(self.peer, self.nothing, slice(0, 0), self.rows[chunk], None,
                          in_stream=self.stream + k)
            exchange.retarget([route], [array[block]])
            exchange.start(array, self._epoch)
        self._expected.append((chunk, slot))

    def take(self) -> int:
        """Wait for the next chunk; its rows are then in the arrays."""
        chunk, slot = self._expected.popleft()
        for exchange in slot:
            exchange.finish()
        self._expect()
        return chunk

    def close(self):
        """Take in what is in flight and free the persistent requests."""
        for exchange in self.exchanges:
            exchange.close()
