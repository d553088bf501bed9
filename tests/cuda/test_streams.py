"""Where communication meets the device: whatever two streams may do to one another, MPI and kernels
see the right data.

Every schedule is legal for a GPU: `lazy` does nothing before it must; `stream0` and `stream1` let
the compute or the communication stream run ahead as far as its events allow.
"""

import gc
import time
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

from hpcgcn.backend import cuda_aware
from hpcgcn.backend.cuda import CudaBackend
from hpcgcn.backend.cuda_uploads import Uploads
from hpcgcn.errors import BackendError

ROWS, WIDTH = 6, 8
NBYTES = ROWS * WIDTH * 4


@pytest.fixture(params=["staged", "cuda-aware", "gpu"])
def backend(stand_in, schedule, request, monkeypatch):
    """The backend in each mode of communication, under each schedule; and on a real device, which
    has its own."""
    if request.param == "gpu":
        monkeypatch.setenv("HPCGCN_CUDA_STAND_IN", "0")
        try:
            return CudaBackend()
        except BackendError as error:
            pytest.skip(str(error))
    if request.param == "cuda-aware":
        monkeypatch.setenv("HPCGCN_CUDA_STAND_IN_MPI", "aware")
    return CudaBackend(mpi=request.param)


def rows(seed):
    return np.random.default_rng(seed).standard_normal((ROWS, WIDTH)).astype(np.float32)


def as_rows(message):
    return message.array.view(np.float32).reshape(ROWS, WIDTH)


def until(ready):
    """Ask as the progress engine does; a device gets there by itself."""
    limit = time.monotonic() + 60
    while not ready():
        assert time.monotonic() < limit


def what_mpi_reads(message) -> np.ndarray:
    """The bytes that MPI would send now: copied by MPI itself, from host or device memory alike."""
    copy = np.empty((ROWS, WIDTH), np.float32)
    MPI.COMM_SELF.Sendrecv(message.mpi, 0, 0, copy, 0, 0)
    return copy


def mpi_writes(message, values):
    """What a receive does."""
    MPI.COMM_SELF.Sendrecv(values, 0, 0, message.mpi, 0, 0)


def test_mpi_sends_what_the_last_kernel_wrote(backend):
    message = backend.message(NBYTES)
    index = backend.from_host(np.arange(ROWS, dtype=np.int32)[::-1].copy())
    for seed in range(3):  # the buffer is reused: earlier contents must not be sent
        values = rows(seed)
        backend.gather_rows(backend.from_host(values), index, as_rows(message))
        backend.before_send(message, NBYTES)
        until(message.sendable)
        assert (what_mpi_reads(message) == values[::-1]).all()


def test_the_host_does_not_wait_for_a_message(backend, monkeypatch):
    """Neither hook runs or waits for anything: the device has all the time it wants."""
    message = backend.message(NBYTES)
    if not hasattr(message.array, "_view"):
        pytest.skip("a real device may be done at any time")
    monkeypatch.setenv("HPCGCN_CUDA_STAND_IN_SCHEDULE", "lazy")
    backend.synchronize()
    index = backend.from_host(np.arange(ROWS, dtype=np.int32))
    backend.gather_rows(backend.from_host(rows(0)), index, as_rows(message))
    backend.before_send(message, NBYTES)
    backend.before_receive(message, NBYTES)
    assert (message.array._view == 0).all()      # the kernel has not run, let alone the copy
    assert not message.sendable()


