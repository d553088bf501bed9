"""Exchanges in all modes against the same arithmetic done here, with canaries behind every message
buffer."""

import dataclasses

import numpy as np
import pytest
from mpi4py import MPI
from parts import awkward, cut

from hpcgcn.backend.base import Message
from hpcgcn.backend.reference import ReferenceBackend
from hpcgcn.exchange.codecs import Draw, Rows, make_codec
from hpcgcn.exchange.exchange import Exchange
from hpcgcn.exchange.schedules import Linear, Schedule, Steps
from hpcgcn.exchange.types import Policy
from hpcgcn.parallel.local_graph import build_local
from hpcgcn.parallel.partition.halo_plans import HaloPlans
from hpcgcn.parallel.partition.matrices import PartitionedMatrices

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(60)]

EPOCHS, SEED, LAYER, CANARY = 7, 11, 2, 0xC5
WIDTHS = (1, 3, 8, 41)


class Guarded(ReferenceBackend):
    """The reference backend with canaries behind its messages."""

    def __init__(self):
        super().__init__(np.float32)
        self.guards = []

    def message(self, nbytes):
        whole = super().message(nbytes + 64).array
        whole[nbytes:] = CANARY
        self.guards.append(whole[nbytes:])
        return Message(whole[:nbytes])

    def check(self):
        assert all((guard == CANARY).all()
                   for guard in self.guards), "something was written past the end of a message"


CODECS = {
    "fp32": (make_codec("fp32"), Schedule(1)), "fp16": (make_codec("fp16"), Schedule(1)),
    "bf16": (make_codec("bf16"), Schedule(1)), "1bit": (make_codec("1bit"), Schedule(1)),
    "2bit": (make_codec("2bit"), Schedule(2)),
    "4bit": (make_codec("4bit", wide_parameters=True), Schedule(4)),
    "8bit-nearest": (make_codec("8bit", nearest=True), Schedule(8)),
    "bits-rising": (make_codec("bits"), Steps([(0, 1), (2, 4), (4, 16), (5, 32)])),
    "adaptive": (make_codec("adaptive"), Schedule(5)),
    "adaptive-rising": (make_codec("adaptive", nearest=True, wide_parameters=True),
                        Steps([(0, 1), (2, 4), (4, 8)])),
    "subset": (make_codec("subset"), Schedule(2.5)),
    "subset-rescaled": (make_codec("subset", rescale=True), Schedule(3)),
    "subset-moving": (make_codec("subset"), Linear(41, 1, 1.5, EPOCHS)),
    "nodes": (make_codec("nodes"), Schedule(3)),
    "nodes-moving": (make_codec("nodes"), Linear(1, 20, 1.0, EPOCHS)),
}
MODES = {
    "sync": {}, "stale": {"staleness": 1},
    "stale-first-sync": {"staleness": 1, "first_epoch": "sync"},
    "bounded": {"staleness": 1, "refresh_every": 3}, "smooth": {"staleness": 1, "smoothing": 0.8},
    "smooth-corrected-bounded": {"staleness": 1, "smoothing": 0.6, "smoothing_correction": True,
                                 "refresh_every": 4}, "feedback": {"error_feedback": True},
    "feedback-stale": {"error_feedback": True, "staleness": 1}, "residual": {"residual": True},
    "residual-smooth": {"residual": True, "staleness": 1, "smoothing": 0.5},
    "triggered": {"residual": True, "change_threshold": 0.5},
    "triggered-stale": {"residual": True, "change_threshold": 0.5, "staleness": 1},
}


def values(ids: np.ndarray, epoch: int, sender: int, width: int) -> np.ndarray:
    """What `sender` sends for these nodes in an epoch: known to all, so that a receiver can work it
    out. Every other node moves every other epoch only."""
    rows = [np.random.default_rng([int(i), epoch - epoch % 2 * (int(i) % 2),
                                   sender]).standard_normal(width) for i in ids]
    return np.array(rows, np.float32).reshape(len(ids), width)


