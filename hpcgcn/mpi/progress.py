"""MPI moves messages only inside MPI calls, and moves them in the order in which it got them.

The first is why work is cut into blocks of rows and `progress` is called between them. The second
is why a long message is cut into pieces and MPI gets only some of them at a time: what comes later
and is needed sooner (the all-reduce of the gradients, the acknowledgement of a message of the other
direction) waits behind these pieces, not behind all halo rows of an epoch.

A message may be on its way from or to a device when it is started. It is given to MPI once its
`ready` says so, which is asked here: the host need not wait for the device.

Pieces that MPI has not got move only in calls of this module. A rank that enters any other
collective while it holds some back must not be waited for by one that has yet to enter it. Halo
exchanges keep to that: a rank waits for a message only where the sender, at the same point of its
epoch, waits for it to be gone.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpi4py import MPI

# Below the 64 KiB up to which MPI over TCP sends at once; longer ones wait for the receiver.
PIECE_BYTES = 60 * 1024
LOCAL_PIECE_BYTES = 1 << 20          # within a host: handling a piece costs more than moving it
DEVICE_PIECE_BYTES = 4 << 20         # starting a copy from a device costs more than 60 KiB take
MOST_PIECES = 4096                   # of one message
LEAST_WINDOW, MOST_WINDOW = 1 << 17, 1 << 24
WATCHED = 16                         # pieces of a message that are tested: they arrive in order
PAUSE_SECONDS = 0.25                 # how long halo rows make room for an all-reduce


class Heartbeat:
    """Counts what this process gets done: a block of rows, a message that arrived, an epoch."""

    def __init__(self):
        self.count = 0

    def beat(self):
        """Something was done."""
        self.count += 1


Ready = Callable[[], bool]


def always() -> bool:
    """Of a message in host memory."""
    return True


def nothing():
    """Of a piece whose end nobody asks for."""


@dataclass(slots=True)
class Piece:
    """Part of a message: a persistent request and, if it is sent, its bytes."""

    transfer: Transfer
    request: MPI.Prequest
    n_sent: int = 0
    successor: Piece | None = None     # to test once this one has arrived
    ready: Ready = always              # may MPI read it?
    at_end: Callable[[], None] = nothing     # called when it has arrived


@dataclass(slots=True)
class Incoming:
    """The pieces of a message to receive; they are started together, when MPI may write them."""

    ready: Ready
    pieces: list[Piece]


def cut(buffer, local: bool = False, device: bool = False, reserved: int | None = None) -> list:
    """A message in pieces; both ranks cut alike, because its size and their hosts decide, and
    whether any rank of the job sends from a device.

    reserved: what the receiver has room for, if it is more: then the last pieces are empty.
    """
    length = len(buffer) if reserved is None else reserved
    size = DEVICE_PIECE_BYTES if device else LOCAL_PIECE_BYTES if local else PIECE_BYTES
    size = max(size, -(-length // MOST_PIECES))
    return [buffer[at:at + size] for at in range(0, length, size)]


class Transfer:
    """Messages from and to all peers of an exchange: built once, started and waited for as one."""

    def __init__(self, runtime, receives: list, sends: list, receivable: list[Ready] | None = None,
                 sendable: list[Ready] | None = None, reserved: list[int] | None = None,
                 at_arrival: list[Callable[[], None]] | None = None):
        """receives, sends: (bytes as MPI sees them, peer, tag). An empty message is not sent.

        receivable, sendable: for each, when MPI may have it; by default at once. reserved: for each
        that is sent, the bytes that its receiver has room for, if it may have fewer. at_arrival:
        for each that is received, what to call when all of it is there.
        """
        comm, local, self.engine = runtime.comm, runtime.shares_host, runtime.engine
        self.n_open = 0
        self.incoming: list[Incoming] = []
        for (data, peer, tag), ready, arrived in zip(receives,
                                                     receivable or [always] * len(receives),
                                                     at_arrival or [nothing] * len(receives)):
            parts = cut(data, local[peer], self.engine.device_memory)
            pieces = [Piece(self, comm.Recv_init(part, peer, tag)) for part in parts]
            for piece, successor in zip(pieces, pieces[WATCHED:]):
                piece.successor = successor
            for piece in pieces[-1:]:
                piece.at_end = arrived
            self.incoming.append(Incoming(ready, pieces))
        # Piece by piece to all peers in turn, each rank beginning with another one: no link has
        # them all at once.
        room = reserved or [len(data) for data, *_ in sends]
        turns = [(number, (peer - comm.rank) % comm.size, part, peer, tag, ready)
                 for (data, peer, tag), n, ready in zip(sends, room,
                                                        sendable or [always] * len(sends))
                 for number, part in enumerate(cut(data, local[peer], self.engine.device_memory,
                                                   n))]
        self.sends = [Piece(self, comm.Send_init(part, peer, tag), len(part), None, ready)
                      for _, _, part, peer, tag, ready in sorted(turns, key=lambda turn: turn[:2])]
        self.n_pieces = len(self.sends) + sum(len(message.pieces) for message in self.incoming)
        self.engine.transfers.add(self)

    def start(self):
        """Post all receives; hand over sends as far as they are ready and there is room."""
        self.n_open = self.n_pieces
        self.engine.begin(self)

    def wait(self):
        """Return when everything has arrived and has been sent."""
        while self.n_open:
            if not self.engine.test():
                os.sched_yield()         # where ranks share a core, the one waited for gets it
            self.engine.hand_over()

    def free(self):
        """Free the requests; nothing may be in flight."""
        received = (piece for message in self.incoming for piece in message.pieces)
        for piece in (*received, *self.sends):
            piece.request.Free()
        self.engine.transfers.discard(self)


class ProgressEngine:
    """The messages of a run that are in flight: those MPI has got, and those that wait for room.

    One serves all communicators of a run: whoever waits for one message keeps the others moving.
    """

    def __init__(self, heartbeat: Heartbeat):
        self.heartbeat = heartbeat
        self.device_memory = False              # does any rank send from a device?
        self.transfers: set[Transfer] = set()   # whose requests are not freed yet
        self.window = 8 * LEAST_WINDOW          # bytes that MPI gets before earlier ones are gone
        self._held_back: deque[Piece] = deque()     # what MPI has not got yet, in order
        self._to_receive: list[Incoming] = []       # what MPI may not write yet
        self._requests: list[MPI.Request] = []      # what is tested,
        self._pieces: list[Piece] = []              # and the piece of each request
        self._handed_over = 0                   # bytes to send among them

    def begin(self, transfer: Transfer):
        """Start a transfer."""
        self._to_receive += transfer.incoming
        self._held_back.extend(transfer.sends)
        self.hand_over()

    def _receive(self):
        """Post the receives that MPI may write by now."""
        waiting, self._to_receive = self._to_receive, []
        for message in waiting:
            if not message.ready():
                self._to_receive.append(message)
                continue
            for piece in message.pieces:
                piece.request.Start()
            for piece in message.pieces[:WATCHED]:
                self._watch(piece)

    def progress(self, hand_over: bool = True):
        """Let MPI move what can be moved now, and give it more if there is room."""
        idle = 0
        # One test handles one event per connection; the next may be waiting already. Nothing to
        # test does not mean that nothing is held back: all that MPI had may have gone while an
        # all-reduce made the rest wait.
        while self._requests and idle < 2:
            idle = 0 if self.test() else idle + 1
        if not hand_over:
            self._receive()
        elif self._held_back or self._to_receive:
            if self._held_back and self._held_back[0].ready():
                self._adapt()
            self.hand_over()

    def test(self) -> bool:
        """Let MPI work once; was any piece through?

        Testsome even where one could wait: Waitsome of Open MPI 5.0.11 at times never returned,
        with both ranks in it.
        """
        from mpi4py import MPI
        done = MPI.Request.Testsome(self._requests)
        self._retire(done)
        return bool(done)

    def _adapt(self):
        """A window that emptied since the last test was too small; if half full, too large."""
        if self._handed_over == 0:
            self.window = min(2 * self.window, MOST_WINDOW)
        elif self._handed_over > self.window // 2:
            self.window = max(self.window * 7 // 8, LEAST_WINDOW)

    def hand_over(self):
        """Give MPI what it may receive, and as many pieces to send as there is room for."""
        if self._to_receive:
            self._receive()
        while (self._held_back and self._handed_over < self.window
               and self._held_back[0].ready()):
            piece = self._held_back.popleft()
            self._handed_over += piece.n_sent
            piece.request.Start()
            self._watch(piece)

    def sum_in_place(self, comm, arrays):
        """Add up host arrays over all ranks.

        Halo rows make room for it, unless it takes long: then a rank is late.
        """
        from mpi4py import MPI
        requests = [comm.Iallreduce(MPI.IN_PLACE, array) for array in arrays]
        pause_ends = time.perf_counter() + PAUSE_SECONDS
        while not MPI.Request.Testall(requests):
            self.progress(hand_over=time.perf_counter() > pause_ends)
            os.sched_yield()
        self.progress()                  # the network is free again: not only after the optimiser

    def close(self):
        """Wait for what is in flight and free all requests. All ranks do so together."""
        for transfer in list(self.transfers):
            transfer.wait()
            transfer.free()

    def _watch(self, piece: Piece):
        self._requests.append(piece.request)
        self._pieces.append(piece)

    def _retire(self, done: list[int] | None):
        if done:
            self.heartbeat.beat()
        for at in sorted(done or (), reverse=True):
            piece = self._pieces[at]
            piece.transfer.n_open -= 1
            piece.at_end()
            self._handed_over -= piece.n_sent
            if piece.successor:
                self._requests[at], self._pieces[at] = piece.successor.request, piece.successor
                continue
            self._requests[at], self._pieces[at] = self._requests[-1], self._pieces[-1]
            self._requests.pop()
            self._pieces.pop()
