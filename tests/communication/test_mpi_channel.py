"""A channel alone: bytes of any length to and from all ranks, itself included."""

import numpy as np
import pytest

from hpcgcn.backend.base import Message
from hpcgcn.backend.reference import ReferenceBackend
from hpcgcn.exchange import channel as channels
from hpcgcn.exchange.channel import Channel

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(60)]

CANARY = 0xC5


class Watched(ReferenceBackend):
    """Notes what is called for each message, and puts canaries behind them."""

    def __init__(self):
        super().__init__(np.float32)
        self.made, self.calls = [], []

    def message(self, nbytes):
        whole = super().message(nbytes + 32).array
        whole[nbytes:] = CANARY
        self.made.append(whole[nbytes:])
        return Message(whole[:nbytes])

    def before_send(self, message, nbytes):
        self.calls.append(("before_send", id(message)))

    def before_receive(self, message, nbytes):
        self.calls.append(("before_receive", id(message)))

    def after_receive(self, message):
        self.calls.append(("after_receive", id(message)))


def content(source: int, target: int, turn: int, size: int) -> np.ndarray:
    return (np.arange(size) * 7 + 3 * source + 5 * target + 11 * turn).astype(np.uint8)


def size_of(source: int, target: int, turn: int) -> int:
    """Some are empty; they grow and shrink from turn to turn."""
    return (source * 7 + target * 3 + turn * 5) % 9 * 1000


def run_turn(channel, rank: int, turn: int):
    for k, peer in enumerate(channel.peers):
        sent, received = size_of(rank, peer, turn), size_of(peer, rank, turn)
        data = channel.reserve(k, sent, received)
        data[:] = content(rank, peer, turn, sent)
        channel.stage(k)
    channel.start()
    assert channel.in_flight
    channel.wait()
    assert not channel.in_flight
    for k, peer in enumerate(channel.peers):
        expected = content(peer, rank, turn, size_of(peer, rank, turn))
        np.testing.assert_array_equal(channel.incoming(k), expected)


def test_messages_of_changing_length_arrive_whole(comm, runtime):
    backend = Watched()
    channel = Channel(runtime, backend, list(range(comm.size)))
    for turn in range(12):
        run_turn(channel, comm.rank, turn)
        assert len(runtime.engine.transfers) <= channels.MOST_TRANSFERS
    assert all((canary == CANARY).all() for canary in backend.made)
    channel.close()
    assert not runtime.engine.transfers


def test_equal_lengths_use_the_same_buffers_and_requests(comm, runtime):
    backend = Watched()
    channel = Channel(runtime, backend, list(range(comm.size)))
    run_turn(channel, comm.rank, 4)
    n_made, transfers = len(backend.made), set(runtime.engine.transfers)
    for _ in range(3):
        run_turn(channel, comm.rank, 4)
    assert len(backend.made) == n_made and runtime.engine.transfers == transfers
    channel.close()


def test_the_backend_hears_of_each_message_in_order(comm, runtime):
    """On a device these calls copy: each exactly once per message, before and after MPI."""
    backend = Watched()
    channel = Channel(runtime, backend, [comm.rank])
    for _ in range(2):
        run_turn(channel, comm.rank, 1)
    names = [name for name, _ in backend.calls]
    assert names == ["before_send", "before_receive", "after_receive"] * 2
    channel.close()


def test_rows_in_place_are_not_copied(comm, runtime):
    """Sent from the source's own memory, received in the target's; odd ranks have buffers."""
    backend, n = ReferenceBackend(np.float32), 50
    source, target = (np.zeros((comm.size, n), np.float32) for _ in range(2))
    sent_from, received_in = ([backend.message_over(array[k]) if k % 2 == 0 else None
                               for k in range(comm.size)] for array in (source, target))
    channel = Channel(runtime, backend, list(range(comm.size)), sent_from, received_in)
    for turn in range(3):
        source[:] = [[100 * turn + 10 * comm.rank + peer] * n for peer in range(comm.size)]
        for k in range(comm.size):
            data = channel.reserve(k, 4 * n, 4 * n)
            # The two ends need not do the same: one sends in place, the other receives in a buffer.
            assert (data is None) == (k % 2 == 0)
            if data is not None:
                data[:] = source[k].view(np.uint8)
            channel.stage(k)
        channel.start()
        channel.wait()
        for k in range(comm.size):
            data = channel.incoming(k)
            found = target[k] if data is None else data.view(np.float32)
            assert (data is None) == (k % 2 == 0)
            assert (found == 100 * turn + 10 * k + comm.rank).all()
    channel.close()


def test_use_buffers_ends_what_is_in_place(comm, runtime):
    backend, rows = ReferenceBackend(np.float32), np.ones((4, 3), np.float32)
    channel = Channel(runtime, backend, [comm.rank], [backend.message_over(rows)], [None])
    assert channel.reserve(0, 48, 48) is None
    channel.use_buffers()
    assert len(channel.reserve(0, 60, 60)) == 60
    channel.close()


def test_close_awaits_what_is_in_flight(comm, runtime):
    channel = Channel(runtime, ReferenceBackend(np.float32), list(range(comm.size)))
    for k in range(comm.size):
        channel.reserve(k, 300_000, 300_000)[:] = comm.rank
        channel.stage(k)
    channel.start()
    channel.close()
    assert all((channel.incoming(k) == peer).all() for k, peer in enumerate(channel.peers))


def test_two_channels_between_the_same_ranks_do_not_mix(comm, runtime):
    everyone = list(range(comm.size))
    one, other = (Channel(runtime, ReferenceBackend(np.float32), everyone) for _ in range(2))
    for mark, channel in ((1, one), (2, other)):
        for k in range(comm.size):
            channel.reserve(k, 1000, 1000)[:] = mark
            channel.stage(k)
        channel.start()
    other.wait()
    one.wait()
    for k in everyone:
        assert (one.incoming(k) == 1).all() and (other.incoming(k) == 2).all()
    one.close(), other.close()
