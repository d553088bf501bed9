"""Files that HDF5 libraries would not survive, and what covers every bit of ours."""

import os

import h5py
import numpy as np
import pytest
from hdf5_kinds import (
    KINDS,
    LIBRARY,
    newest_is_older,
    placed,
)

from hpcgcn.cli import main
from hpcgcn.errors import FileError
from hpcgcn.files.datasets import all_datasets
from hpcgcn.info.verify import verify
from hpcgcn.train import checkpoint

pytestmark = pytest.mark.usefixtures("no_waiting")


def test_pipes_and_devices_are_not_opened(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe.h5")
    for path in (tmp_path / "pipe.h5", "/dev/zero", "/dev/null"):
        assert main(["info", str(path)]) == 2
        assert "expected a regular file" in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_without_trailer_is_read(kind, sound, tmp_path):
    """As older releases wrote them, and as any HDF5 library leaves a file that it changed."""
    path = placed(kind, sound, tmp_path)
    whole = path.read_bytes()
    with h5py.File(path, "r+") as file:
        file.attrs["command"] = file.attrs["command"]
    assert b"hpcgcn trailer 1" in whole and b"hpcgcn trailer 1" not in path.read_bytes()
    assert verify(path) == []
    for use in LIBRARY[kind]:
        if use is not newest_is_older:
            use(path)


def test_older_checkpoints_have_no_checksums(sound, tmp_path):
    path = placed("model", sound, tmp_path)
    with h5py.File(path, "r+") as file:
        for dataset in all_datasets(file):
            del dataset.attrs["crc32"]
        del file.attrs["checksum"]
    assert checkpoint.load(str(path.parent)).epoch == 2
    assert checkpoint.newest(str(path.parents[1])) == str(path.parent)


@pytest.mark.parametrize(("name", "value"), [("step", 0), ("n_ranks", 7), ("best_val", 0.5)])
def test_a_checkpoint_with_another_attribute_is_not_chosen(sound, tmp_path, name, value):
    """A library that changes an attribute cuts off the trailer: the checksum covers it, too."""
    path = placed("model", sound, tmp_path)
    with h5py.File(path, "r+") as file:
        assert file.attrs[name] != value
        file.attrs[name] = value
    assert checkpoint.newest(str(path.parents[1])) != str(path.parent)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_metadata_is_refused_or_harmless(kind, sound, tmp_path, capsys):
    """Without a trailer: no death, no loop, no exception; what is sound can be read."""
    path = placed(kind, sound, tmp_path)
    with h5py.File(path, "r+") as file:
        file.attrs["command"] = file.attrs["command"]
        data_at = min(dataset.id.get_offset() for dataset in all_datasets(file) if dataset.size)
    whole, rng = path.read_bytes(), np.random.default_rng(KINDS.index(kind))
    refused = 0
    for _ in range(40):
        changed = bytearray(whole)
        for place in rng.integers(0, data_at, rng.integers(1, 4)):
            changed[place] = rng.choice([0, 1, 127, 128, 255])
        path.write_bytes(changed)
        code = main(["info", str(path)])
        refused += code == 2
        for use in LIBRARY[kind] if code == 0 else []:
            if use is not newest_is_older:
                use(path)
    capsys.readouterr()
    assert refused


@pytest.mark.parametrize("kind", ["graph", "partition", "predictions"])
def test_any_bit_of_a_file_is_covered(kind, sound, tmp_path):
    """Metadata by the trailer, data by the checksums; only the mark of the trailer says nothing."""
    path = placed(kind, sound, tmp_path)
    whole = path.read_bytes()
    rng = np.random.default_rng(3)
    for bit in rng.integers(0, 8 * (len(whole) - 16), 200):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        try:
            assert verify(path), bit
        except FileError:
            pass
