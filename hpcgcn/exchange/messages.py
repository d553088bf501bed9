"""The messages of one exchange: a buffer for each way and peer, and the persistent requests over them."""

from __future__ import annotations

from hpcgcn.mpi.progress import Transfer

MOST_TRANSFERS = 4                   # a moving rate meets each size once: do not keep them all


class Messages:
    """Buffers grow to the largest message they have held; requests are kept for the sizes met last."""

    def __init__(self, runtime, backend, peers: list[int], sent_from: list, received_in: list):
        """sent_from, received_in: for each peer a message over the rows themselves, or None for a buffer."""
        self.runtime, self.backend = runtime, backend
        self.tags = [runtime.tag(peer) for peer in peers]
        self.peers, self.sent_from, self.received_in = peers, sent_from, received_in
        self._buffers = [None] * len(peers)      # (outgoing, incoming) of each peer
        self._transfers = {}                     # by the sizes of the messages

    def use_buffers(self):
        """From now on nothing is sent or received in place."""
        self.sent_from = self.received_in = [None] * len(self.peers)

    def reserve(self, k: int, out_bytes: int, in_bytes: int):
        """(outgoing, incoming) buffers of a peer; growing drops the requests that point to smaller ones."""
        current = self._buffers[k]
        if current is None or len(current[0].array) < out_bytes or len(current[1].array) < in_bytes:
            self.free()
            held = [len(buffer.array) for buffer in current] if current else (0, 0)
            self._buffers[k] = (self.sent_from[k] or self.backend.message(max(out_bytes, held[0])),
                                self.received_in[k] or self.backend.message(max(in_bytes, held[1])))
        return self._buffers[k]

    def incoming(self, k: int):
        """What came from a peer."""
        return self._buffers[k][1]

    def transfer(self, sizes: tuple) -> Transfer:
        """The persistent requests for messages of these (outgoing, incoming) sizes."""
        if sizes not in self._transfers:
            if len(self._transfers) >= MOST_TRANSFERS:
                self.free()
            ends = list(zip(self._buffers, sizes, self.peers, self.tags))
            receives = [(buffers[1].mpi[:size[1]], peer, tag) for buffers, size, peer, tag in ends]
            sends = [(buffers[0].mpi[:size[0]], peer, tag) for buffers, size, peer, tag in ends]
            self._transfers[sizes] = Transfer(self.runtime, receives, sends)
        return self._transfers[sizes]

    def free(self):
        """Give the requests back (some MPI libraries complain otherwise)."""
        for transfer in self._transfers.values():
            transfer.free()
        self._transfers = {}
