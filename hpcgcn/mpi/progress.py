"""MPI moves messages only inside MPI calls, and moves them in the order in which it got them.

The first is why work is cut into blocks of rows and `progress` is called between them. The second is why a long message is
cut into pieces and MPI gets only some of them at a time: what comes later and is wanted sooner (the sum of the gradients,
the acknowledgement of a message of the other direction) waits behind these pieces, not behind all halo rows of an epoch.

Pieces that MPI has not got move only in calls of this module. A rank that enters any other collective while it holds some
back must not be waited for by one that has yet to enter it. Halo exchanges keep to that: a rank waits for a message only
where the sender, at the same point of its course, waits for it to be gone.
"""

from __future__ import annotations

import functools
import os
import time
from collections import deque
from dataclasses import dataclass

from hpcgcn.mpi.watchdog import heartbeat

# Below the 64 KiB up to which MPI over TCP sends at once; longer ones wait for the receiver to look up and say go.
PIECE_BYTES = 60 * 1024
LOCAL_PIECE_BYTES = 1 << 20          # between ranks of a host, where handling a piece costs more than moving it
MOST_PIECES = 4096                   # of one message
LEAST_WINDOW, MOST_WINDOW = 1 << 17, 1 << 24
WATCHED = 16                         # pieces of a message whose arrival is looked for: they arrive in order
PAUSE_SECONDS = 0.25                 # how long halo rows make room for a sum


@dataclass(slots=True)
class Piece:
    """Part of a message: a persistent request and, if it is sent, its bytes."""

    transfer: "Transfer"
    request: object
    n_sent: int = 0
    successor: "Piece | None" = None     # to look for once this one has arrived


