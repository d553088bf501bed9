"""Messages of a device: buffers, and the events that order kernels, copies and MPI.

Kernels run on the stream `compute`; copies between the device and pinned host memory, which MPI
reads and writes, run on `communication`, so that they pass by kernels already queued. Events order
the two, in both directions. The host queues and goes on; MPI gets a message when its event is done,
which the progress engine asks for.

    before_send      kernels that wrote the message  ->  copy to the host  ->  sendable
    before_receive   copy of the last message to the device is over  ->  receivable
    after_receive    kernels that read the last message  ->  copy to the device  ->  later kernels

With CUDA-aware MPI there is no copy: a message is sendable when the kernels that wrote it are done,
and receivable when those that read the last one are.
"""

from __future__ import annotations

import sys

import numpy as np

from hpcgcn.backend.base import Message


class CudaMessage(Message):
    """A message in device memory, staged through pinned memory or (CUDA-aware) sent from there."""

    def __init__(self, cupy, nbytes: int, staged: bool, array):
        events = (cupy.cuda.Event(disable_timing=True) for _ in range(4))
        self.written, self.copied, self.free, self.arrived = events
        self.staged = staged
        self.receiving = False               # between before_receive and after_receive
        self.n_received = 0
        pinned = None
        if staged:
            pinned = np.frombuffer(cupy.cuda.alloc_pinned_memory(max(nbytes, 1)), np.uint8, nbytes)
        super().__init__(array, pinned)

    def __del__(self):
        # Neither memory may go to someone else while a copy between them is still to come.
        if not sys.is_finalizing():
            self.copied.synchronize()
            self.arrived.synchronize()

    @property
    def address(self) -> int:
        """Of the pinned memory."""
        return self.mpi.ctypes.data

    def before_send(self, nbytes: int, compute, communication):
        """Queue what makes the first nbytes of `mpi` those of `array`; see `sendable`."""
        self.written.record(compute)
        if self.staged and nbytes:
            communication.wait_event(self.written)
            self.array.data.copy_to_host_async(self.address, nbytes, communication)
            self.copied.record(communication)

    def sendable(self) -> bool:
        event = self.copied if self.staged else self.written
        return event.done

    def before_receive(self, nbytes: int, compute):
        """The next message has nbytes; see `receivable`."""
        self.receiving, self.n_received = True, nbytes
        self.free.record(compute)

    def receivable(self) -> bool:
        event = self.arrived if self.staged else self.free
        return event.done

    def after_receive(self, compute, communication):
        """Queues the copy to `array`, if there is one, ahead of later kernels."""
        if not self.receiving:
            raise RuntimeError("after_receive without before_receive: MPI may have overwritten "
                               "what a copy was reading")
        self.receiving = False
        if self.staged and self.n_received:
            communication.wait_event(self.free)
            self.array.data.copy_from_host_async(self.address, self.n_received, communication)
            self.arrived.record(communication)
            compute.wait_event(self.arrived)