class Expected:
    """What arrives from one peer and what is used of it, worked out from the codec alone."""

    def __init__(self, policy: Policy, route, sender: int, width: int):
        self.policy, self.route, self.sender, self.width = policy, route, sender, width
        shape = (len(route.incoming), width)
        self.memory, self.has = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        self.average, self.late, self.n = np.zeros(shape), np.zeros(shape), 0
        self.n_moved = 0

    def coded(self, rows: np.ndarray, epoch: int, which=slice(None)) -> np.ndarray:
        """Through the codec and back; which: of the route's rows these are."""
        backend, policy, ids = (ReferenceBackend(np.float32), self.policy,
                                self.route.incoming.host_ids[which])
        all_rows = Rows(None, ids, ids, reader=self.route.incoming.reader)
        draw = Draw(SEED, epoch, LAYER, self.route.in_stream)
        rate, out = policy.rate.rate(epoch), np.full(rows.shape, 7.0, np.float32)
        data = np.zeros(policy.codec.nbytes(backend, all_rows, self.width, rate, draw), np.uint8)
        if rows.size:
            policy.codec.encode(backend, rows, all_rows, rate, draw, data)
            policy.codec.decode(backend, data, all_rows, rate, draw, out)
        return out

    def used(self, epoch: int) -> np.ndarray:
        rows, policy = values(self.route.incoming.host_ids, epoch, self.sender,
                              self.width), self.policy
        if policy.error_feedback:
            wanted = rows + self.memory
            arrived = self.coded(wanted, epoch)
            self.memory = wanted - arrived
        elif policy.change_threshold:
            change = rows - self.has
            off = np.abs(change).max(1, initial=0) > policy.change_threshold * np.abs(rows).max(
                1, initial=0)
            self.has = self.has.copy()
            self.has[off] += self.coded(change[off], epoch, off)
            arrived, self.n_moved = self.has, self.n_moved + int(off.sum())
        elif policy.residual:
            self.has = self.has + self.coded(rows - self.has, epoch)
            arrived = self.has
        else:
            arrived = self.coded(rows, epoch)
        late = self.late
        self.average, self.n = (policy.smoothing * self.average + (1 - policy.smoothing) * arrived,
                                self.n + 1)
        correction = 1 - policy.smoothing ** self.n if policy.smoothing_correction else 1.0
        self.late = self.average / correction if policy.smoothing else arrived
        refresh = policy.refresh_every and epoch % policy.refresh_every == policy.refresh_every - 1
        now = not policy.staleness or refresh or (epoch == 0 and policy.first_epoch == "sync")
        return arrived if now else late


def exchange_of(runtime, backend, cut_graph, direction, width, policy) -> Exchange:
    n_received = cut_graph.local.n_halo if direction == "forward" else cut_graph.local.plan.n_sent
    routes = cut_graph.halo(HaloPlans(cut_graph.local).whole()).routes(direction)
    return Exchange(runtime, backend, routes, n_received, width, policy,
                    seed=SEED, layer=LAYER)


def sent_rows(local, direction, epoch, sender, width) -> np.ndarray:
    ids = local.ids if direction == "forward" else local.halo_ids
    return values(ids, epoch, sender, width)


def refused(codec: str, mode: str) -> bool:
    """Combinations that check_combination does not let through: feedback of samples that are scaled
    up."""
    remembers = any(word in mode for word in ("feedback", "residual", "triggered"))
    return remembers and (codec.startswith("nodes") or codec == "subset-rescaled")


COMBINATIONS = [(codec, mode) for codec in CODECS for mode in MODES if not refused(codec, mode)]
# The last rank's island and the empty first part leave two ranks nothing to send.
KINDS_WITH_HALO = ["random", "one-node-parts",
                   *(pytest.param(kind, marks=pytest.mark.mpi(min_size=3))
                     for kind in ("no-halo", "empty-part"))]
SEVERAL = pytest.mark.mpi(min_size=2)           # one rank has nobody to send to


