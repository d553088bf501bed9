"""A short turn of the randomised combinations; `python benchmarks/fuzz_combinations.py` is the long
one."""

import importlib.util
import pathlib

import pytest

pytestmark = [pytest.mark.jobs, pytest.mark.one_machine, pytest.mark.mpi_skip,
              pytest.mark.timeout(600)]

PATH = pathlib.Path(__file__).parents[2] / "benchmarks" / "fuzz_combinations.py"


@pytest.fixture(scope="module")
def fuzz():
    spec = importlib.util.spec_from_file_location("fuzz_combinations", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_random_combinations_train_or_are_refused(fuzz, tmp_path):
    counts, problems = fuzz.fuzz(24, seed=12, patience=120, folder=str(tmp_path))
    assert not problems
    assert counts["trained"] >= 12 and counts["trained"] + counts["refused"] == 24


def test_a_hang_and_a_crash_are_noticed_and_cost_one_run_each(fuzz, tmp_path, monkeypatch):
    """The watch itself: a stand-in for the job answers run 0, hangs at 1, answers 2, crashes at 3,
    answers 4."""
    script = tmp_path / "job.py"
    script.write_text("import json, sys, time\n"
                      "for run in json.load(open(sys.argv[2])):\n"
                      "    number = run['number']\n"
                      "    if number == 1: time.sleep(60)\n"
                      "    if number == 3: sys.exit('it broke')\n"
                      "    open(sys.argv[3], 'a').write(json.dumps({'number': number, 'outcome': "
                      "'trained'}) + chr(10))\n")
    monkeypatch.setattr(fuzz, "mpi_command", lambda n_ranks: [])
    monkeypatch.setattr(fuzz, "__file__", str(script))
    outcomes = fuzz.run_job(2, [{"number": k} for k in range(5)], str(tmp_path), patience=4,
                            pieces="whole")
    assert [outcomes[k].partition(":")[0] for k in range(5)] == ["trained", "hang", "trained",
                                                                 "crash", "trained"]
    assert "it broke" in outcomes[3]
