"""The faults of benchmarks/faults.py: how each is done to a job that runs, what the job must say,
how it is undone."""

from __future__ import annotations

import contextlib
import os
import pathlib
import resource
import secrets
import signal
import subprocess
import sys
import time

from faults_job import Job, host_of

DISK_BYTES = 16 << 20                   # three checkpoints of the largest job are 10 MiB
CRAWL = "32kbit"  # what a slowed link carries, for messages of 100 kB an epoch
RETRIES = 5                              # of a TCP packet that is not acknowledged: about 13 s
MEMORY_BYTES = 64 << 20                  # what a host has left when its memory is eaten up

# A process eats memory until the kernel has killed the other one of its group, which is marked as
# the first to go.
HOG = """
import os, sys
eaten, rank = [], sys.stdin.readline().strip()
while os.path.exists(f"/proc/{rank}/exe"):
    eaten.append(bytearray(os.urandom(1)) * (1 << 20))
"""

# On one rank, a file that cannot be read takes the place of its part file; a root that may not read
# everything meets it.
REPLACE = """
rank=$1 broken=$2 file=$3; shift 3
[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = "$rank" ] || exec "$@"
exec unshare --mount sh -c 'mount --bind "$1" "$2" && shift 2 &&
    exec setpriv --bounding-set=-dac_override,-dac_read_search -- "$@"' \
    replace "$broken" "$file" "$@"
"""


class Kind:
    """A kind of fault. `strike` is called at the moment, `undo` after the job's end."""

    needs_hosts = needs_memory = False   # is it only possible on lab hosts, or only without them?
    cleans_up = True  # is there anybody left who can remove MPI's temporary files?
    moments = ("start", "epoch", "checkpoint")
    variants = ("",)
    latest = 2 / 3                       # share of the epochs after which it comes no more
    code_counts = True                   # does the exit code tell that the job is not done?
    words: tuple[str, ...] = ()          # that the job must say, beside the rank and its host
    more_seconds = 0                     # that the end of the job may take, beside the bound

    def __init__(self, fault, folder: pathlib.Path, source: pathlib.Path):
        self.fault, self.folder, self.source = fault, folder, source

    def prepare(self):
        """Before the job starts."""

    def around(self) -> list:
        """What stands before the command on every rank."""
        return []

    def strike(self, job: Job):
        """Do it."""

    @classmethod
    def on_hosts(cls, rng) -> bool:
        """Does it meet a job on lab hosts? As the dice say, where both are possible."""
        drawn = rng.random() < 0.5
        return cls.needs_hosts or drawn and not cls.needs_memory

    def undo(self):
        """Undo it, as the user or the site would before the next start."""

    def clean(self):
        """Leave nothing behind, however it ended."""

    def unsaid(self, said: str) -> list[str]:
        """What the job's output lacks."""
        host = host_of(self.fault.rank, self.fault.on_hosts)
        return [text for text in (f"rank {self.fault.rank}", host, *self.words) if text not in said]


class Killed(Kind):
    """A rank is killed."""

    def strike(self, job):
        os.kill(job.ranks()[self.fault.rank], signal.SIGKILL)


class Stopped(Kind):
    """A rank is stopped and never goes on."""

    words = ("no sign of life",)

    def strike(self, job):
        os.kill(job.ranks()[self.fault.rank], signal.SIGSTOP)

    def unsaid(self, said):
        # A rank that is stopped before it has a watcher is known to nobody: one that waited for it
        # is named.
        return ([] if self.fault.moment == "start"
                and "for the job to start: another rank gives no sign of life" in said
                else super().unsaid(said))


class NoMemory(Kind):
    """A rank gets no more memory, as with ulimit -v."""

    moments = ("epoch", "checkpoint")    # before that, Python itself would not start
    latest = 0.08                        # after the first checkpoint it needs no more than it has

    def strike(self, job):
        process = job.ranks()[self.fault.rank]
        pages = int(pathlib.Path(f"/proc/{process}/statm").read_text().split()[0])
        size = pages * resource.getpagesize()
        resource.prlimit(process, resource.RLIMIT_AS, (size, size))

    def unsaid(self, said):
        # Python and NumPy raise MemoryError; libraries in C may end with a signal, or fail in a way
        # of their own (HDF5 returns nothing, MPI an internal error): then the rank says at least
        # that it failed, and in which call.
        known = any(text in said
                    for text in ("out of memory", "Segmentation fault", "Aborted", " failed:"))
        return super().unsaid(said) + ([] if known else ["out of memory"])


class OutOfMemory(Kind):
    """The memory of a rank's control group is eaten up: the kernel kills the rank."""

    group = hog = None

    def prepare(self):
        self.group = make_group()
        # It joins the group before it eats.
        join = (f"import os; open({str(self.group / 'cgroup.procs')!r}, "
                "'w').write(str(os.getpid()))\n")
        self.hog = subprocess.Popen([sys.executable, "-c", join + HOG], stdin=subprocess.PIPE)

    def strike(self, job):
        rank = job.ranks()[self.fault.rank]
        with job.frozen():
            pathlib.Path(f"/proc/{rank}/oom_score_adj").write_text("1000")
            (self.group / "cgroup.procs").write_text(str(rank))
            self.hog.communicate(f"{rank}\n".encode(), 60)

    def clean(self):
        if self.hog and self.hog.poll() is None:
            self.hog.kill()
            self.hog.communicate()
        # a group that has just lost its last process may still be busy
        for _ in range(100 if self.group else 0):
            with contextlib.suppress(OSError):
                self.group.rmdir()
                return
            time.sleep(0.05)