@SEVERAL
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("codec, mode", COMBINATIONS)
def test_what_arrives_and_when_it_is_used(comm, runtime, codec, mode, direction):
    check_arrivals(comm, runtime, "random", 41, direction, Policy(*CODECS[codec], **MODES[mode]))


@SEVERAL
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("kind", KINDS_WITH_HALO)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("codec, mode", [("fp32", "sync"), ("2bit", "smooth"),
                                         ("subset", "feedback"), ("nodes", "stale"),
                                         ("adaptive", "residual")])
def test_rows_of_any_width_arrive_in_any_partition(comm, runtime, codec, mode, width, kind,
                                                   direction):
    check_arrivals(comm, runtime, kind, width, direction, Policy(*CODECS[codec], **MODES[mode]))


def check_arrivals(comm, runtime, kind, width, direction, policy):
    """Run an exchange for some epochs; every row that is used is the one worked out here, and rows
    were sent."""
    graph, owner = awkward(kind, comm.size, n_nodes=24, n_edges=40)
    local, backend = build_local(comm, cut(graph, owner, comm.rank, comm.size), True), Guarded()
    exchange = exchange_of(runtime, backend, PartitionedMatrices(backend, local, "symmetric"),
                           direction, width, policy)
    expected = [Expected(policy, route, route.peer, width) for route in exchange.routes]
    for epoch in range(EPOCHS):
        exchange.start(sent_rows(local, direction, epoch, comm.rank, width), epoch)
        found = exchange.finish()
        for route, peer in zip(exchange.routes, expected):
            np.testing.assert_allclose(found[route.receive_slice], peer.used(epoch), rtol=2e-5,
                                       atol=2e-5, err_msg=f"epoch {epoch}")
    assert comm.allreduce(
        exchange.statistics.bytes_sent) > 0, "nothing was sent: the test shows nothing"
    exchange.close()
    backend.check()
    if policy.change_threshold:
        n_rows = EPOCHS * sum(len(route.incoming) for route in exchange.routes)
        moved, all_rows = comm.allreduce(np.array([sum(p.n_moved for p in expected), n_rows]))
        assert 0.5 * all_rows < moved <= all_rows
        assert moved < 0.9 * all_rows or not policy.codec.exact, "rows that did not move are sent"
        sent, received = (exchange.statistics.bytes_sent, exchange.statistics.bytes_received)
        assert comm.allreduce(sent) == comm.allreduce(received)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_one_rank_sends_nothing_and_receives_no_rows(runtime, direction):
    graph, owner = awkward("random", 1)
    local, backend = build_local(MPI.COMM_SELF, cut(graph, owner, 0, 1), True), Guarded()
    exchange = exchange_of(runtime, backend, PartitionedMatrices(backend, local, "symmetric"),
                           direction, 41, Policy(*CODECS["fp32"]))
    exchange.start(sent_rows(local, direction, 0, 0, 41), 0)
    assert (exchange.finish().shape == (0, 41) and exchange.routes == []
            and exchange.statistics.bytes_sent == 0)
    exchange.close()


def adaptive_bytes(n_rows: int, width: int, rate: float, header: int) -> int:
    """The bytes of uniform bits, and those between their widths that the rate pays for."""
    if not n_rows:
        return 0
    uniform = (width * max(bits for bits in (1, 2, 4, 8) if bits <= rate) + 7) // 8
    return 8 + n_rows * header + max(n_rows * uniform, int(n_rows * width * rate / 8))


