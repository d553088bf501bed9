"""Arrays in pieces: every byte arrives, whatever the sizes of arrays and pieces.

By hand, with two ranks and about 14 GiB of memory, arrays above 2 GiB in each of the ways:

    mpiexec -n 2 python tests/communication/test_mpi_large.py
"""

import dataclasses

import numpy as np
import pytest

from hpcgcn.mpi import large
from hpcgcn.mpi.world import on_root

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(60)]

SHAPES = [(0,), (1,), (7,), (64,), (5, 3), (0, 4), (13, 2, 2), (257,)]
DTYPES = [np.uint8, np.int32, np.float64]


@pytest.fixture(params=[1, 7, 64, 1 << 28], autouse=True)
def piece_bytes(request, monkeypatch):
    monkeypatch.setattr(large, "PIECE_BYTES", request.param)
    return request.param


def filled(shape, dtype, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 200, shape).astype(dtype)


def test_pieces_cover_an_array_and_are_bounded(piece_bytes):
    for shape in SHAPES:
        for dtype in DTYPES:
            array = filled(shape, dtype, 1)
            found = large.pieces(array)
            assert b"".join(piece.tobytes() for piece in found) == array.tobytes()
            assert all(0 < len(piece) <= piece_bytes for piece in found)


def test_what_cannot_be_sent_as_bytes_is_refused():
    for array in (np.array([{}]), np.zeros((4, 4))[:, 1]):
        with pytest.raises(ValueError, match="contiguous arrays of numbers"):
            large.as_bytes(array)


def test_exchange_between_all_ranks(comm):
    """Each rank sends every rank, itself too, an array of a size of its own."""
    n = {(a, b): (a * 5 + b * 3) % 11 for a in range(comm.size) for b in range(comm.size)}
    sends = [(filled((n[comm.rank, peer], 3), np.float64, comm.rank * 10 + peer), peer)
             for peer in range(comm.size)]
    received = [np.full((n[peer, comm.rank] + 1, 3), -1.0) for peer in range(comm.size)]
    large.exchange(comm, [(array[:-1], peer) for peer, array in enumerate(received)], sends)
    for peer, array in enumerate(received):
        expected = filled((n[peer, comm.rank], 3), np.float64, peer * 10 + comm.rank)
        np.testing.assert_array_equal(array[:-1], expected)
        assert (array[-1] == -1).all(), "written past the end"


@pytest.mark.parametrize("shape", SHAPES)
def test_bcast(comm, shape):
    for root in range(comm.size):
        array = filled(shape, np.int32, root) if comm.rank == root else np.full(shape, -1, np.int32)
        large.bcast(comm, array, root)
        np.testing.assert_array_equal(array, filled(shape, np.int32, root))


@dataclasses.dataclass
class Found:
    """As `on_root` gives it to all: arrays within an object."""

    order: np.ndarray
    chunks: list
    name: str


@pytest.mark.parametrize("shape", SHAPES)
def test_an_object_with_arrays_is_the_same_on_all_ranks(comm, shape):
    chunks, last = [filled(shape, np.float32, 4).T, np.arange(30)[::3]], comm.size - 1
    made = Found(filled(shape, np.int64, 3), chunks, "text" * 50)
    found = large.bcast_object(comm, made if comm.rank == last else None, root=last)
    assert found.name == made.name
    for mine, expected in zip((found.order, *found.chunks), (made.order, *made.chunks)):
        assert mine.dtype == expected.dtype
        np.testing.assert_array_equal(mine, expected)
        mine += 1                                        # each rank may change its own


@pytest.mark.parametrize("thing", [None, 5, "", {"a": [1, None]}, b"bytes" * 1000])
def test_results_of_the_root_are_for_all(comm, thing):
    assert on_root(comm, lambda: thing) == thing


def test_allgather_of_arrays_of_all_lengths(comm):
    n = comm.size
    for lengths in ([3] * n, [0] * n, [5 * rank for rank in range(n)], [40] + [0] * (n - 1)):
        found = large.allgather(comm, filled((lengths[comm.rank], 2), np.int64, comm.rank))
        assert len(found) == comm.size
        for rank, array in enumerate(found):
            np.testing.assert_array_equal(array, filled((lengths[rank], 2), np.int64, rank))


@pytest.mark.parametrize("width", [(), (3,), (0,)])
def test_gathered_rows_arrive_in_blocks_rank_by_rank(comm, width, piece_bytes):
    n_rows = [(3 + 4 * rank) * (rank != 1) for rank in range(comm.size)]          # rank 1 has none
    ids = filled((n_rows[comm.rank],), np.int64, comm.rank)
    rows = filled((n_rows[comm.rank], *width), np.float32, 50 + comm.rank)
    found = []
    large.gather_rows(comm, (ids, rows), lambda *block: found.append(block))
    if comm.rank == 0:
        blocks = found[1:]                               # the first is its own, as it is
        bound = max(piece_bytes, 8 + 4 * 3)
        assert all(sum(part.nbytes for part in block) <= bound for block in blocks)
        for part, (shape, dtype, seed) in enumerate((((), np.int64, 0), (width, np.float32, 50))):
            expected = [filled((n, *shape), dtype, seed + rank) for rank, n in enumerate(n_rows)]
            gathered = np.concatenate([block[part] for block in found])
            np.testing.assert_array_equal(gathered, np.concatenate(expected))
    else:
        assert not found


def above_two_gib(comm):
    """By hand: one array above 2 GiB in each of the ways."""
    n = (1 << 31) + 12345
    mine = np.resize(np.arange(256, dtype=np.uint8), n) if comm.rank == 0 else np.zeros(n, np.uint8)

    def check(array, what):
        assert len(array) == n and array[-1] == (n - 1) % 256 and array[(1 << 31) + 77] == 77, what
        expected = int((np.arange(0, n, 4099) % 256).sum())
        assert int(array[::4099].sum(dtype=np.int64)) == expected, what
        comm.Barrier()
        print(f"rank {comm.rank}: {what}: {n} bytes are right", flush=True)

    large.exchange(comm, [(mine, 0)] if comm.rank else [], [] if comm.rank else [(mine, 1)])
    check(mine, "exchange")
    mine[:] = mine if comm.rank == 0 else 0
    large.bcast(comm, mine)
    check(mine, "bcast")
    check(on_root(comm, lambda: {"order": mine})["order"], "object")
    if comm.rank:
        mine[:] = np.resize(np.arange(256, dtype=np.uint8), n)
    gathered = np.zeros(n, np.uint8) if comm.rank == 0 else None
    rows = mine if comm.rank else mine[:0]
    at = [0]

    def put(block):
        gathered[at[0]:at[0] + len(block)] = block
        at[0] += len(block)

    large.gather_rows(comm, (rows,), put)
    check(mine if comm.rank else gathered, "gather_rows")
    gathered = None
    found = large.allgather(comm, mine if comm.rank == 0 else mine[:0])
    check(found[0], "allgather")


if __name__ == "__main__":
    from mpi4py import MPI
    above_two_gib(MPI.COMM_WORLD)
