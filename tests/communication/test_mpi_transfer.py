"""Long messages in pieces: every byte arrives, whatever is in flight beside them and whoever waits
for what first."""

import numpy as np
import pytest

from hpcgcn.mpi import progress

pytestmark = pytest.mark.mpi

N_EXCHANGES, N_EPOCHS = 4, 6


@pytest.fixture
def narrow(monkeypatch):
    """A window of a few pieces, so that messages of test size wait for room."""
    monkeypatch.setattr(progress, "PIECE_BYTES", 1 << 10)
    monkeypatch.setattr(progress, "LOCAL_PIECE_BYTES", 3 << 10)
    monkeypatch.setattr(progress, "LEAST_WINDOW", 1 << 12)


def content(exchange, source, target, epoch, size):
    return (7 * np.arange(size) + exchange + 3 * source + 5 * target + 11 * epoch).astype(np.uint8)


class Exchange:
    """Messages of every rank to every other, of sizes that all ranks know; a canary after each
    landing place."""

    def __init__(self, runtime, number, sizes):
        self.comm, self.number, self.sizes = runtime.comm, number, sizes
        comm = runtime.comm
        self.peers = [p for p in range(comm.size) if p != comm.rank]
        self.outgoing = {p: np.empty(sizes[comm.rank, p], np.uint8) for p in self.peers}
        self.landing = {p: np.full(sizes[p, comm.rank] + 8, 99, np.uint8) for p in self.peers}
        tags = {p: runtime.tag(p) for p in self.peers}
        self.transfer = progress.Transfer(runtime,
                                          [(self.landing[p][:-8], p, tags[p]) for p in self.peers],
                                          [(self.outgoing[p], p, tags[p]) for p in self.peers])

    def start(self, epoch):
        for p in self.peers:
            self.outgoing[p][:] = content(self.number, self.comm.rank, p, epoch,
                                          len(self.outgoing[p]))
        self.transfer.start()

    def check(self, epoch):
        for p in self.peers:
            wanted = content(self.number, p, self.comm.rank, epoch, self.sizes[p, self.comm.rank])
            np.testing.assert_array_equal(self.landing[p][:-8], wanted)
            assert (self.landing[p][-8:] == 99).all()


class Gate:
    """A message that is written, or may be overwritten, only when it was asked for a few times."""

    def __init__(self, after: int, on_opening=lambda: None):
        self.after, self.asked, self.on_opening = after, 0, on_opening

    def __call__(self) -> bool:
        self.asked += 1
        if self.asked == self.after:
            self.on_opening()
        return self.asked >= self.after


def test_a_message_waits_until_mpi_may_have_it(comm, narrow, runtime):
    """What is sent is written late, and what is received may be overwritten late."""
    size, rank = 20_000, comm.rank
    after, before = (rank + 1) % comm.size, (rank - 1) % comm.size
    outgoing, landing = np.zeros(size, np.uint8), np.full(size, 99, np.uint8)

    def write():
        outgoing[:] = content(0, rank, after, 0, size)
    may_send = Gate(4 + rank, write)
    may_receive = Gate(6 - rank, lambda: (landing == 99).all() or pytest.fail("written too early"))
    tags = {peer: runtime.tag(peer) for peer in sorted({before, after})}
    transfer = progress.Transfer(runtime, [(landing, before, tags[before])],
                                 [(outgoing, after, tags[after])], [may_receive], [may_send])
    transfer.start()
    runtime.progress()
    transfer.wait()
    np.testing.assert_array_equal(landing, content(0, before, rank, 0, size))
    assert may_send.asked >= may_send.after and may_receive.asked >= may_receive.after
    transfer.free()


@pytest.mark.parametrize("hosts_known", [False, True])
def test_pieces_arrive_in_any_order_of_waiting(comm, narrow, runtime, hosts_known):
    if not hosts_known:
        runtime.shares_host = [False] * comm.size  # as if all ranks were on hosts of their own
    rng = np.random.default_rng(5)                        # the same draws on all ranks
    sizes = rng.integers(0, 200_000, (N_EXCHANGES, comm.size, comm.size))
    sizes[0, 0] = 0                                       # rank 0 sends nothing in one of them
    sizes[1] = 1 << 10                                    # exactly one piece
    exchanges = [Exchange(runtime, k, sizes[k]) for k in range(N_EXCHANGES)]
    for epoch in range(N_EPOCHS):
        for exchange in exchanges:
            exchange.start(epoch)
            runtime.progress()
        total = np.full(1000, comm.rank + epoch, np.float64)
        runtime.sum_in_place(total)                       # halo rows are held back
        assert (total == sum(range(comm.size)) + epoch * comm.size).all() or comm.size == 1
        for k in rng.permutation(N_EXCHANGES):
            exchanges[k].transfer.wait()
            exchanges[k].check(epoch)
    for exchange in exchanges:
        exchange.transfer.free()
    assert runtime.engine.window <= progress.MOST_WINDOW


def test_a_sum_that_takes_long_lets_messages_through(comm, narrow, runtime, monkeypatch):
    """One rank joins the sum only when it has everything: the others must not hold its messages
    back for good."""
    monkeypatch.setattr(progress, "PAUSE_SECONDS", 0.01)
    exchange = Exchange(runtime, 0, np.full((comm.size, comm.size), 100_000))
    exchange.start(0)
    if comm.rank == 0:
        exchange.transfer.wait()
    total = np.ones(3)
    runtime.sum_in_place(total)
    assert (total == comm.size).all()
    exchange.transfer.wait()
    exchange.check(0)
    exchange.transfer.free()


def test_sums_are_the_same_on_all_ranks_to_the_last_bit(comm, runtime):
    rng = np.random.default_rng(comm.rank)
    values = rng.standard_normal(50_000).astype(np.float32)
    runtime.sum_in_place(values)
    assert len(set(comm.allgather(values.tobytes()))) == 1
