"""NCCL as a transport: messages go from device to device in the order of a stream.

    start   the communication stream waits for the kernels that wrote what is sent and read what is
            overwritten, then sends and receives all messages of an exchange as one group
    wait    later kernels wait for the group; the host does not

NCCL matches messages by their order, not by tags. So all ranks must start the same exchanges in the
same order, which strategies without stages do.
"""

from __future__ import annotations

from hpcgcn.errors import BackendError


class Nccl:
    """This rank's end of a communicator of NCCL. Making one is collective."""

    def __init__(self, cupy, comm, job_rank: int, compute, communication):
        """comm: of MPI, to agree on an id; its ranks are NCCL's."""
        if comm.rank != job_rank:
            raise BackendError("--transport nccl needs backend cuda on all ranks")
        self.calls = load_nccl(cupy)
        self.compute, self.communication, self._cupy = compute, communication, cupy
        identity = self.calls.get_unique_id() if comm.rank == 0 else None
        self.communicator = self.calls.NcclCommunicator(comm.size, comm.bcast(identity), comm.rank)

    def transfer(self, messages: list, sizes: tuple, peers: list[int]) -> NcclTransfer:
        """messages: (outgoing, incoming) per peer; sizes: their bytes."""
        return NcclTransfer(self, self._cupy.cuda.Event(disable_timing=True),
                            [(*pair, *size, peer)
                             for pair, size, peer in zip(messages, sizes, peers)])


class NcclTransfer:
    """Messages from and to all peers of an exchange, started and waited for as one."""

    def __init__(self, nccl: Nccl, moved, messages: list):
        self._nccl, self._moved, self._messages = nccl, moved, messages

    def start(self):
        """Queue all messages behind the kernels that they depend on."""
        nccl, stream = self._nccl, self._nccl.communication
        for outgoing, incoming, *_ in self._messages:
            stream.wait_event(outgoing.written)
            stream.wait_event(incoming.free)
        nccl.calls.groupStart()
        for outgoing, incoming, n_sent, n_received, peer in self._messages:
            if n_sent:
                nccl.communicator.send(outgoing.array.data.ptr, n_sent, nccl.calls.NCCL_UINT8, peer,
                                       stream.ptr)
            if n_received:
                nccl.communicator.recv(incoming.array.data.ptr, n_received, nccl.calls.NCCL_UINT8,
                                       peer, stream.ptr)
        nccl.calls.groupEnd()
        self._moved.record(stream)

    def wait(self):
        """Kernels from now on find the messages, and may overwrite what was sent."""
        self._nccl.compute.wait_event(self._moved)

    def free(self):
        """Return when nothing refers to the messages any more."""
        self._moved.synchronize()


def load_nccl(cupy):
    """CuPy's bindings, or those of the stand-in; a BackendError if the library is not there."""
    if hasattr(cupy, "nccl"):
        return cupy.nccl
    from cupy.cuda import nccl
    if not nccl.available:
        raise BackendError("--transport nccl: CuPy finds no NCCL: pip install nvidia-nccl-cu12 (or "
                           "-cu13), load the site's module, or leave the default --transport mpi")
    return nccl
