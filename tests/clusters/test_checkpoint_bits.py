"""Any bit of a checkpoint may flip: then an older one is used, or nothing has changed."""

import os
import shutil
import sys

import h5py
import numpy as np
import pytest
from launch import launch

from hpcgcn.errors import FileError
from hpcgcn.files.trailer import State, data_regions, verify_trailer
from hpcgcn.graph.generate import generate_sbm
from hpcgcn.graph.header import header
from hpcgcn.graph.store import write_graph
from hpcgcn.info.verify import verify
from hpcgcn.train import checkpoint

N_FLIPS = 40           # of each file, at places drawn by a seed; the fuzzer flips thousands
FILES = ["model.h5", "exchange-0-of-2.h5", "exchange-1-of-2.h5"]
MARK = b"hpcgcn trailer 1"
TRAIN = [sys.executable, "-m", "hpcgcn", "train", "g.h5", "--method", "pipegcn", "--epochs", "4",
         "--checkpoint-every", "2", "--hidden", "4", "--name", "r"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The checkpoints of a run on 2 ranks whose exchange has state."""
    folder = tmp_path_factory.mktemp("bits")
    write_graph(folder / "g.h5", generate_sbm(80, 6, 5, 3, seed=1))
    launch(2, TRAIN, cwd=folder).check()
    return folder / "runs" / "r" / "checkpoints"


def everything(folder):
    """All that a resumed run takes from a checkpoint folder."""
    facts = header(os.path.join(folder, "model.h5"))
    arrays = [checkpoint.load(folder), checkpoint.load_layout(folder),
              checkpoint.load_config(folder)]
    return facts, repr(arrays), [checkpoint.load_exchanges(folder, rank, 2) for rank in range(2)]


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_never_changes_the_result(name, saved, tmp_path):
    shutil.copytree(saved, tmp_path / "checkpoints")
    folder = str(tmp_path / "checkpoints")
    newest, older = (os.path.join(folder, f"epoch-{k:06d}") for k in (4, 2))
    np.set_printoptions(threshold=10 ** 9)
    wanted = everything(newest)
    assert checkpoint.newest(folder) == newest
    path = os.path.join(newest, name)
    with open(path, "rb") as file:
        whole = file.read()
    mark = len(whole) - len(MARK)
    assert whole[mark:] == MARK
    places = np.random.default_rng(7).integers(0, 8 * len(whole), N_FLIPS)
    for bit in [*places, *range(8 * mark - 16, 8 * mark + 16)]:
        with open(path, "wb") as file:
            file.write(flipped(whole, int(bit)))
        if bit < 8 * mark:
            assert checkpoint.newest(folder) == older, bit
            assert refused(path), bit
        else:                            # as if an older release had written the file
            assert checkpoint.newest(folder) == newest, bit
            np.testing.assert_equal(everything(newest), wanted)


def unnoticed(path, bits) -> list[int]:
    """Places outside of arrays' data whose flip the trailer does not notice; bits(byte): which of
    its bits are tried. An array's data have a CRC, to which no flip of one bit is unknown."""
    with h5py.File(path) as file:
        regions = data_regions(file)
    data = np.zeros(path.stat().st_size - len(MARK), bool)
    for start, size in regions:
        data[start:start + size] = True
    missed = []
    with open(path, "r+b", buffering=0) as disk:
        for byte in np.flatnonzero(~data).tolist():
            value = os.pread(disk.fileno(), 1, byte)[0]
            for bit in bits(byte):
                os.pwrite(disk.fileno(), bytes([value ^ 1 << bit]), byte)
                if verify_trailer(path) is not State.WRONG:
                    missed.append(8 * byte + bit)
            os.pwrite(disk.fileno(), bytes([value]), byte)
    assert verify_trailer(path) is State.RIGHT
    return missed


@pytest.mark.parametrize("name", FILES)
def test_a_flip_in_any_byte_of_the_metadata_is_noticed(name, saved, tmp_path):
    """One bit of every byte; with range(8) for bits it tries all eight, in 5 s per file."""
    path = shutil.copy(saved / "epoch-000004" / name, tmp_path / name)
    assert unnoticed(path, lambda byte: [byte % 8]) == []


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def refused(path: str) -> bool:
    """Does `hpcgcn info` find the damage?"""
    try:
        return bool(verify(path))
    except FileError:
        return True


def test_a_run_goes_on_from_the_older_one(saved, tmp_path):
    """It says which checkpoint it passes over, and ends as if the newest had never been."""
    results = []
    for damage in (True, False):
        folder = tmp_path / str(damage)
        shutil.copytree(saved.parents[2], folder)
        newest = folder / "runs" / "r" / "checkpoints" / "epoch-000004"
        if damage:
            model = newest / "model.h5"
            model.write_bytes(flipped(model.read_bytes(), 4321))
        else:
            shutil.rmtree(newest)
        os.unlink(folder / "runs" / "r" / "summary.json")
        done = launch(2, [*TRAIN, "--resume", "auto"], cwd=folder).check()
        assert ("epoch-000004 is passed over" in done.stderr) == damage, done.stderr
        assert "epoch-000002" in done.stdout + done.stderr
        results.append(everything(str(newest))[1:])
    np.testing.assert_equal(*results)


def test_exchange_state_of_another_epoch_is_passed_over(saved, tmp_path):
    shutil.copytree(saved, tmp_path / "checkpoints")
    name = "exchange-0-of-2.h5"
    shutil.copy(tmp_path / "checkpoints" / "epoch-000002" / name,
                tmp_path / "checkpoints" / "epoch-000004" / name)
    assert checkpoint.newest(str(tmp_path / "checkpoints")).endswith("epoch-000002")
