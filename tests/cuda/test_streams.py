"""Where communication meets the device: whatever two streams may do to one another, MPI and kernels
see the right data.

Every schedule is legal for a GPU: `lazy` does nothing before it must; `stream0` and `stream1` let
the compute or the communication stream run ahead as far as its events allow.
"""

import gc

import numpy as np
import pytest
from mpi4py import MPI

from hpcgcn.backend.cuda import CudaBackend
from hpcgcn.backend.cuda_device import check_cuda_aware
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
    for seed in range(3):  # the buffer is reused: yesterday's contents must not travel
        values = rows(seed)
        backend.gather_rows(backend.from_host(values), index, as_rows(message))
        backend.before_send(message)
        assert (what_mpi_reads(message) == values[::-1]).all()


def test_kernels_read_what_mpi_received(backend):
    message = backend.message(NBYTES)
    index = backend.from_host(np.arange(ROWS, dtype=np.int32))
    results = []
    for seed in range(3):  # nothing waits between the rounds but the hooks
        backend.before_receive(message)
        mpi_writes(message, rows(seed))
        backend.after_receive(message)
        out = backend.zeros((ROWS, WIDTH))
        backend.scatter_add_rows(as_rows(message), index, out)
        results.append(out)
    for seed, out in enumerate(results):
        assert (backend.to_host(out) == rows(seed)).all()


def test_a_message_may_be_dropped_while_its_copy_is_to_come(backend):
    message = backend.message(NBYTES)
    backend.before_receive(message)
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


def test_a_receive_must_be_announced(backend):
    message = backend.message(NBYTES)
    with pytest.raises(RuntimeError, match="before_receive"):
        backend.after_receive(message)
    backend.before_receive(message)
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
    backend.before_send(message)
    backend.before_receive(message)
    backend.after_receive(message)


# -- the self-test of CUDA-aware MPI ---------------------------------------------------------------

def test_the_self_test_passes_where_mpi_takes_device_memory(stand_in, schedule, monkeypatch, capfd):
    monkeypatch.setenv("HPCGCN_CUDA_STAND_IN_MPI", "aware")
    check_cuda_aware(MPI.COMM_SELF, stand_in, stand_in.cuda.Stream(non_blocking=True).use())


def test_the_self_test_fails_clearly_where_mpi_does_not(stand_in, capfd):
    with pytest.raises(BackendError, match="--mpi staged"):
        check_cuda_aware(MPI.COMM_SELF, stand_in, stand_in.cuda.Stream(non_blocking=True).use())


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
