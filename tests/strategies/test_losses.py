"""The record of losses: the same code gives the same bits, and one bit that differs is found."""

import json
import pathlib
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.jobs, pytest.mark.one_machine, pytest.mark.mpi_skip,
              pytest.mark.timeout(300)]

SCRIPT = pathlib.Path(__file__).parents[2] / "benchmarks" / "losses.py"
RUN = "2 sbm --model sage --codec bits --rate 4 --error-feedback --resume must"


def losses(*arguments) -> subprocess.CompletedProcess:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Two records of one run."""
    paths = [tmp_path_factory.mktemp("losses") / name for name in ("first.json", "second.json")]
    for path in paths:
        done = losses("record", path, "--only", RUN)
        assert done.returncode == 0, done.stdout + done.stderr
    return paths


def changed(path: pathlib.Path, folder: pathlib.Path, change) -> pathlib.Path:
    """A copy of a record in which `change` has changed the run."""
    record = json.loads(path.read_text())
    change(record["runs"][RUN])
    copy = folder / "changed.json"
    copy.write_text(json.dumps(record))
    return copy


def test_the_same_code_gives_the_same_bits(recorded):
    done = losses("compare", *recorded)
    assert done.returncode == 0 and "1 runs: 1 bit-identical, 0 differ" in done.stdout, done.stdout
    run = json.loads(recorded[0].read_text())["runs"][RUN]
    assert len(run["losses"]) == 7 and set(run["scores"]) == {"train", "val", "test"}
    assert run["bytes_sent"] > 0 and run["peak_memory_bytes"] > 1e7


def last_bit(run):
    run["losses"][5] = (float.fromhex(run["losses"][5]) * (1 + 2 ** -52)).hex()


@pytest.mark.parametrize("change, said", [
    (last_bit, "loss of epoch 5:"),
    (lambda run: run["losses"].pop(), "loss of epoch 6: only before"),
    (lambda run: run["scores"].update(val="0x1p-9"), "val score:"),
    (lambda run: run.update(bytes_sent=1), "bytes sent:"),
    (lambda run: run.update(error="it broke"), "failed after: it broke"),
    (lambda run: run.clear() or run.update(error="no losses"), "failed after: no losses"),
], ids=["one bit", "an epoch fewer", "score", "bytes", "error", "nothing but an error"])
def test_what_differs_is_told(recorded, tmp_path, change, said):
    done = losses("compare", recorded[0], changed(recorded[0], tmp_path, change))
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"0 bit-identical, 1 differ\n  {RUN}\n    {said}" in done.stdout, done.stdout


def test_memory_that_grows_is_told(recorded, tmp_path):
    larger = changed(recorded[0], tmp_path, lambda run: run.update(peak_memory_bytes=2 ** 40))
    done = losses("compare", recorded[0], larger)
    assert done.returncode == 0 and f"{RUN}: " in done.stdout, done.stdout


def test_a_run_that_is_missing_counts_as_a_difference(recorded, tmp_path):
    record = json.loads(recorded[0].read_text())
    (tmp_path / "none.json").write_text(json.dumps(record | {"runs": {}}))
    for pair, said in (((recorded[0], tmp_path / "none.json"), "only before"),
                       ((tmp_path / "none.json", recorded[0]), "only after")):
        done = losses("compare", *pair)
        assert done.returncode == 1 and said in done.stdout, done.stdout + done.stderr


def test_no_run_is_no_success(tmp_path):
    assert losses("record", tmp_path / "a.json", "--only", "no such run").returncode == 1
