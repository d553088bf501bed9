"""NCCL's point-to-point calls over MPI, in the order of a stream, under CuPy's names.

A group runs when its stream gets there: all its messages are posted together, then waited for. As
with NCCL, a rank that does not reach the matching call leaves the other one waiting.
"""

from __future__ import annotations

import ctypes

import numpy as np

from . import streams

NCCL_UINT8 = 1
available = True
_group: list[tuple] | None = None


def get_version() -> int:
    return 22703                                 # 2.27.3


def get_unique_id() -> bytes:
    return np.random.default_rng().bytes(128)


def groupStart():
    global _group
    if _group is not None:
        raise RuntimeError("groups of NCCL calls are not nested here")
    _group = []


def groupEnd():
    global _group
    if _group is None:
        raise RuntimeError("groupEnd without groupStart")
    calls, _group = _group, None
    by_stream = {call[-1] for call in calls}
    if len(by_stream) > 1:
        raise RuntimeError("a group of NCCL calls in several streams")
    for stream in by_stream:
        streams.enqueue(lambda: _run(calls), streams.Stream._with_ptr(stream))


def _run(calls):
    requests = []
    for communicator, kind, memory, peer, _ in calls:
        method = communicator.Isend if kind == "send" else communicator.Irecv
        requests.append(method(memory, peer, 0))
    for request in requests:
        request.Wait()


class NcclCommunicator:
    """Over a duplicate of MPI's world, so that nobody else's messages are taken for its own."""

    def __init__(self, ndev: int, commId: bytes, rank: int):
        from mpi4py import MPI
        world = MPI.COMM_WORLD if ndev == MPI.COMM_WORLD.size else MPI.COMM_SELF
        if (ndev, rank) != (world.size, world.rank) or len(commId) != 128:
            raise ValueError(f"rank {rank} of {ndev} with an id of {len(commId)} bytes")
        self._comm = world.Dup()

    def send(self, sendbuf: int, count: int, datatype: int, peer: int, stream: int):
        self._add("send", sendbuf, count, datatype, peer, stream)

    def recv(self, recvbuf: int, count: int, datatype: int, peer: int, stream: int):
        self._add("recv", recvbuf, count, datatype, peer, stream)

    def _add(self, kind, address, count, datatype, peer, stream):
        from . import arrays
        if datatype != NCCL_UINT8 or _group is None:
            raise ValueError("the stand-in moves bytes, in groups")
        arrays.POOL.holding(address, count)
        memory = np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(address))
        _group.append((self._comm, kind, memory, peer, stream))