@SEVERAL
@pytest.mark.parametrize("codec", CODECS)
def test_meters_count_what_the_formulas_say(comm, runtime, codec):
    graph, owner = awkward("random", comm.size)
    local = build_local(comm, cut(graph, owner, comm.rank, comm.size), True)
    backend, width, policy = ReferenceBackend(np.float32), 41, Policy(*CODECS[codec])
    exchange = exchange_of(runtime, backend, PartitionedMatrices(backend, local, "symmetric"),
                           "forward", width, policy)
    for epoch in range(EPOCHS):
        before = dataclasses.replace(exchange.statistics)
        exchange.start(sent_rows(local, "forward", epoch, comm.rank, width), epoch)
        exchange.finish()
        after = exchange.statistics
        sent, received = (after.bytes_sent - before.bytes_sent,
                          after.bytes_received - before.bytes_received)
        assert comm.allreduce(sent) == comm.allreduce(received)
        n_rows, rate = local.plan.n_sent, policy.rate.rate(epoch)
        header = 8 if codec == "4bit" else 4
        bits = max(b for b in (1, 2, 4, 8, 16, 32) if b <= rate) if "bit" in codec else 0
        row_bytes = {"fp32": 4 * width, "fp16": 2 * width, "bf16": 2 * width, 16: 2 * width,
                     32: 4 * width}
        if bits:
            assert sent == n_rows * row_bytes.get(bits, header + -(-width * bits // 8))
            assert (exchange.statistics.bytes_parameters
                    - before.bytes_parameters == (n_rows * header if bits < 16 else 0))
        elif codec.startswith("subset"):
            assert sent == n_rows * 4 * max(1, int(width / rate))
        elif codec in row_bytes:
            assert sent == n_rows * row_bytes[codec]
        elif codec.startswith("adaptive"):
            assert sent == sum(adaptive_bytes(len(route.outgoing), width, rate,
                                              8 if codec == "adaptive-rising" else 4)
                               for route in exchange.routes)
        else:
            counts = [len(route.outgoing) for route in exchange.routes]
            assert sent == 4 * width * sum(min(max(int(n / rate), 1), n) for n in counts)
        assert (exchange.statistics.bytes_uncompressed
                - before.bytes_uncompressed == n_rows * 4 * width)
    exchange.close()


@SEVERAL
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("pieces", [100, 60 * 1024])
def test_only_rows_that_moved_are_sent_and_counted(comm, runtime, monkeypatch, pieces, direction):
    """Every third node moves by a tenth of its largest element each epoch, the others by less."""
    from hpcgcn.mpi import progress
    monkeypatch.setattr(progress, "PIECE_BYTES", pieces)
    monkeypatch.setattr(progress, "LOCAL_PIECE_BYTES", pieces)
    graph, owner = awkward("random", comm.size, n_nodes=60, n_edges=300)
    local = build_local(comm, cut(graph, owner, comm.rank, comm.size), True)
    backend, width = Guarded(), 9
    policy = Policy(make_codec("8bit"), Schedule(8), residual=True, change_threshold=0.05)
    exchange = exchange_of(runtime, backend, PartitionedMatrices(backend, local, "symmetric"),
                           direction, width, policy)
    ids = local.ids if direction == "forward" else local.halo_ids
    still = values(ids, 0, comm.rank, width)
    largest = np.abs(still).max(1, keepdims=True)
    for epoch in range(5):
        before = dataclasses.replace(exchange.statistics)
        x = still.copy()
        x[ids % 3 == 0] += (0.1 * epoch * largest)[ids % 3 == 0]
        exchange.start(x, epoch)
        found = exchange.finish()
        after, wanted, parameters = exchange.statistics, 0, 0
        for route in exchange.routes:
            sent_ids = route.outgoing.host_ids
            n = len(sent_ids) if epoch == 0 else int((sent_ids % 3 == 0).sum())
            wanted += 8 * ((len(sent_ids) + 63) // 64) + n * (4 + width)
            parameters += 4 * n
        assert after.bytes_sent - before.bytes_sent == wanted
        assert after.bytes_parameters - before.bytes_parameters == parameters
        assert comm.allreduce(after.bytes_sent) == comm.allreduce(after.bytes_received)
        for route in exchange.routes:
            rows = values(route.incoming.host_ids, 0, route.peer, width)
            size = np.abs(rows).max(1, keepdims=True)
            moves = (route.incoming.host_ids % 3 == 0)[:, None]
            off = np.abs(found[route.receive_slice] - (rows + 0.1 * epoch * size * moves))
            assert (off <= 0.05 * 1.5 * size + 1e-6).all()
    exchange.close()
    backend.check()


@SEVERAL
@pytest.mark.parametrize("mode", [m for m in MODES if m != "sync"])
def test_a_restored_exchange_goes_on_with_the_same_bits(comm, runtime, mode):
    graph, owner = awkward("random", comm.size)
    local = build_local(comm, cut(graph, owner, comm.rank, comm.size), True)
    backend, width = ReferenceBackend(np.float32), 8
    policy, cut_graph = Policy(*CODECS["4bit"],
                               **MODES[mode]), PartitionedMatrices(backend, local, "symmetric")

    def run(exchange, epochs):
        found = []
        for epoch in epochs:
            exchange.start(sent_rows(local, "forward", epoch, comm.rank, width), epoch)
            found.append(exchange.finish().copy())
        return found

    first, second, third = (exchange_of(runtime, backend, cut_graph, "forward", width, policy)
                            for _ in range(3))
    straight = run(first, range(8))
    run(second, range(5))
    state = second.state()
    assert third.fits(state) and not third.fits({})
    assert not third.fits(state | {"ids": state["ids"] + 1})
    third.restore(state)
    for a, b in zip(run(third, range(5, 8)), straight[5:]):
        np.testing.assert_array_equal(a, b)
    for exchange in (first, second, third):
        exchange.close()


@SEVERAL
def test_an_exchange_that_starts_anew_begins_synchronously(comm, runtime):
    graph, owner = awkward("random", comm.size)
    local = build_local(comm, cut(graph, owner, comm.rank, comm.size), True)
    backend = ReferenceBackend(np.float32)
    exchange = exchange_of(runtime, backend, PartitionedMatrices(backend, local, "symmetric"),
                           "forward", 3, Policy(make_codec("fp32"), Schedule(1), staleness=1))
    exchange.start_anew()
    for epoch in (7, 8):
        exchange.start(sent_rows(local, "forward", epoch, comm.rank, 3), epoch)
        found = exchange.finish()
        for route in exchange.routes:
            np.testing.assert_array_equal(found[route.receive_slice],
                                          values(route.incoming.host_ids, 7, route.peer, 3))
    exchange.close()


@SEVERAL
def test_messages_larger_than_a_window_arrive_whole(comm, runtime, monkeypatch):
    """Small pieces and a small window, several exchanges in flight: everything is held back at some
    time."""
    from hpcgcn.mpi import progress
    monkeypatch.setattr(progress, "PIECE_BYTES", 64)
    monkeypatch.setattr(progress, "MOST_PIECES", 1000)
    monkeypatch.setattr(progress, "LEAST_WINDOW", 100)
    runtime.engine.window = 128
    graph, owner = awkward("random", comm.size, n_nodes=60, n_edges=300)
    local = build_local(comm, cut(graph, owner, comm.rank, comm.size), True)
    backend = Guarded()
    cut_graph = PartitionedMatrices(backend, local, "symmetric")
    modes = [{"staleness": 1}, {}, {"staleness": 1, "refresh_every": 2}, {}]
    policies = [Policy(make_codec("fp32"), Schedule(1), **mode) for mode in modes]
    exchanges = [exchange_of(runtime, backend, cut_graph, direction, 8 + k, policy)
                 for k, (policy, direction) in enumerate(zip(policies,
                                                             ["forward", "backward"] * 2))]
    expected = [[Expected(e.policy, route, route.peer, e.width) for route in e.routes]
                for e in exchanges]
    for epoch in range(5):
        for exchange, direction in zip(exchanges, ["forward", "backward"] * 2):
            exchange.start(sent_rows(local, direction, epoch, comm.rank, exchange.width), epoch)
        runtime.sum_in_place(np.ones(5))
        for exchange, peers in zip(exchanges, expected):
            found = exchange.finish()
            for route, peer in zip(exchange.routes, peers):
                np.testing.assert_allclose(found[route.receive_slice], peer.used(epoch), rtol=1e-6)
    for exchange in exchanges:
        exchange.close()
    backend.check()