class LinkCut(Kind):
    """The link of a rank's host goes down."""

    needs_hosts = True
    code_counts = False  # Open MPI 5.0.11 returns 0 when it has lost a host, whatever came before
    words = ("no progress", "link")
    moments = ("epoch", "checkpoint")

    def strike(self, job):
        # Once the ranks have ended the job, Open MPI's mpirun waits for the host it cannot reach,
        # for as long as the kernel tries to get through: minutes. These hosts give up sooner.
        with job.frozen():
            for process in job.ranks().values():
                in_network(process, "sh", "-c", f"echo {RETRIES} > /proc/sys/net/ipv4/tcp_retries2")
            in_network(job.lab_process(), "ip", "link", "set", host_of(self.fault.rank, True),
                       "down")

    def unsaid(self, said):
        # Which end of a link is to blame cannot be known: all ranks and hosts are named, or the
        # host that the launcher lost.
        lost = any(f"on node h{rank + 1}" in said for rank in range(self.fault.n_ranks))
        texts = (*(f"rank {rank} on host h{rank + 1}" for rank in range(self.fault.n_ranks)),
                 *self.words)
        return [] if lost else [text for text in texts if text not in said]


class LinkSlow(LinkCut):
    """The link of a rank's host slows to a crawl."""

    # Small messages get through in less than the stall limit for a while, and what the launcher
    # tells its hosts at the end has to pass the same link.
    more_seconds = 60

    def strike(self, job):
        with job.frozen():
            in_network(job.lab_process(), "tc", "qdisc", "replace", "dev",
                       host_of(self.fault.rank, True), "root", "tbf",
                       "rate", CRAWL, "burst", "10000", "latency", "50ms")


class DiskFull(Kind):
    """The file system of the run's folder is full, but for a few bytes."""

    words = ("No space left",)

    def prepare(self):
        (self.folder / "disk").mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "faults",
                        self.folder / "disk"], check=True)

    def strike(self, job):
        left = os.statvfs(self.folder / "disk")
        with open(self.folder / "disk" / "filler", "wb") as filler:
            size = left.f_bavail * left.f_frsize - self.fault.left_bytes
            while size > 0:              # what the job wrote since is not there any more
                try:
                    os.posix_fallocate(filler.fileno(), 0, size)
                    break
                except OSError:
                    size -= 4096

    def undo(self):
        (self.folder / "disk" / "filler").unlink()

    def unsaid(self, said):
        # Whoever writes first meets it.
        names = [f"rank {rank} on host {host_of(rank, self.fault.on_hosts)}"
                 for rank in range(self.fault.n_ranks)]
        return [text for text in self.words
                if text not in said] + ([] if any(n in said for n in names) else ["rank and host"])


class LauncherKilled(Kind):
    """The launcher is killed, perhaps before MPI has started: nobody may go on alone."""

    needs_memory = True                  # a lab's launcher takes everything with it
    cleans_up = False                    # MPI's session folder is the launcher's to remove
    moments = ("launch", "start", "epoch", "checkpoint")

    def strike(self, job):
        os.kill(job.process.pid, signal.SIGKILL)

    def unsaid(self, said):
        return []                        # what ranks say goes through the launcher


class Unreadable(Kind):
    """A rank cannot read its part file: cut short, empty, or not its to read."""

    moments = ("start",)
    variants = ("cut", "empty", "forbidden")

    def prepare(self):
        data, broken = self.source.read_bytes(), self.folder / "broken"
        kept = {"cut": int(len(data) * self.fault.share), "empty": 0,
                "forbidden": len(data)}[self.fault.variant]
        broken.write_bytes(data[:kept])
        if self.fault.variant == "forbidden":
            os.chown(broken, 65534, 65534)
            broken.chmod(0o600)
        (self.folder / "replace").write_text(REPLACE)

    def around(self):
        return ["sh", self.folder / "replace", self.fault.rank, self.folder / "broken", self.source]

    @property
    def words(self):
        return (str(self.source),)


KINDS = {"killed": Killed, "stopped": Stopped, "no memory to be had": NoMemory,
         "killed for its memory": OutOfMemory,
         "link cut": LinkCut, "link at a crawl": LinkSlow, "disk full": DiskFull,
         "part file unreadable": Unreadable, "launcher killed": LauncherKilled}


def in_network(process: int, *command: str):
    """Run a command in the network namespace of a process."""
    subprocess.run(["nsenter", "--target", str(process), "--net", "--", *command], check=True)


def make_group() -> pathlib.Path:
    """A control group with little memory, in either version of the kernel's interface."""
    first = pathlib.Path("/sys/fs/cgroup/memory")
    group = (first if first.is_dir() else first.parent) / f"hpcgcn-faults-{secrets.token_hex(4)}"
    group.mkdir()
    (group / ("memory.limit_in_bytes" if first.is_dir()
              else "memory.max")).write_text(str(MEMORY_BYTES))
    return group


def can_limit_memory() -> bool:
    """May this process make control groups that limit memory?"""
    try:
        make_group().rmdir()
    except OSError:
        return False
    return True
