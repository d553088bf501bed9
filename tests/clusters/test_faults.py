"""A short turn of benchmarks/faults.py: one fault of each kind in real jobs; `python
benchmarks/faults.py` is the long one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from labs import need
from launch import is_open_mpi, lab_environment

pytestmark = [pytest.mark.one_machine, pytest.mark.slow]

need("ip", "tc", "nsenter", "taskset", "unshare", "setpriv", "mount")
if not is_open_mpi():
    pytest.skip("the messages looked for are those of Open MPI's launcher", allow_module_level=True)

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "faults.py"
KINDS = 9
EARLY_SEEDS = (33, 36)               # rank 1 and rank 0


def test_each_kind_of_fault_ends_the_job_and_the_next_start_goes_on(tmp_path):
    done = subprocess.run([sys.executable, SCRIPT, "-n", str(KINDS), "--seed", "28", "--jobs", "4",
                           "--ranks", "2", "--methods", "pipegcn-gf", "--work", tmp_path,
                           "--no-page"], env=lab_environment(), capture_output=True, text=True,
                          timeout=280)
    records = [json.loads(line) for line in (tmp_path / "faults.jsonl").read_text().splitlines()]
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:] + json.dumps(
        [record for record in records if record["problems"]], indent=1)
    # control groups are not everywhere
    assert len({record["kind"] for record in records}) >= KINDS - 1


@pytest.mark.parametrize("seed", EARLY_SEEDS)
def test_a_rank_that_is_stopped_while_mpi_starts_is_named_between_hosts(seed, tmp_path):
    """Open MPI's launcher names nobody then; the watcher of a rank does."""
    done = subprocess.run([sys.executable, SCRIPT, "-n", "1", "--seed", str(seed), "--ranks", "2",
                           "--kinds", "stopped", "--methods", "pipegcn-gf", "--work", tmp_path,
                           "--no-page"], env=lab_environment(), capture_output=True, text=True,
                          timeout=280)
    [record] = [json.loads(line) for line in (tmp_path / "faults.jsonl").read_text().splitlines()]
    assert done.returncode == 0, json.dumps(record, indent=1)
    assert record["moment"] == "start" and record["on_hosts"]
