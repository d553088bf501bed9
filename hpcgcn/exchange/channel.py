"""The messages of one exchange: a buffer per peer and direction, and persistent requests over them.

    reserve(k, sent, received)    how long this time's messages to and from peer k are
    shorten(k, sent)              the one to peer k turned out shorter than that
    stage(k)                      what is to be sent to peer k is in its buffer
    start(), wait()               all peers together
    incoming(k)                   what came from peer k

A message may also be the rows themselves, where MPI can reach them: then nothing is copied.
"""

from __future__ import annotations

from hpcgcn.backend.base import Backend, Message
from hpcgcn.mpi.progress import Transfer
from hpcgcn.mpi.runtime import Runtime

MOST_TRANSFERS = 4                   # a moving rate meets each size once: do not keep them all


class Channel:
    """Moves bytes between this rank and its peers.

    Buffers grow to the longest message they have held; requests are kept for the sizes met last.
    """

    def __init__(self, runtime: Runtime, backend: Backend, peers: list[int],
                 sent_from: list[Message | None] | None = None,
                 received_in: list[Message | None] | None = None):
        """sent_from, received_in: per peer a message over the rows themselves, else None."""
        self.runtime, self.backend, self.peers = runtime, backend, peers
        self._tags = [runtime.tag(peer) for peer in peers]
        # A message by its place in the job: both ranks know it under the other's rank.
        self.keys = [(runtime.name, runtime.job_ranks[peer], tag)
                     for peer, tag in zip(peers, self._tags)]
        self.n_started = 0
        self.sent_from = sent_from or [None] * len(peers)
        self.received_in = received_in or [None] * len(peers)
        self._buffers: dict[int, tuple[Message, Message]] = {}   # {peer k: (outgoing, incoming)}
        self._sizes = [(0, 0)] * len(peers)      # bytes of them that are used this time
        self._shortened: dict[int, int] = {}     # {peer k: bytes that it was reserved with}
        self._transfers: dict[tuple, Transfer] = {}      # by the sizes of the messages
        self._active: Transfer | None = None     # in flight

    def use_buffers(self):
        """From now on nothing is sent or received in place."""
        self.sent_from = self.received_in = [None] * len(self.peers)

    def reserve(self, k: int, out_bytes: int, in_bytes: int):
        """Announce the next messages to and from a peer.

        Returns the bytes to fill, or None if the rows are sent from where they are.
        """
        held = self._buffers.get(k)
        if held is None or len(held[0].array) < out_bytes or len(held[1].array) < in_bytes:
            self._free()                         # requests that point to shorter buffers
            lengths = [len(message.array) for message in held] if held else (0, 0)
            make = self.backend.message
            held = self._buffers[k] = (self.sent_from[k] or make(max(out_bytes, lengths[0])),
                                       self.received_in[k] or make(max(in_bytes, lengths[1])))
        self._sizes[k] = out_bytes, in_bytes
        self._shortened.pop(k, None)
        return None if self.sent_from[k] is not None else held[0].array[:out_bytes]

    def shorten(self, k: int, out_bytes: int):
        """Send no more than this; the receiver has room for what was reserved."""
        self._shortened[k] = self._sizes[k][0]
        self._sizes[k] = out_bytes, self._sizes[k][1]

    def stage(self, k: int):
        """What is to be sent is complete, and what came last from this peer has been used."""
        outgoing, incoming = self._buffers[k]
        out_bytes, in_bytes = self._sizes[k]
        self.backend.before_send(outgoing, out_bytes)
        self.backend.before_receive(incoming, in_bytes)

    def start(self):
        """Post all messages."""
        self._active = self._transfer(tuple(self._sizes))
        self.n_started += 1
        self._active.start()

    def sent_bytes(self) -> list[int]:
        """Length of the message to each peer."""
        return [size[0] for size in self._sizes]

    def wait(self):
        """Return when all messages have arrived and have been sent."""
        if self._active is not None:
            self._active.wait()
            self._active = None

    @property
    def in_flight(self) -> bool:
        """Were messages started that nobody has waited for?"""
        return self._active is not None

    def incoming(self, k: int):
        """The bytes that came from a peer; None: they are in their place. Once per message."""
        if self.received_in[k] is not None:
            return None
        message = self._buffers[k][1]
        self.backend.after_receive(message)
        return message.array[:self._sizes[k][1]]

    def _transfer(self, sizes: tuple) -> Transfer:
        """The persistent requests for messages of these (outgoing, incoming) sizes."""
        reserved = tuple(self._shortened.get(k, size[0]) for k, size in enumerate(sizes))
        which = sizes, reserved
        if which not in self._transfers:
            if len(self._transfers) >= MOST_TRANSFERS:
                self._free()
            held = [self._buffers[k] for k in range(len(self.peers))]
            per_peer = list(zip(held, sizes, self.peers, self._tags))
            own = self.backend.transfer(held, sizes, self.peers)
            if own is not None:
                self.runtime.engine.transfers.add(own)       # whoever ends the run waits for it
            self._transfers[which] = own or Transfer(
                self.runtime,
                [(messages[1].mpi[:size[1]], peer, tag) for messages, size, peer, tag in per_peer],
                [(messages[0].mpi[:size[0]], peer, tag) for messages, size, peer, tag in per_peer],
                [incoming.receivable for _, incoming in held],
                [outgoing.sendable for outgoing, _ in held],
                list(reserved),
                [self.runtime.trace.arrival(self, k) for k in range(len(self.peers))])
        return self._transfers[which]

    def _free(self):
        for transfer in self._transfers.values():
            transfer.free()
            self.runtime.engine.transfers.discard(transfer)
        self._transfers = {}

    def close(self):
        """Wait for what is in flight and give the requests back."""
        if self.in_flight:
            self.wait()
        self._free()
