"""A short turn of the damaged inputs; `python benchmarks/fuzz_inputs.py -n 100000` is the long
one."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.mpi_skip, pytest.mark.timeout(1800)]

BENCHMARKS = pathlib.Path(__file__).parents[2] / "benchmarks"
CASES_PER_KIND = 40

# A kind whose inputs end in every way that there is, each at its own number.
EVERY_OUTCOME = """
import contextlib, json, os, signal, sys, time
sys.path.insert(0, {benchmarks!r})
from fuzz import cases, kinds, pool, uses

def make(folder):
    os.makedirs(os.path.join(folder, "a"))
    open(os.path.join(folder, "a", "x.txt"), "w").write("text")

def use(folder, changes):
    number = int(open(os.path.join(folder, "number")).read())
    if number == 1: raise uses.Refused("hpcgcn: refused")
    if number == 2: {{}}["key"]
    if number == 3: raise uses.Contradiction("sound, but not usable")
    if number == 4: uses.check_printed("", "a \\x1b[31m message")
    if number == 5: os.kill(os.getpid(), signal.SIGSEGV)
    if number == 6: time.sleep(600)
    if number == 7: bytearray(1200 << 20)
    if number == 8:
        with contextlib.suppress(OSError): open({outside!r}, "w")
    if number == 9: sys.exit(3)
    if number == 10: bytearray(100 << 30)

made = cases.make_case
def make_case(sound, folder, seed, kind, number):
    changes = made(sound, folder, seed, kind, number)
    open(os.path.join(folder, "number"), "w").write(str(number))
    return changes

cases.make_case = make_case
kinds.KINDS = cases.KINDS = {{"strange": kinds.Kind(make, ("x.txt",), use)}}
pool.SECONDS = 3.0
folder = {folder!r}
make(os.path.join(folder, "sound", "strange"))
pool.load_modules()
found = {{}}
numbers = [("strange", k) for k in range(11)]
for outcome in pool.run_cases(numbers, os.path.join(folder, "sound"), folder, 0, 2):
    found[outcome.number] = outcome.outcome
print(json.dumps(found))
"""


@pytest.mark.slow
def test_damaged_inputs_are_used_or_refused(tmp_path):
    from_kinds = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r});from fuzz.kinds import KINDS; "
            "print(len(KINDS))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    n_kinds = int(from_kinds.stdout)
    before = set(os.listdir("/dev/shm"))
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "fuzz_inputs.py"), "-n", str(n_kinds * CASES_PER_KIND)],
        capture_output=True,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    rows = [
        line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")
    ][2:]
    total = dict(zip(("kind", "cases", "used", "refused"), rows[-1]))
    assert total["cases"].replace(",", "") == str(n_kinds * CASES_PER_KIND)
    assert all(int(row[2]) for row in rows), ("of every kind some inputs are sound or only "
                                              "slightly damaged")
    # PyTorch makes a folder for its compiler's cache where temporary files go.
    assert [path for path in tmp_path.iterdir() if not path.name.startswith("torchinductor")] == []
    assert not {name for name in set(os.listdir("/dev/shm")) - before if name.startswith("hpcgcn")}


@pytest.mark.slow
def test_every_way_to_end_is_noticed(tmp_path):
    """The watch itself: a stand-in for the inputs ends in each way at its own number."""
    outside = tmp_path / "outside"
    (tmp_path / "work").mkdir()
    script = EVERY_OUTCOME.format(benchmarks=str(BENCHMARKS), outside=str(outside),
                                  folder=str(tmp_path / "work"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "0": "accepted",
        "1": "refused",
        "2": "foreign",
        "3": "contradiction",
        "4": "message",
        "5": "death",
        "6": "time",
        "7": "memory",
        "8": "outside",
        "9": "foreign",
        "10": "foreign",
    }
    assert not outside.exists()


@pytest.mark.slow
def test_a_case_is_the_same_each_time(tmp_path):
    """HDF5 leaves some bytes of its files to chance, so there the changes are compared."""
    script = (f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r})\nimport fuzz_inputs; from fuzz "
              "import cases, pool\npool.load_modules()\nbase, kinds = sys.argv[1], ('graph', "
              "'npz', 'csv')\npool.in_child(base, fuzz_inputs.make_sound_files, base + '/sound', "
              "kinds)\nfor kind in kinds:\n    for number in range(12):\n        "
              f"print(cases.make_case(base + '/sound', f'{{base}}/{{kind}}-{{number}}', 5, kind, "
              "number))\n")
    said = []
    for name in ("first", "second"):  # links may name files by their whole paths
        (tmp_path / "base").mkdir()
        done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "base")], check=True,
                              capture_output=True)
        said.append(done.stdout)
        (tmp_path / "base").rename(tmp_path / name)
    assert said[0] == said[1] and len(set(said[0].splitlines())) > 30
    files = [
        path.relative_to(tmp_path / "first")
        for kind in ("npz", "csv")
        for path in (tmp_path / "first").glob(f"{kind}-*/**/*")
        if path.is_file()
    ]
    assert len(files) > 24
    for path in files:
        assert (tmp_path / "first" / path).read_bytes() == (
            tmp_path / "second" / path
        ).read_bytes(), path


@pytest.mark.slow
def test_a_run_that_was_ended_goes_on(tmp_path):
    """By its log: what is in there is counted and not tried again, half a line is tried again."""
    log = tmp_path / "run.jsonl"

    def run(n, seed=3):
        return subprocess.run(
            [sys.executable, str(BENCHMARKS / "fuzz_inputs.py"), "-n", str(n), "--kind", "toml",
             "--log", str(log), "--seed", str(seed)], capture_output=True, text=True,
            env=os.environ | {"TMPDIR": str(tmp_path)})

    def cases():
        return [entry["number"] for entry in map(json.loads, log.read_text().splitlines())
                if "number" in entry]

    assert run(6).returncode == 0
    whole = log.read_text()
    log.write_text(whole[:-20])
    done = run(10)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "| all | 10 |" in done.stdout
    assert sorted(cases()) == list(range(10))
    assert len(log.read_text().splitlines()) == 12, "two starts and ten cases"
    assert "has the seed 3" in run(10, seed=4).stderr
