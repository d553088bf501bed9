"""Arrays of any size between ranks: what grows with the graph passes through here.

An MPI call counts in 32 bits, and a pickled collective sends its object as one array of bytes: both
end at 2 GiB. Here everything is sent in pieces of bounded size, as bytes, and arrays within objects
are sent from where they are. All calls return when the data is there; they are for setting up and
for results, not for epochs. Messages between two ranks keep their order, so one tag serves all.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable

import numpy as np

PIECE_BYTES = 1 << 28                # of one MPI call
TAG = 0                              # runtimes allot those from 1 on


def as_bytes(array: np.ndarray) -> np.ndarray:
    """The memory of a C-contiguous array, (nbytes,) uint8."""
    if array.dtype.hasobject or not array.flags.c_contiguous:
        raise ValueError("only contiguous arrays of numbers can be sent as bytes")
    return array.reshape(-1).view(np.uint8)


def pieces(array: np.ndarray) -> list[np.ndarray]:
    """The memory of an array in pieces; none if it is empty."""
    data = as_bytes(array)
    return [data[at:at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)]


def exchange(comm, receives: list[tuple[np.ndarray, int]], sends: list[tuple[np.ndarray, int]]):
    """Point to point: (array, peer) of each message, of a size that both ranks know."""
    requests = [comm.Irecv(piece, peer, TAG) for array, peer in receives for piece in pieces(array)]
    requests += [comm.Isend(piece, peer, TAG) for array, peer in sends for piece in pieces(array)]
    for request in requests:
        request.Wait()


def bcast(comm, array: np.ndarray, root: int = 0):
    """array = that of the root; of the same size on all ranks. Collective."""
    for piece in pieces(array):
        comm.Bcast(piece, root)


def bcast_object(comm, thing, root: int = 0):
    """An object of the root for all ranks; arrays in it are sent without a copy. Collective."""
    if comm.size == 1:
        return thing
    parts = []
    if comm.rank == root:
        buffers: list[pickle.PickleBuffer] = []
        pickled = pickle.dumps(thing, protocol=5, buffer_callback=buffers.append)
        parts = [np.frombuffer(pickled, np.uint8)]
        parts += [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]
    sizes = comm.bcast([len(part) for part in parts], root)
    if comm.rank != root:
        parts = [np.empty(size, np.uint8) for size in sizes]
    for part in parts:
        bcast(comm, part, root)
    return thing if comm.rank == root else pickle.loads(parts[0].data, buffers=parts[1:])


def allgather(comm, array: np.ndarray) -> list[np.ndarray]:
    """The arrays of all ranks, of any shapes, in the order of ranks. Collective."""
    array = np.ascontiguousarray(array)
    kinds = comm.allgather((array.shape, array.dtype))
    everyone = [np.empty(shape, dtype) for shape, dtype in kinds]
    mine, targets = as_bytes(array), [as_bytes(target) for target in everyone]
    share = max(PIECE_BYTES // comm.size, 1)             # of each rank, in one call
    for at in range(0, max(len(target) for target in targets), share):
        shares = [target[at:at + share] for target in targets]
        received = np.empty(sum(len(part) for part in shares), np.uint8)
        comm.Allgatherv(mine[at:at + share], (received, [len(part) for part in shares]))
        stops = np.cumsum([len(part) for part in shares])
        for part, stop in zip(shares, stops):
            part[:] = received[stop - len(part):stop]
    return everyone


def gather_rows(comm, arrays: tuple[np.ndarray, ...], consume: Callable):
    """Rank 0 calls consume(*rows) for blocks of rows of every rank's arrays, rank after rank.

    The arrays of one rank have equally many rows. Rank 0 holds one block of others' rows at a time.
    Collective.
    """
    if comm.rank == 0:
        consume(*arrays)
        for rank in range(1, comm.size):
            n_rows, kinds = comm.recv(source=rank, tag=TAG)
            for start, stop in _row_blocks(n_rows, kinds):
                block = [np.empty((stop - start, *shape), dtype) for shape, dtype in kinds]
                exchange(comm, [(rows, rank) for rows in block], [])
                consume(*block)
        return
    kinds = [(array.shape[1:], array.dtype) for array in arrays]
    comm.send((len(arrays[0]), kinds), dest=0, tag=TAG)
    for start, stop in _row_blocks(len(arrays[0]), kinds):
        exchange(comm, [], [(np.ascontiguousarray(array[start:stop]), 0) for array in arrays])


def _row_blocks(n_rows: int, kinds: list[tuple[tuple, np.dtype]]) -> list[tuple[int, int]]:
    """Ranges of rows of about one piece; kinds: (shape of a row, dtype) of each array."""
    row_bytes = sum(dtype.itemsize * int(np.prod(shape)) for shape, dtype in kinds)
    size = max(PIECE_BYTES // max(row_bytes, 1), 1)
    return [(at, min(at + size, n_rows)) for at in range(0, n_rows, size)]


def swap(comm, told: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
    """Arrays of whole numbers (int64) for some ranks; what all others tell this one, by rank, empty
    arrays of those that are told something. Collective."""
    sizes, sizes_in = np.zeros(comm.size, np.int64), np.empty(comm.size, np.int64)
    for rank, array in told.items():
        sizes[rank] = len(array)
    comm.Alltoall(sizes, sizes_in)
    arrived = {rank: np.empty(sizes_in[rank], np.int64) for rank in range(comm.size)
               if sizes_in[rank] or rank in told}
    exchange(comm, [(array, rank) for rank, array in arrived.items()],
             [(array, rank) for rank, array in told.items()])
    return arrived