def test_only_the_message_is_copied(backend):
    message = backend.message(NBYTES)
    if not message.staged:
        pytest.skip("nothing is copied")
    backend.copy(rows(0), as_rows(message))
    backend.before_send(message, NBYTES // 2)
    until(message.sendable)
    sent = message.mpi.view(np.float32).reshape(ROWS, WIDTH)
    assert (sent[:ROWS // 2] == rows(0)[:ROWS // 2]).all() and (sent[ROWS // 2:] == 0).all()


def test_kernels_read_what_mpi_received(backend):
    message = backend.message(NBYTES)
    index = backend.from_host(np.arange(ROWS, dtype=np.int32))
    results = []
    for seed in range(3):  # nothing waits between the rounds but the hooks
        backend.before_receive(message, NBYTES)
        until(message.receivable)
        mpi_writes(message, rows(seed))
        backend.after_receive(message)
        out = backend.zeros((ROWS, WIDTH))
        backend.scatter_add_rows(as_rows(message), index, out)
        results.append(out)
    for seed, out in enumerate(results):
        assert (backend.to_host(out) == rows(seed)).all()


def test_a_message_may_be_dropped_while_its_copy_is_to_come(backend):
    message = backend.message(NBYTES)
    backend.before_receive(message, NBYTES)
    until(message.receivable)
    mpi_writes(message, rows(0))
    backend.after_receive(message)
    out = backend.zeros((ROWS, WIDTH))
    backend.convert(as_rows(message), out)
    mpi_memory = message.mpi
    del message
    gc.collect()
    if isinstance(mpi_memory, np.ndarray):
        mpi_memory[:] = 255                          # someone else has the pinned memory now
    assert (backend.to_host(out) == rows(0)).all()


def test_a_message_may_be_dropped_before_it_is_copied_out(backend):
    message = backend.message(NBYTES)
    backend.copy(rows(0), as_rows(message))
    backend.before_send(message, NBYTES)
    mpi_memory = message.mpi
    del message
    gc.collect()
    if isinstance(mpi_memory, np.ndarray):
        mpi_memory[:] = 7                            # someone else has the pinned memory now
        backend.synchronize()
        backend.communication.synchronize()
        assert (mpi_memory == 7).all()


def test_a_receive_must_be_announced(backend):
    message = backend.message(NBYTES)
    with pytest.raises(RuntimeError, match="before_receive"):
        backend.after_receive(message)
    backend.before_receive(message, NBYTES)
    backend.after_receive(message)
    with pytest.raises(RuntimeError, match="before_receive"):
        backend.after_receive(message)


def test_synchronize_waits_for_kernels(backend):
    x = backend.from_host(rows(0))
    backend.axpby(2.0, x, 0.0, None, x)
    backend.synchronize()
    if not hasattr(x, "_view"):
        pytest.skip("a real device does not show its memory without a copy")
    # looked at through the emulation, without a copy that waits
    assert (x._view == 2 * rows(0)).all()


def test_empty_messages_pass(backend):
    message = backend.message(0)
    backend.before_send(message, 0)
    backend.before_receive(message, 0)
    assert message.sendable() or message.sendable()
    backend.after_receive(message)


# -- uploads ---------------------------------------------------------------------------------------

def test_a_source_may_change_once_it_was_uploaded(backend, monkeypatch):
    monkeypatch.setattr("hpcgcn.backend.cuda_uploads.CHUNK_BYTES", 64)      # several turns
    first, second = rows(0), rows(1)
    there, filled = backend.from_host(first), backend.empty((ROWS, WIDTH))
    backend.copy(second, filled)
    first[:] = second[:] = 99
    assert (backend.to_host(there) == rows(0)).all() and (backend.to_host(filled) == rows(1)).all()


def test_an_array_goes_to_the_host_and_back(backend):
    """As the gradient does: read, changed there, written, and the next kernels see it."""
    array = backend.zeros((ROWS, WIDTH))
    host, scratch = backend.host_copy(array), backend.zeros((ROWS, WIDTH))
    for seed in range(3):
        backend.copy(rows(seed), array)
        seen = host.read()
        assert (seen == rows(seed)).all()
        seen *= 2
        host.write()
        backend.axpby(1.0, array, 1.0, scratch, scratch)
    assert (backend.to_host(scratch) == 2 * (rows(0) + rows(1) + rows(2))).all()


def test_a_host_copy_may_be_dropped_while_it_is_written(backend):
    array = backend.zeros((ROWS, WIDTH))
    host = backend.host_copy(array)
    host.read()[:] = 5
    host.write()
    del host
    gc.collect()
    assert (backend.to_host(array) == 5).all()


def test_asynchronous_copies_want_pinned_memory(stand_in):
    """Ordinary memory is an error when the copy is queued, pinned memory that is gone by then when
    it runs."""
    stream = stand_in.cuda.Stream(non_blocking=True).use()
    array, pageable = stand_in.zeros((8,), np.float32), np.zeros(8, np.float32)
    for copy in (array.data.copy_from_host_async, array.data.copy_to_host_async):
        with pytest.raises(ValueError, match="not pinned"):
            copy(pageable.ctypes.data, 32, stream)
    pinned = np.frombuffer(stand_in.cuda.alloc_pinned_memory(32), np.float32)
    with pytest.raises(ValueError, match="not pinned"):
        array.data.copy_from_host_async(pinned.ctypes.data, 36, stream)      # past its end
    array.data.copy_from_host_async(pinned.ctypes.data, 32, stream)
    del pinned
    with pytest.raises(RuntimeError, match="freed before the copy"):
        stream.synchronize()


def test_uploads_may_be_dropped_while_a_copy_is_to_come(stand_in, schedule):
    stream = stand_in.cuda.Stream(non_blocking=True).use()
    uploads, there = Uploads(stand_in), stand_in.empty((ROWS, WIDTH), np.float32)
    uploads.copy(rows(0), there, stream)
    pinned = uploads._buffers[0][0]
    del uploads
    gc.collect()
    pinned[:] = 99                                   # someone else has the pinned memory now
    assert (there.get() == rows(0)).all()


def test_the_stand_in_notices_a_source_that_was_freed(stand_in, monkeypatch):
    monkeypatch.setenv("HPCGCN_CUDA_STAND_IN_SCHEDULE", "lazy")
    stream = stand_in.cuda.Stream(non_blocking=True).use()
    array = stand_in.empty((4,), np.float32)
    array.set(np.ones(4, np.float32))
    with pytest.raises(RuntimeError, match="freed before the copy"):
        stream.synchronize()


# -- the self-test of CUDA-aware MPI ---------------------------------------------------------------

@pytest.fixture
def stream(stand_in):
    """A stream of the stand-in, in use."""
    return stand_in.cuda.Stream(non_blocking=True).use()


@pytest.mark.parametrize("only_if_announced", [False, True])
def test_the_self_test_passes_where_mpi_takes_device_memory(stand_in, stream, schedule, monkeypatch,
                                                            capfd, only_if_announced):
    monkeypatch.setenv("HPCGCN_CUDA_STAND_IN_MPI", "aware")
    assert cuda_aware.find_problem(MPI.COMM_SELF, stand_in, stream, only_if_announced) == ""


def test_the_self_test_tells_why_it_failed(stand_in, stream, monkeypatch, capfd):
    assert "without CUDA" in cuda_aware.find_problem(MPI.COMM_SELF, stand_in, stream, False)
    monkeypatch.setattr(cuda_aware, "announced", lambda: None)
    assert "failed" in cuda_aware.find_problem(MPI.COMM_SELF, stand_in, stream, False)
    assert "does not say" in cuda_aware.find_problem(MPI.COMM_SELF, stand_in, stream, True)


def test_the_self_test_looks_at_every_byte(stand_in, stream, monkeypatch, capfd):
    monkeypatch.setenv("HPCGCN_CUDA_STAND_IN_MPI", "aware")
    pattern = cuda_aware._pattern
    calls = []

    def wrong_the_second_time(source, target, size):
        calls.append(size)
        values = pattern(source, target, size)
        values[-1] += len(calls) > len(cuda_aware.SIZES)         # when it is compared
        return values
    monkeypatch.setattr(cuda_aware, "_pattern", wrong_the_second_time)
    assert "wrong contents" in cuda_aware.find_problem(MPI.COMM_SELF, stand_in, stream, False)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8, 100])
def test_peers_of_the_self_test_are_mutual(size):
    peers = [cuda_aware._peers(SimpleNamespace(rank=rank, size=size)) for rank in range(size)]
    assert all(rank in peers[peer] for rank in range(size) for peer in peers[rank])
    assert all(peers) and max(map(len, peers)) <= 14


def test_auto_takes_what_works(stand_in, monkeypatch, caplog):
    for aware, expected in (("", "staged"), ("aware", "cuda-aware")):
        monkeypatch.setenv("HPCGCN_CUDA_STAND_IN_MPI", aware)
        backend = CudaBackend(mpi="auto")
        backend.check_ranks(MPI.COMM_SELF, 0)
        assert backend.describe()["messages"] == expected
        assert backend.message(8).staged == (expected == "staged")


# -- the stand-in's streams ------------------------------------------------------------------------

def test_nothing_runs_before_it_must(stand_in):
    stream = stand_in.cuda.Stream(non_blocking=True).use()
    array = stand_in.zeros((4,), np.float32)
    assert np.isnan(array._view).all()
    stream.synchronize()
    assert (array._view == 0).all()


def test_an_event_orders_two_streams_and_no_event_does_not(stand_in):
    first, second = (stand_in.cuda.Stream(non_blocking=True) for _ in range(2))
    done = []
    event = stand_in.cuda.Event()
    stand_in.streams.enqueue(lambda: done.append("first"), first)
    event.record(first)
    stand_in.streams.enqueue(lambda: done.append("first, later"), first)
    stand_in.streams.enqueue(lambda: done.append("second, free"), second)
    second.wait_event(event)
    stand_in.streams.enqueue(lambda: done.append("second, ordered"), second)
    second.synchronize()
    assert done == ["second, free", "first", "second, ordered"]
    first.synchronize()
    assert done[-1] == "first, later"


def test_work_without_a_stream_is_refused(stand_in, monkeypatch):
    monkeypatch.setattr(stand_in.cuda.Stream, "_current", [])
    with pytest.raises(RuntimeError, match="no current stream"):
        stand_in.zeros((4,), np.float32)


@pytest.fixture
def over_nccl(stand_in, schedule):
    """The backend whose messages NCCL moves, on one rank that sends to itself."""
    backend = CudaBackend(transport="nccl")
    backend.check_ranks(MPI.COMM_SELF, 0)
    return backend


@pytest.mark.parametrize("first", ["send", "receive"])
def test_nccl_moves_what_kernels_wrote_to_kernels_that_read(over_nccl, first):
    """Whichever hook comes first, and is done before the other: each has its own event."""
    backend, order = over_nccl, np.arange(ROWS, dtype=np.int32)
    forward, backward = backend.from_host(order), backend.from_host(order[::-1].copy())
    outgoing, incoming = backend.message(NBYTES), backend.message(NBYTES)
    transfer = backend.transfer([(outgoing, incoming)], ((NBYTES, NBYTES),), [0])
    results = [backend.zeros((ROWS, WIDTH)) for _ in range(4)]

    def write(seed):
        backend.gather_rows(backend.from_host(rows(seed)), backward, as_rows(outgoing))
        backend.before_send(outgoing, NBYTES)

    def read(seed):
        backend.gather_rows(as_rows(incoming), forward, results[seed])
        backend.before_receive(incoming, NBYTES)

    for seed in range(4):
        one, other = (write, read) if first == "send" else (read, write)
        one(seed)
        backend.synchronize()
        other(seed)
        transfer.start()
        transfer.wait()
    expected = [np.zeros((ROWS, WIDTH)), *(rows(seed)[::-1] for seed in range(3))]
    for result, values in zip(results, expected):
        assert (backend.to_host(result) == values).all()
    transfer.free()


def test_nccl_is_done_with_messages_that_are_freed(over_nccl):
    outgoing, incoming = over_nccl.message(NBYTES), over_nccl.message(NBYTES)
    transfer = over_nccl.transfer([(outgoing, incoming)], ((NBYTES, NBYTES),), [0])
    over_nccl.copy(rows(0), as_rows(outgoing))
    over_nccl.before_send(outgoing, NBYTES)
    over_nccl.before_receive(incoming, NBYTES)
    transfer.start()
    transfer.free()
    assert (incoming.array._view.view(np.float32).reshape(ROWS, WIDTH) == rows(0)).all()
