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
KINDS = 8


def test_each_kind_of_fault_ends_the_job_and_the_next_start_goes_on(tmp_path):
    done = subprocess.run([sys.executable, SCRIPT, "-n", str(KINDS), "--seed", "29", "--jobs", "4",
                           "--ranks", "2", "--methods", "pipegcn-gf", "--work", tmp_path,
                           "--no-page"], env=lab_environment(), capture_output=True, text=True,
                          timeout=280)
    records = [json.loads(line) for line in (tmp_path / "faults.jsonl").read_text().splitlines()]
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:] + json.dumps(
        [record for record in records if record["problems"]], indent=1)
    # control groups are not everywhere
    assert len({record["kind"] for record in records}) >= KINDS - 1
