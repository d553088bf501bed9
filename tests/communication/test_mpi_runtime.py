"""The runtime of a run: tags, progress and heartbeat belong to it and to nobody else."""

import numpy as np
import pytest
from graphs import random_graph

from hpcgcn.config import make_config
from hpcgcn.errors import ConfigError
from hpcgcn.mpi.progress import Transfer
from hpcgcn.mpi.runtime import Runtime
from hpcgcn.train.run import train_model

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

N_BYTES = 100_000


class Ring:
    """A message to the next rank of a runtime, and one from the rank before."""

    def __init__(self, runtime, mark: int):
        self.mark, n = mark, runtime.size
        self.sent = np.full(N_BYTES, 10 * runtime.rank + mark, np.uint8)
        self.received = np.zeros(N_BYTES, np.uint8)
        to, self.source = (runtime.rank + 1) % n, (runtime.rank - 1) % n
        tags = {peer: runtime.tag(peer) for peer in {to, self.source}}
        self.transfer = Transfer(runtime, [(self.received, self.source, tags[self.source])],
                                 [(self.sent, to, tags[to])])

    def check(self):
        assert (self.received == 10 * self.source + self.mark).all()


def test_no_two_exchanges_of_a_pair_have_the_same_tag(comm, runtime):
    tags = [runtime.tag(peer) for _ in range(1000) for peer in range(comm.size)]
    for peer in range(comm.size):
        assert len(set(tags[peer::comm.size])) == 1000
    assert min(tags) > 0, "0 is the tag of messages that are awaited at once"


def test_a_tag_depends_on_the_two_ranks_alone(comm, runtime):
    """Ranks of a pipeline have exchanges that others have not: here the last, with the first."""
    last = comm.size - 1
    mine = {peer: runtime.tag(peer) for peer in range(comm.size)}
    if comm.rank in (0, last) and last > 0:
        mine[last - comm.rank] = runtime.tag(last - comm.rank)
    theirs = comm.alltoall([mine[peer] for peer in range(comm.size)])
    assert [mine[peer] for peer in range(comm.size)] == theirs


def test_more_tags_than_mpi_has_are_refused(runtime, monkeypatch):
    monkeypatch.setattr("hpcgcn.mpi.runtime.largest_tag", lambda: 3)
    assert [runtime.tag(0) for _ in range(3)] == [1, 2, 3]
    with pytest.raises(ConfigError, match="more exchanges .* than this MPI library has tags"):
        runtime.tag(0)


def test_two_runtimes_of_one_communicator_do_not_meet(comm):
    """Messages of both are in flight at once, with the same tags, and awaited in another order."""
    with Runtime(comm) as one, Runtime(comm) as other:
        rings = [Ring(one, 1), Ring(other, 2)]
        for ring in rings:
            ring.transfer.start()
        for ring in rings[::-1]:
            ring.transfer.wait()
            ring.check()
        assert one.heartbeat.count > 0 and one.heartbeat is not other.heartbeat


def test_parts_of_a_runtime_share_progress_and_heartbeat(comm, runtime):
    """Who waits for a message of all ranks moves those of its part along."""
    part = runtime.split(comm.rank % 2)
    assert part.size == sum(rank % 2 == comm.rank % 2 for rank in range(comm.size))
    assert part.engine is runtime.engine and part.heartbeat is runtime.heartbeat
    inner, outer = Ring(part, 3), Ring(runtime, 4)
    inner.transfer.start()
    outer.transfer.start()
    while inner.transfer.n_open:
        runtime.progress()
    outer.transfer.wait()
    inner.check(), outer.check()


def test_close_awaits_what_is_in_flight_and_frees_all(comm):
    from mpi4py import MPI
    runtime = Runtime(comm)
    part = runtime.split(0)
    ring = Ring(part, 5)
    ring.transfer.start()
    runtime.close()
    ring.check()
    pieces = ring.transfer.sends + ring.transfer.incoming[0].pieces
    assert pieces and all(piece.request == MPI.REQUEST_NULL for piece in pieces)
    assert runtime.comm == part.comm == MPI.COMM_NULL and not runtime.engine.transfers
    runtime.close()                                       # a second time does nothing


def test_the_heartbeat_counts_blocks_and_messages(comm, runtime):
    runtime.progress()
    assert runtime.heartbeat.count == 1
    ring = Ring(runtime, 6)
    ring.transfer.start()
    ring.transfer.wait()
    assert runtime.heartbeat.count > 1


@pytest.mark.parametrize("method", ["pipegcn", "gnnpipe-hybrid", "mixgcn"])
def test_runs_in_one_process_one_after_the_other_and_on_parts_of_the_ranks(comm, tmp_path, method):
    """What a run leaves behind changes no later one; halves of a job train for themselves."""
    from hpcgcn.graph.store import write_graph
    folder = comm.bcast(str(tmp_path))
    path = f"{folder}/graph-{comm.rank}.h5"
    write_graph(path, random_graph())

    def final_loss(on, name):
        settings = {"epochs": 3, "layers": 3, "quiet": True, "output": folder, "name": name,
                    "method": method}
        if "gnnpipe" in method:
            settings["chunks"] = 4 * on.size
        train_model(on.bcast(path), make_config(settings), on)
        return open(f"{folder}/{name}/metrics.csv").read().splitlines()[-1].split(",")[1]

    first = final_loss(comm, "first")
    part = comm.Split(comm.rank % 2)
    alone = final_loss(part, f"part-{comm.rank % 2}")
    part.Free()
    assert final_loss(comm, "second") == first
    if comm.size == 2 or comm.size == 4:
        assert len(set(comm.allgather(alone))) == 1, "the same training on each half"
