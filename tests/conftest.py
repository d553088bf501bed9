"""Shared by all tests.

The folder of this file is on the import path: `from launch import launch` works in every test.

A test that imports from `launch` or `many_runs` starts MPI jobs and is marked `jobs`; what else
starts some says so itself.
"""

import signal

import pytest

# A shell ignores Ctrl-C in what it starts in the background, and children would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

LAUNCHERS = {"launch", "many_runs"}


def pytest_collection_modifyitems(config, items):
    """Mark what starts jobs; where tests run side by side, begin with the long ones."""
    for item in items:
        if any(getattr(value, "__module__", None) in LAUNCHERS
               for value in vars(item.module).values()):
            item.add_marker("jobs")
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session")
def comm():
    """All ranks of the job that runs the tests (one, without mpirun)."""
    from mpi4py import MPI
    return MPI.COMM_WORLD


@pytest.fixture
def runtime(comm):
    """A runtime of all ranks, closed after the test."""
    from hpcgcn.mpi.runtime import Runtime
    made = Runtime(comm)
    yield made
    made.close()
