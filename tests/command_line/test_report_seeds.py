"""Runs that differ in their seeds are added up: mean and standard deviation."""

import csv
import re
import statistics

import pytest
from test_report import Outline, make_run

from hpcgcn.report.page import page
from hpcgcn.report.runs import read_runs
from hpcgcn.report.seeds import Spread, groups


def scored(folder, name: str, test: float, **settings):
    """A run that reaches this test score."""
    run = make_run(folder / name, **settings)
    path = folder / name / "metrics.csv"
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["test"] = str(test) if row["test"] else ""
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return run


def test_runs_of_the_same_settings_are_a_group_whatever_their_seed_and_name(tmp_path):
    runs = read_runs([scored(tmp_path, f"{method}-{seed}", 0.5, method=method, seed=seed)
                      for method in ("vanilla", "pipegcn") for seed in range(3)])
    assert [group.numbers for group in groups(runs)] == [[0, 1, 2], [3, 4, 5]]


def test_mean_and_deviation_are_shown(tmp_path):
    tests = [0.71, 0.74, 0.79]
    runs = read_runs([scored(tmp_path, f"a-{seed}", test, seed=seed)
                      for seed, test in enumerate(tests)]
                     + [scored(tmp_path, "other", 0.6, lr=0.5)])
    text = Outline(page(runs)).text
    mean, deviation = 100 * statistics.mean(tests), 100 * statistics.stdev(tests)
    assert "Means over seeds" in text and f"{mean:.2f} ± {deviation:.2f} %" in text
    assert re.search(r"vanilla, lr 0\.5\s*1\s*0", text.replace("\n", " "))


def test_different_settings_alone_need_no_table(tmp_path):
    runs = read_runs([make_run(tmp_path / "a"), make_run(tmp_path / "b", layers=5)])
    assert "Means over seeds" not in page(runs)


@pytest.mark.parametrize("values", [[3.0], [1.0, 2.0], [0.1] * 7, [1e300, -1e300]])
def test_the_spread_is_that_of_the_textbook(values):
    spread = Spread.of(values)
    assert spread.mean == pytest.approx(statistics.mean(values))
    if 1 < len(values) and max(values) < 1e100:
        assert spread.deviation == pytest.approx(statistics.stdev(values))
