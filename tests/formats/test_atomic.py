"""Files appear whole or not at all, also where the disk refuses: HDF5 itself would crash."""

import subprocess
import sys

import h5py
import numpy as np
import pytest

from hpcgcn.files.h5 import atomic_h5
from hpcgcn.files.replace import ANY_OF_THE_RUN

# A limit on the size of files stands in for a full disk: it needs no root, and is refused by the
# system in the same place.
LIMITED = """
import resource, signal, sys
import numpy as np
from hpcgcn.errors import FileError
from hpcgcn.files.h5 import atomic_h5
limit = int(sys.argv[2])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
for attempt in range(2):
    try:
        with atomic_h5(sys.argv[1]) as file:
            file.attrs["text"] = "x" * 1000
            for number in range(4):
                file[f"group {number}/array"] = np.ones(5000)
            file.create_dataset("packed", data=np.arange(30_000), chunks=(1000,),
                                compression="gzip")
        print("written")
    except FileError as error:
        print("refused:", error)
"""


@pytest.mark.parametrize("limit", [0, 100, 2048, 20_000, 100_000, 165_000])
def test_a_refused_write_is_an_error_and_leaves_nothing(tmp_path, limit):
    done = subprocess.run([sys.executable, "-c", LIMITED, tmp_path / "a.h5", str(limit)],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert (done.stdout.count("refused: cannot write") == 2
            and "File too large" in done.stdout), done.stdout
    assert list(tmp_path.iterdir()) == []


def test_what_is_written_is_read_back(tmp_path):
    data = np.random.default_rng(0).standard_normal((300, 7))
    with atomic_h5(tmp_path / "a.h5") as file:
        file["plain"] = data
        file.create_dataset("packed", data=data, chunks=(10, 7), compression="gzip",
                            fletcher32=True)
        file["plain"][5] = 0                        # HDF5 reads and writes in any order
    with h5py.File(tmp_path / "a.h5") as file:
        np.testing.assert_array_equal(file["packed"][...], data)
        assert not file["plain"][5].any() and (file["plain"][6:] == data[6:]).all()
    assert [path.name for path in tmp_path.iterdir()] == ["a.h5"]


def test_an_exception_keeps_the_old_file(tmp_path):
    with atomic_h5(tmp_path / "a.h5") as file:
        file["x"] = 1
    with pytest.raises(ZeroDivisionError), atomic_h5(tmp_path / "a.h5", ANY_OF_THE_RUN) as file:
        file["x"] = 2
        raise ZeroDivisionError
    with h5py.File(tmp_path / "a.h5") as file:
        assert file["x"][()] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a.h5"]
