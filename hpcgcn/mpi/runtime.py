"""What a run needs of MPI, made from its communicator: progress, the heartbeat, and tags.

Nothing of it is global: several runs in one process, one after the other or on communicators of
their own, do not know of each other.
"""

from __future__ import annotations

from collections import Counter

from hpcgcn.errors import ConfigError
from hpcgcn.mpi import large
from hpcgcn.mpi.progress import Heartbeat, ProgressEngine
from hpcgcn.trace.recorder import NullTrace

FIRST_TAG = large.TAG + 1


class Runtime:
    """A run's communicator, a duplicate of the one given, with the state that belongs to it.

    Runtimes of parts of its ranks (`split`) have communicators and tags of their own, and share
    progress and heartbeat. `close` (or the end of a `with` block) gives everything back. Making and
    closing one is collective.
    """

    def __init__(self, comm, parent: Runtime | None = None, ranks_per_host: int = 0,
                 trace: NullTrace | None = None):
        """ranks_per_host: so many ranks in a row count as one host; 0: hosts as MPI finds them."""
        self.comm = comm.Dup()               # so that nobody else's messages carry the same tags
        self.rank, self.size = comm.rank, comm.size
        self.heartbeat: Heartbeat = parent.heartbeat if parent else Heartbeat()
        self.engine: ProgressEngine = parent.engine if parent else ProgressEngine(self.heartbeat)
        self.trace: NullTrace = parent.trace if parent else trace or NullTrace()
        # The same on all of its ranks.
        self.name: str = f"{parent.name}.{len(parent._parts)}" if parent else ""
        host = parent.hosts[parent.rank] if parent else find_host(self.comm, ranks_per_host)
        job_rank = parent.job_ranks[parent.rank] if parent else self.rank
        names, job_ranks = zip(*self.comm.allgather((host, job_rank)))
        self.job_ranks: list[int] = list(job_ranks)
        # The number of each rank's host.
        self.hosts: list[int] = [sorted(set(names)).index(name) for name in names]
        self.shares_host = [host == self.hosts[self.rank] for host in self.hosts]
        self._n_tags: Counter[int] = Counter()       # allotted so far, of each peer
        self._parts: list[Runtime] = []
        self._parent, self._open = parent, True

    def split(self, colour: int, position: int | None = None) -> Runtime:
        """The runtime of the ranks that give the same colour, in their order or in that of the
        positions they give. Collective."""
        comm = self.comm.Split(colour, self.rank if position is None else position)
        self._parts.append(Runtime(comm, parent=self))
        comm.Free()
        return self._parts[-1]

    def tag(self, peer: int) -> int:
        """A tag that no other messages between this rank and the peer carry.

        Both ranks count: they must ask for their tags in the same order. That way ranks need not
        agree with third ones, and may have exchanges that others have not.
        """
        tag = FIRST_TAG + self._n_tags[peer]
        if tag > largest_tag():
            raise ConfigError(f"more exchanges between ranks {self.rank} and {peer} than this MPI "
                              f"library has tags ({largest_tag()}): use fewer chunks, blocks or "
                              f"layers")
        self._n_tags[peer] += 1
        return tag

    def progress(self):
        """Let MPI move what can be moved now. Called after a block of work: it is a heartbeat."""
        self.heartbeat.beat()
        before = self.trace.switch(self.trace.progress)
        self.engine.progress()
        self.trace.switch(before)

    def sum_in_place(self, *arrays):
        """Add up host arrays over all ranks, with the same bits on each. Collective."""
        if self.size > 1:
            before = self.trace.switch(self.trace.allreduce)
            self.engine.sum_in_place(self.comm, arrays)
            self.trace.switch(before)

    def close(self):
        """Wait for what is in flight; free requests and communicators. Twice does no harm."""
        if not self._open:
            return
        self._open = False
        if self._parent is None:
            self.engine.close()
        for part in self._parts:
            part.close()
        self.comm.Free()

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, kind, error, trace):
        # After an error that not all ranks know of, the others may never come here.
        if error is None or getattr(error, "agreed", False):
            self.close()


def largest_tag() -> int:
    """Of this MPI library."""
    from mpi4py import MPI
    return MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 0      # no other communicator has it


def find_host(comm, ranks_per_host: int = 0) -> int:
    """A number that the ranks of one host have in common: its lowest rank. Collective.

    A host is where ranks share memory, or so many ranks in a row if that is asked for.
    """
    from mpi4py import MPI
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    real = node.allreduce(comm.rank, MPI.MIN)
    node.Free()
    if not ranks_per_host:
        return real
    if comm.size % ranks_per_host:
        raise ConfigError(f"ranks_per_host = {ranks_per_host} does not divide the {comm.size} "
                          "ranks that were started")
    identities, names = comm.allgather(real), comm.allgather(MPI.Get_processor_name())
    for rank in range(comm.size):
        first = rank - rank % ranks_per_host
        if identities[rank] != identities[first]:
            raise ConfigError(f"ranks_per_host = {ranks_per_host} makes ranks {first} and {rank} "
                              f"one host, but they run on {names[first]} and {names[rank]}, which "
                              "share no memory: start ranks host by host (mpirun --map-by slot), "
                              "or leave ranks_per_host out")
    return comm.rank - comm.rank % ranks_per_host
