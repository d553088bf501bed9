"""Rows that came to one rank of a host, for another rank there: by message, or by a shared window.

    python benchmarks/within_host.py         2 ranks; about a minute

`--once-per-host` passes them on by a message: the rank that received them gathers the rows that the
other one reads, and sends them. With a window of shared memory the messages of other hosts would
arrive there, and after a word from the receiver the reader gathers its rows itself. Both end with
the rows in the reader's array. Writes benchmarks/results/within-host.md.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]

WIDTHS = (16, 128)
ROWS = (1_000, 10_000, 40_000)
ARRIVED = 2                          # times the rows that the other rank reads


class ByMessage:
    """Rank 0 gathers and sends; persistent requests, as in a run."""

    name = "by message"

    def __init__(self, comm, n_rows: int, width: int):
        self.rank, self.places = comm.rank, every_other(n_rows)
        self.arrived = np.ones((ARRIVED * n_rows, width), np.float32)
        self.rows = np.zeros((n_rows, width), np.float32)
        self.request = (comm.Send_init(self.rows, dest=1) if comm.rank == 0
                        else comm.Recv_init(self.rows, source=0))

    def once(self):
        """From what arrived on rank 0 to the rows on rank 1."""
        if self.rank == 0:
            np.take(self.arrived, self.places, axis=0, out=self.rows, mode="clip")
        self.request.Start()
        self.request.Wait()

    def close(self):
        """Free the request."""
        self.request.Free()


class ByWindow:
    """Rank 1 gathers from memory that both see, after an empty message from rank 0."""

    name = "by window"

    def __init__(self, comm, n_rows: int, width: int):
        from mpi4py import MPI
        self.rank, self.places = comm.rank, every_other(n_rows)
        n_bytes = ARRIVED * n_rows * width * 4
        self.window = MPI.Win.Allocate_shared(n_bytes if comm.rank == 0 else 0, 4, comm=comm)
        memory, _ = self.window.Shared_query(0)
        self.arrived = np.ndarray((ARRIVED * n_rows, width), np.float32, buffer=memory)
        if comm.rank == 0:
            self.arrived[:] = 1
        self.rows = np.zeros((n_rows, width), np.float32)
        self.window.Lock_all()
        word = np.zeros(0, np.uint8)
        self.request = (comm.Send_init(word, dest=1) if comm.rank == 0
                        else comm.Recv_init(word, source=0))

    def once(self):
        """The same."""
        if self.rank == 0:
            self.window.Sync()
        self.request.Start()
        self.request.Wait()
        if self.rank == 1:
            self.window.Sync()
            np.take(self.arrived, self.places, axis=0, out=self.rows, mode="clip")

    def close(self):
        """Free the request and the window."""
        self.request.Free()
        self.window.Unlock_all()
        self.window.Free()


def every_other(n_rows: int) -> np.ndarray:
    """Which of the rows that arrived the other rank reads."""
    return np.arange(0, ARRIVED * n_rows, ARRIVED)


def job(output: str, rounds: int):
    """On two ranks: both ways in turn; rank 0 writes the seconds until rank 1 has its rows."""
    from mpi4py import MPI
    comm, found = MPI.COMM_WORLD, {}
    for width in WIDTHS:
        for n_rows in ROWS:
            ways = [kind(comm, n_rows, width) for kind in (ByMessage, ByWindow)]
            for number in range(rounds + 1):
                for way in ways:
                    way.rows[:] = 0
                    comm.Barrier()
                    start = MPI.Wtime()
                    way.once()
                    seconds = comm.bcast(MPI.Wtime() - start, root=1)
                    if comm.rank == 1:
                        assert way.rows.all(), "a row is missing"
                    if number:           # the first one does not count
                        found.setdefault(f"{width} {n_rows} {way.name}", []).append(seconds)
            for way in ways:
                way.close()
    if comm.rank == 0:
        pathlib.Path(output).write_text(json.dumps(found))


def main():
    """Start the job, write the table."""
    if sys.argv[1:2] == ["--job"]:
        return job(sys.argv[2], int(sys.argv[3]))
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    args = parser.parse_args()
    import tempfile

    from common import markdown_table, milliseconds, spread, write_results
    from launch import command, rank_environment
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "found.json"
        subprocess.run(command(2, [sys.executable, __file__, "--job", output, str(args.rounds)]),
                       env=rank_environment(), check=True, timeout=600)
        found = json.loads(output.read_text())
    rows = []
    for width in WIDTHS:
        for n_rows in ROWS:
            message, window = (spread(found[f"{width} {n_rows} {way.name}"])
                               for way in (ByMessage, ByWindow))
            rows.append([f"{n_rows:,} x {width}", milliseconds(message), milliseconds(window),
                         f"{window['median'] / message['median']:.2f}"])
    table = markdown_table(["rows read x columns", "by message, ms", "by window, ms",
                            "window / message"], rows)
    write_results("within-host", "Rows passed on within a host: by message or by window",
                  " ".join(["python benchmarks/within_host.py", *sys.argv[1:]]),
                  [f"2 ranks; median and spread of {args.rounds} rounds, both ways in turn. Of the "
                   "rows that arrived the other rank reads every second one.", table],
                  {"seconds": found})


if __name__ == "__main__":
    main()