def cut(buffer, local: bool = False) -> list:
    """A message in pieces; both ends cut alike, because its size and their hosts say all."""
    size = max(LOCAL_PIECE_BYTES if local else PIECE_BYTES, -(-len(buffer) // MOST_PIECES))
    return [buffer[at:at + size] for at in range(0, len(buffer), size)]


@functools.cache
def _hosts_key() -> int:
    from mpi4py import MPI
    return MPI.Comm.Create_keyval()


def recognise_hosts(comm):
    """Find out which ranks share this one's host: transfers made afterwards use longer pieces between them. Collective."""
    from mpi4py import MPI
    names = comm.allgather(MPI.Get_processor_name())
    comm.Set_attr(_hosts_key(), [name == names[comm.rank] for name in names])


class Transfer:
    """Messages from and to all peers of one exchange: built once, then started and waited for as one."""

    def __init__(self, comm, receives: list, sends: list, tag: int):
        """receives, sends: (bytes as MPI sees them, peer). An empty message is not sent."""
        self.n_open = 0
        self.receives, self.watched = [], []
        local = comm.Get_attr(_hosts_key()) or [False] * comm.size
        for data, peer in receives:
            pieces = [Piece(self, comm.Recv_init(part, peer, tag)) for part in cut(data, local[peer])]
            for piece, successor in zip(pieces, pieces[WATCHED:]):
                piece.successor = successor
            self.receives += pieces
            self.watched += pieces[:WATCHED]
        # Piece by piece to all peers in turn, each rank beginning with another one: no link has them all at once.
        turns = [(number, (peer - comm.rank) % comm.size, part, peer)
                 for data, peer in sends for number, part in enumerate(cut(data, local[peer]))]
        self.sends = [Piece(self, comm.Send_init(part, peer, tag), len(part))
                      for _, _, part, peer in sorted(turns, key=lambda turn: turn[:2])]

    def start(self):
        """Post all receives; hand over sends as far as there is room."""
        self.n_open = len(self.receives) + len(self.sends)
        _in_flight.begin(self)

    def wait(self):
        """Return when everything has arrived and has been sent."""
        while self.n_open:
            if not _in_flight.look():
                os.sched_yield()             # where ranks share a core, the one that is waited for gets it
            _in_flight.hand_over()

    def free(self):
        """Free the requests; nothing may be in flight."""
        for piece in self.receives + self.sends:
            piece.request.Free()


class InFlight:
    """The messages of this process that are on their way: those that MPI has got, and those that wait for room."""

    def __init__(self):
        self.window = 8 * LEAST_WINDOW          # bytes that MPI gets before earlier ones are gone
        self._held_back = deque()               # pieces that MPI has not got yet, in the order of their start
        self._requests, self._pieces = [], []   # what is looked for: requests, and the piece of each
        self._handed_over = 0                   # bytes to send among them

    def begin(self, transfer: Transfer):
        """Start a transfer."""
        for piece in transfer.receives:
            piece.request.Start()
        for piece in transfer.watched:
            self._watch(piece)
        self._held_back.extend(transfer.sends)
        self.hand_over()

    def progress(self, hand_over: bool = True):
        """Let MPI move what can be moved now, and give it more if there is room."""
        idle = 0
        # One look handles one event a connection; the next may be waiting already. Nothing to look for does not mean that
        # nothing is held back: all that MPI had may have gone while a sum made the rest wait.
        while self._requests and idle < 2:
            idle = 0 if self.look() else idle + 1
        if self._held_back and hand_over:
            self._adapt()
            self.hand_over()

    def look(self) -> bool:
        """Let MPI work once; was any piece through?

        Testsome even where one could wait: Waitsome of Open MPI 5.0.11 at times never returned, both ranks in it.
        """
        from mpi4py import MPI
        done = MPI.Request.Testsome(self._requests)
        self._retire(done)
        return bool(done)

    def _adapt(self):
        """A window that emptied since the last look was too small; one that is still half full is larger than needed."""
        if self._handed_over == 0:
            self.window = min(2 * self.window, MOST_WINDOW)
        elif self._handed_over > self.window // 2:
            self.window = max(self.window * 7 // 8, LEAST_WINDOW)

    def hand_over(self):
        """Give MPI as many pieces as there is room for."""
        while self._held_back and self._handed_over < self.window:
            piece = self._held_back.popleft()
            self._handed_over += piece.n_sent
            piece.request.Start()
            self._watch(piece)

    def _watch(self, piece: Piece):
        self._requests.append(piece.request)
        self._pieces.append(piece)

    def _retire(self, done: list[int] | None):
        if done:
            heartbeat()
        for at in sorted(done or (), reverse=True):
            piece = self._pieces[at]
            piece.transfer.n_open -= 1
            self._handed_over -= piece.n_sent
            if piece.successor:
                self._requests[at], self._pieces[at] = piece.successor.request, piece.successor
                continue
            for items in (self._requests, self._pieces):
                items[at] = items[-1]
                items.pop()


# One for the process: whoever waits for one message keeps the others moving.
_in_flight = InFlight()


def sum_in_place(comm, *arrays):
    """Add up host arrays over all ranks. Halo rows make room for it, unless it takes long: then somebody is late."""
    if comm.size == 1:
        return
    from mpi4py import MPI
    requests = [comm.Iallreduce(MPI.IN_PLACE, array) for array in arrays]
    pause_ends = time.perf_counter() + PAUSE_SECONDS
    while not MPI.Request.Testall(requests):
        _in_flight.progress(hand_over=time.perf_counter() > pause_ends)
        os.sched_yield()
    _in_flight.progress()                        # the network is free again: the optimiser need not be done first


class Progress:
    """Gives MPI a chance to move what is in flight; cheap enough to call after every block of rows."""

    def __init__(self, comm):
        self.comm = comm
        self.seconds = 0.0               # spent here

    def progress(self):
        """Let MPI move what can be moved now. Called after a block of work, so it counts as a heartbeat."""
        heartbeat()
        began = time.perf_counter()
        _in_flight.progress()
        self.seconds += time.perf_counter() - began
