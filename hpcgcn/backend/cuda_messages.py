"""Messages of a device: buffers, and the events that order kernels, copies and MPI.

Kernels run on the stream `compute`; copies between the device and pinned host memory, which MPI
reads and writes, run on `communication`, so that they pass by kernels already queued. Events order
the two, in both directions:

    before_send      kernels that wrote the message  ->  copy to the host  ->  MPI reads
    before_receive   copy of the last message to the device is over  ->  MPI writes
    after_receive    kernels that read the last message  ->  copy to the device  ->  later kernels

With CUDA-aware MPI there is no copy, and the host waits for the kernels instead.
"""

from __future__ import annotations

import sys

import numpy as np

from hpcgcn.backend.base import Message


class CudaMessage(Message):
    """A message in device memory, staged through pinned memory or (CUDA-aware) sent from there."""

    def __init__(self, cupy, nbytes: int, staged: bool, array):
        events = (cupy.cuda.Event(disable_timing=True) for _ in range(3))
        self.written, self.free, self.arrived = events
        self.staged = staged
        self.receiving = False               # between before_receive and after_receive
        pinned = None
        if staged:
            pinned = np.frombuffer(cupy.cuda.alloc_pinned_memory(max(nbytes, 1)), np.uint8, nbytes)
        super().__init__(array, pinned)

    def __del__(self):
        # Neither memory may go to someone else while the last copy between them is still to come.
        if not sys.is_finalizing():
            self.arrived.synchronize()

    @property
    def address(self) -> int:
        """Of the pinned memory."""
        return self.mpi.ctypes.data

    def before_send(self, compute, communication):
        """Returns when MPI may read `mpi`."""
        self.written.record(compute)
        if not self.staged:
            self.written.synchronize()
        elif len(self.array):
            communication.wait_event(self.written)
            self.array.data.copy_to_host_async(self.address, len(self.array), communication)
            communication.synchronize()

    def before_receive(self, compute):
        """Returns when MPI may write `mpi`."""
        self.receiving = True
        self.free.record(compute)
        if not self.staged:
            self.free.synchronize()
        else:
            self.arrived.synchronize()

    def after_receive(self, compute, communication):
        """Queues the copy to `array`, if there is one, ahead of later kernels."""
        if not self.receiving:
            raise RuntimeError("after_receive without before_receive: MPI may have overwritten "
                               "what a copy was reading")
        self.receiving = False
        if self.staged and len(self.array):
            communication.wait_event(self.free)
            self.array.data.copy_from_host_async(self.address, len(self.array), communication)
            self.arrived.record(communication)
            compute.wait_event(self.arrived)
