"""Notebooks run from top to bottom, and ranks started from one process return what came of them."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from launch import mpiexec, rank_environment

from hpcgcn import Config, generate_sbm, train_on_ranks, write_graph
from hpcgcn.errors import ConfigError, HpcgcnError

pytestmark = [pytest.mark.jobs, pytest.mark.one_machine, pytest.mark.mpi_skip]

NOTEBOOKS = pathlib.Path(__file__).parents[2] / "docs" / "notebooks"
# What must hold after the last cell.
ENDS = {"train.ipynb": "result.summary['best']['test'] > 0.5 and losses[-1] < losses[0]",
        "compare_methods.ipynb": "set(results) == set(METHODS) and "
                                 "results['sylvie-a']['bytes_sent'] "
                                 "< results['overlap']['bytes_sent']",
        "weights_in_pyg.ipynb": "difference < 1e-4"}


def source_of(notebook: str) -> str:
    cells = json.loads((NOTEBOOKS / notebook).read_text())["cells"]
    assert not any(cell.get("outputs") for cell in cells), "outputs are not kept"
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


def test_every_notebook_is_tried():
    assert {path.name for path in NOTEBOOKS.glob("*.ipynb")} == set(ENDS)


@pytest.mark.parametrize("notebook", ENDS)
def test_a_notebook_runs(notebook, tmp_path):
    mpiexec()                                    # skips without one
    if notebook == "weights_in_pyg.ipynb":
        pytest.importorskip("torch_geometric", reason="PyG is not installed")
    code = f"{source_of(notebook)}\nassert {ENDS[notebook]}\n"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=rank_environment(),
                          capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp("graph") / "g.h5"
    write_graph(path, generate_sbm(200, 8, 12, 4, seed=1))
    return path


def test_ranks_return_what_a_run_is_and_start_again_where_it_was(graph, tmp_path):
    """Also a graph in memory; and a finished run that is started again ends as it had."""
    launcher = " ".join(mpiexec())
    settings = {"epochs": 6, "eval_every": 3, "hidden": 8, "output": str(tmp_path),
                "quiet": True}
    first = train_on_ranks(graph, settings | {"name": "a"}, 2, launcher=launcher)
    assert first.exit_code == 0 and first.folder == str(tmp_path / "a")
    assert first.summary == json.loads((tmp_path / "a" / "summary.json").read_text())
    assert first.summary["epochs"] == 6
    again = train_on_ranks(graph, Config(**settings, name="a", resume="auto"), 2,
                           launcher=launcher)
    assert again.summary == first.summary
    in_memory = train_on_ranks(generate_sbm(200, 8, 12, 4, seed=1), settings | {"name": "b"}, 2,
                               launcher=launcher)
    assert in_memory.summary["best"] == first.summary["best"]


def test_errors_of_ranks_are_those_of_the_caller(graph, tmp_path, monkeypatch):
    with pytest.raises(HpcgcnError, match="roc-auc"):
        train_on_ranks(graph, {"metric": "roc-auc", "output": str(tmp_path)}, 2,
                       launcher=" ".join(mpiexec()))
    with pytest.raises(ConfigError, match="cannot be started"):
        train_on_ranks(graph, None, 2, launcher=str(tmp_path / "no-mpiexec"))
    with pytest.raises(ConfigError, match="1 or more"):
        train_on_ranks(graph, None, 0)
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    monkeypatch.delenv("MPIEXEC", raising=False)
    monkeypatch.setattr(sys, "executable", os.fspath(tmp_path / "python"))
    with pytest.raises(ConfigError, match="no mpiexec"):
        train_on_ranks(graph, None, 2)
