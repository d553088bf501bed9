"""What every rank must do together: errors, results of one rank, and the end of a run."""

import socket

import numpy as np
import pytest

from hpcgcn.errors import ConfigError, FileError, HpcgcnError
from hpcgcn.mpi.world import collective_errors, local_rank, on_root

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(60)]


def test_nothing_happens_where_nobody_fails(comm):
    with collective_errors(comm):
        found = comm.rank
    assert found == comm.rank


@pytest.mark.parametrize("who", ["first", "last", "all"])
def test_an_error_of_any_rank_is_raised_on_all(comm, who):
    guilty = {"first": [0], "last": [comm.size - 1], "all": list(range(comm.size))}[who]
    with pytest.raises(ConfigError,
                       match=f"a mistake of {guilty[0]}") as caught, collective_errors(comm):
        if comm.rank in guilty:
            raise ConfigError(f"a mistake of {comm.rank}")
    assert caught.value.agreed
    assert len(set(comm.allgather(str(caught.value)))) == 1


def test_an_error_of_some_ranks_names_the_first_and_its_host(comm):
    last = comm.size - 1
    with pytest.raises(ConfigError) as caught, collective_errors(comm):
        if comm.rank == last:
            raise ConfigError("mine alone")
    own = comm.bcast(f"[rank {comm.rank} on host {socket.gethostname()}]", root=last)
    assert str(caught.value) == ("mine alone" if comm.size == 1 else f"mine alone {own}")


def test_an_error_of_all_ranks_names_none(comm):
    with pytest.raises(ConfigError) as caught, collective_errors(comm):
        raise ConfigError("the same for all")
    assert str(caught.value) == "the same for all"


def test_the_lowest_rank_speaks(comm):
    with pytest.raises(HpcgcnError) as caught, collective_errors(comm):
        raise (FileError if comm.rank == 0 else ConfigError)(f"from {comm.rank}")
    assert isinstance(caught.value, FileError) and "from 0" in str(caught.value)


def test_other_errors_pass_through(comm):
    """They abort the job in run_ranks; here all ranks raise alike, so that the test can go on."""
    with pytest.raises(ZeroDivisionError), collective_errors(comm):
        raise ZeroDivisionError


def test_agreements_may_be_nested(comm):
    with pytest.raises(ConfigError, match="inner"), collective_errors(comm):
        with collective_errors(comm):
            if comm.rank == comm.size - 1:
                raise ConfigError("inner")


def test_on_root_gives_its_result_to_all(comm):
    calls = []
    assert on_root(comm, lambda x: calls.append(x) or {"rank": comm.rank, "x": x},
                   5) == {"rank": 0, "x": 5}
    assert len(calls) == (comm.rank == 0)


def test_on_root_gives_its_error_to_all(comm):
    def fail(kind):
        raise kind("no such thing")
    with pytest.raises(FileError, match="no such thing") as caught:
        on_root(comm, fail, FileError)
    # a file may be missing there alone
    assert ("[rank 0 on host" in str(caught.value)) == (comm.size > 1)
    with pytest.raises(ConfigError) as caught:
        on_root(comm, fail, ConfigError)
    assert str(caught.value) == "no such thing" and caught.value.agreed


def test_local_ranks_number_the_ranks_of_a_host(comm):
    mine, n_here = local_rank(comm)
    assert 0 <= mine < n_here <= comm.size
    from mpi4py import MPI
    hosts = comm.allgather((MPI.Get_processor_name(), mine))
    assert len(set(hosts)) == comm.size


def test_sums_are_the_same_bits_on_all_ranks(comm, runtime):
    """Parameters are never broadcast: every rank takes the same step because it has the same
    sums."""
    rng = np.random.default_rng(comm.rank)
    for size in (1, 3, 1000, 70_000):
        arrays = [rng.standard_normal(size).astype(dtype) for dtype in (np.float32, np.float64)]
        wanted = [np.sum(comm.allgather(array.astype(np.float64)), axis=0) for array in arrays]
        runtime.sum_in_place(*arrays)
        for array, expected in zip(arrays, wanted):
            assert len(set(comm.allgather(array.tobytes()))) == 1
            np.testing.assert_allclose(array, expected, rtol=1e-4, atol=1e-5)
