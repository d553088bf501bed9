"""Shared by all tests. The folder of this file is on the import path: `from launch import launch` works in every test."""

import pytest


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
