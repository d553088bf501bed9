"""Run folders: made after all checks, never another's, and resumed only as the run that they
are."""

import csv
import json
import os
import shutil

import pytest
from folders import contents

from hpcgcn.cli import main
from hpcgcn.config import make_config
from hpcgcn.errors import FileError
from hpcgcn.files.marker import read_marker, remove_listed
from hpcgcn.report.runs import read_runs
from hpcgcn.report.tables import result_rows

SMALL = ["--nodes", "60", "--degree", "6", "--features", "4", "--classes", "3"]
SHORT = ["--hidden", "4", "--layers", "2", "--eval-every", "2", "--name", "a"]


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """Two graphs and a finished run of 4 epochs."""
    folder = tmp_path_factory.mktemp("runs")
    before = os.getcwd()
    os.chdir(folder)
    try:
        for name, seed in (("g", 1), ("other", 2)):
            assert main(["generate", "sbm", *SMALL, "--seed", str(seed), "-o", f"{name}.h5"]) == 0
        assert main(["train", "g.h5", *SHORT, "--epochs", "4", "--quiet"]) == 0
    finally:
        os.chdir(before)
    return folder


@pytest.fixture
def here(template, tmp_path, monkeypatch):
    shutil.copytree(template, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def train(*arguments):
    return main(["train", *map(str, arguments)])


# -- a refused start leaves no trace --------------------------------------------------------------

@pytest.mark.parametrize("wrong", [["missing.h5"], ["runs/a/checkpoints/epoch-000004/model.h5"],
                                   ["g.h5", "--split-index", "7"], ["g.h5", "--resume"],
                                   ["g.h5", "--model", "gcnii", "--linear-layers", "1"],
                                   ["unlabelled.h5"]])
def test_a_refused_start_makes_no_folder(here, capsys, wrong):
    import h5py
    with h5py.File(shutil.copy("g.h5", "unlabelled.h5"), "r+") as file:
        file["split"][...] = 0
    before = contents(here)
    assert train(*wrong, "--name", "new") == 2
    assert contents(here) == before
    assert "Traceback" not in capsys.readouterr().err


def test_a_refused_start_makes_no_folder_of_folders(here):
    assert train("g.h5", "--split-index", "7", "--output", "elsewhere") == 2
    assert not os.path.exists("elsewhere")


def test_an_output_that_is_a_file_is_refused(here, capsys):
    assert train("g.h5", "--output", "g.h5", "--name", "new") == 2
    assert "choose another --output" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [[], ["--overwrite"], ["--resume", "auto"], ["--resume"]])
def test_a_folder_that_is_no_run_is_left_alone(here, capsys, flags):
    (here / "runs" / "mine").mkdir()
    (here / "runs" / "mine" / "config.toml").write_text("my = 'settings'\n")
    (here / "runs" / "mine" / "notes.txt").write_text("my notes\n")
    before = contents(here)
    assert train("g.h5", *SHORT, "--name", "mine", *flags) == 2
    assert "is not a run" in capsys.readouterr().err
    assert contents(here) == before


# -- what --overwrite deletes ---------------------------------------------------------------------

def test_overwrite_deletes_what_is_listed_and_nothing_else(here, caplog):
    folder = here / "runs" / "a"
    mine = {"notes.txt", "checkpoints/best.h5", "checkpoints/epoch-000004/comment"}
    for name in mine:
        (folder / name).write_text("mine\n")
    (folder / "checkpoints" / ".writing-000002").mkdir()
    uuid = read_marker(folder)["uuid"]
    assert train("g.h5", *SHORT, "--epochs", "2", "--overwrite") == 0
    assert all((folder / name).read_text() == "mine\n" for name in mine)
    assert not (folder / "checkpoints" / "epoch-000004" / "model.h5").exists()
    assert read_marker(folder)["uuid"] != uuid and "notes.txt" in caplog.text


def test_overwrite_leaves_nothing_of_the_old_run(here):
    assert train("g.h5", *SHORT, "--epochs", "2", "--overwrite") == 0
    held = contents(here / "runs" / "a")
    files = {name for name, state in held.items() if state[0] == "file"}
    assert files == {"run.json", "config.toml", "metrics.csv", "summary.json", "live.json",
                     "checkpoints/epoch-000002/model.h5"}


@pytest.mark.parametrize("name", ["../../g.h5", "/etc/passwd", "a/../../../g.h5", "", "./x", 7])
def test_a_marker_that_lists_other_places_deletes_nothing(here, name):
    folder = here / "runs" / "a"
    marker = json.loads((folder / "run.json").read_text())
    marker["files"].append(name)
    (folder / "run.json").write_text(json.dumps(marker))
    before = contents(here)
    with pytest.raises(FileError, match="damaged"):
        remove_listed(str(folder))
    assert train("g.h5", *SHORT, "--overwrite") == 2
    assert contents(here) == before


def test_links_in_the_place_of_listed_files_are_not_followed(here):
    folder = here / "runs" / "a"
    (here / "safe").mkdir()
    (here / "safe" / "model.h5").write_text("mine\n")
    shutil.rmtree(folder / "checkpoints" / "epoch-000004")
    (folder / "checkpoints" / "epoch-000004").symlink_to(here / "safe")
    os.remove(folder / "summary.json")
    (folder / "summary.json").symlink_to(here / "g.h5")
    graph = (here / "g.h5").read_bytes()
    remove_listed(str(folder))
    assert (here / "safe" / "model.h5").read_text() == "mine\n"
    assert (here / "g.h5").read_bytes() == graph


@pytest.mark.parametrize("stem", ["a\nb", "a\x1b[31mb", "a\udcffb"])
def test_a_run_is_not_called_by_characters_that_a_terminal_obeys(here, capfd, stem):
    """The name of the graph's file is not checked as a --name is, and becomes that of the run."""
    os.rename("g.h5", f"{stem}.h5")
    capfd.readouterr()
    assert main(["train", f"{stem}.h5", *SHORT[:-2], "--epochs", "1"]) == 0
    made = {name for name in os.listdir("runs") if name != "a"}
    assert len(made) == 1 and all(name.isprintable() for name in made)
    assert f"results: runs/{made.pop()}\n" in capfd.readouterr().out


def test_a_link_under_the_name_of_a_temporary_file_is_not_followed(here):
    (here / "victim").write_text("mine\n")
    for name in (".config.toml.tmp", ".metrics.csv.tmp", ".summary.json.tmp", ".run.json.tmp"):
        (here / "runs" / "a" / name).symlink_to(here / "victim")
    assert train("g.h5", *SHORT, "--epochs", "6", "--resume", "auto") == 0
    assert (here / "victim").read_text() == "mine\n"


@pytest.mark.parametrize("name", ["metrics.csv", "config.toml", "run.json"])
def test_a_link_in_the_place_of_a_file_of_the_run_is_refused(here, capsys, name):
    os.rename(here / "runs" / "a" / name, here / "moved")
    (here / "runs" / "a" / name).symlink_to(here / "moved")
    held = (here / "moved").read_bytes()
    assert train("g.h5", *SHORT, "--epochs", "6", "--resume", "auto") == 2
    assert (here / "moved").read_bytes() == held and "Traceback" not in capsys.readouterr().err


def test_a_run_without_its_marker_can_be_evaluated_and_gone_on_from_by_its_weights(here, capsys):
    os.unlink(here / "runs" / "a" / "run.json")
    before = contents(here)
    for flags in (["--resume", "auto"], ["--overwrite"], []):
        assert train("g.h5", *SHORT, *flags) == 2
        message = capsys.readouterr().err
        assert "has checkpoints, but no run.json: it can be evaluated, but not gone on" in message
    assert contents(here) == before
    assert main(["evaluate", "runs/a", "g.h5"]) == 0
    # the commands that the message tells
    assert main(["weights", "export", "runs/a", "-o", "w.safetensors"]) == 0
    assert main(["weights", "import", "w.safetensors", "-o", "runs/a-2"]) == 0
    assert train("g.h5", *SHORT, "--name", "a-2", "--epochs", "6", "--resume", "must") == 0


# -- resume ---------------------------------------------------------------------------------------

def test_a_finished_run_is_left_as_it_was_and_says_what_was_not_used(here, caplog):
    before = contents(here)
    assert train("g.h5", *SHORT, "--epochs", "4", "--lr", "0.5", "--resume", "auto") == 0
    assert contents(here) == before
    assert "not used, as the run is finished: lr 0.01 -> 0.5" in caplog.text
    assert main(["evaluate", "runs/a", "g.h5"]) == 0


@pytest.mark.parametrize("change,word", [
    (["other.h5"], "another graph"), (["g.h5", "--self-loops", "yes"], "self_loops False there"),
    (["g.h5", "--linear-layers", "1"], "linear_layers 0 there, 1 here"),
    (["g.h5", "--hidden", "5"], "hidden 4 there"), (["g.h5", "--model", "gcn"], "model sage there"),
    (["g.h5", "--norm", "no"], "norm True there"), (["g.h5", "--layers", "3"], "layers 2 there")])
@pytest.mark.parametrize("epochs", [4, 6])
def test_another_graph_or_model_is_refused(here, capsys, change, word, epochs):
    before = contents(here)
    assert train(change[0], *SHORT, *change[1:], "--epochs", epochs, "--resume", "auto") == 2
    assert word in capsys.readouterr().err
    assert contents(here) == before


def test_a_partition_of_the_same_graph_goes_on(here):
    assert main(["partition", "g.h5", "-n", "1", "-o", "one.h5"]) == 0
    assert train("one.h5", *SHORT, "--epochs", "6", "--resume", "auto") == 0


def test_old_settings_do_not_steer_the_terminal(here, caplog):
    settings = here / "runs" / "a" / "config.toml"
    settings.write_text(settings.read_text().replace("lr = 0.01", 'lr = "\\u001b[2J"'))
    assert train("g.h5", *SHORT, "--epochs", "6", "--resume", "auto") == 0
    line = next(line for line in caplog.messages if "changed since the last start" in line)
    assert "[2J" in line and "\x1b" not in line


def test_changed_settings_are_named(here, caplog):
    assert train("g.h5", *SHORT, "--epochs", "6", "--lr", "0.02", "--dropout", "0.1", "--resume",
                 "auto") == 0
    line = next(line for line in caplog.messages if "changed since the last start" in line)
    for change in ("epochs 4 -> 6", "lr 0.01 -> 0.02", "dropout 0.5 -> 0.1"):
        assert change in line
    assert "resume" not in line and "name" not in line
    assert "lr = 0.02" in (here / "runs" / "a" / "config.toml").read_text()


GARBAGE = {"random": os.urandom(500), "empty": b"", "list": b"[]", "number": b"7", "cut": b'{"epo',
           "deep": b"[" * 100_000, "binary": b"\0\xff\xfe" * 50, "wrong": b'{"epochs": "many"}',
           "nan": b'{"epochs": NaN, "stopped_early": false, "ends": [NaN]}'}


@pytest.mark.parametrize("damage", GARBAGE)
@pytest.mark.parametrize("name", ["summary.json", "choices.json", "metrics.csv", "config.toml"])
def test_damaged_small_files_do_not_end_a_resume(here, capsys, caplog, name, damage):
    (here / "runs" / "a" / name).write_bytes(GARBAGE[damage])
    assert train("g.h5", *SHORT, "--epochs", "6", "--resume", "auto") == 0
    assert "Traceback" not in capsys.readouterr().err
    summary = json.loads((here / "runs" / "a" / "summary.json").read_text())
    assert summary["epochs"] == 6
    if name in ("metrics.csv", "config.toml") and damage not in ("empty",):
        assert name in caplog.text
    rows = list(csv.DictReader((here / "runs" / "a" / "metrics.csv").open()))
    assert [int(row["epoch"]) for row in rows] == ([5, 6] if name == "metrics.csv" else
                                                   [1, 2, 3, 4, 5, 6])


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["metrics.csv", "summary.json", "choices.json", "config.toml",
                                  "run.json"])
def test_nobody_waits_for_a_pipe_in_the_place_of_a_file(here, capsys, name):
    path = here / "runs" / "a" / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    for command in (["info", "runs/a"], ["evaluate", "runs/a", "g.h5"],
                    ["report", "runs/a", "-o", "r.html"]):
        assert main(command) in (0, 2)
    # the next start does without it and writes it anew, or refuses it
    code = train("g.h5", *SHORT, "--epochs", "6", "--resume", "auto")
    assert code == 0 or code == 2 and path.is_fifo()
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("name", ["summary.json", "choices.json"])
def test_a_folder_in_the_place_of_a_small_file(here, capsys, name):
    path = here / "runs" / "a" / name
    path.unlink(missing_ok=True)
    path.mkdir()
    code = train("g.h5", *SHORT, "--epochs", "6", "--resume", "auto")
    assert code in (0, 2) and "Traceback" not in capsys.readouterr().err
    assert path.is_dir()


@pytest.mark.parametrize("damage", GARBAGE)
def test_a_damaged_marker_is_one_message(here, capsys, damage):
    (here / "runs" / "a" / "run.json").write_bytes(GARBAGE[damage])
    before = contents(here)
    for flags in (["--resume", "auto"], ["--overwrite"]):
        assert train("g.h5", *SHORT, "--epochs", "6", *flags) == 2
        message = capsys.readouterr().err
        assert "run.json is damaged" in message and len(message) < 500
    assert contents(here) == before


# -- numbers --------------------------------------------------------------------------------------

def test_totals_are_over_all_starts_and_the_same_in_summary_and_report(here):
    assert train("g.h5", *SHORT, "--epochs", "10", "--resume", "auto") == 0
    summary = json.loads((here / "runs" / "a" / "summary.json").read_text())
    rows = list(csv.DictReader((here / "runs" / "a" / "metrics.csv").open()))
    assert [int(row["epoch"]) for row in rows] == list(range(1, 11))
    assert summary["training_seconds"] == pytest.approx(sum(float(r["seconds"]) for r in rows))
    shown = result_rows(read_runs(["runs/a"]))[0]
    assert shown["epoch_seconds"] == pytest.approx(summary["seconds_per_epoch"])
    assert shown["seconds"] == pytest.approx(summary["training_seconds"])
    assert shown["best_epoch"] == summary["best"]["epoch"]
    best = max((row for row in rows if row["val"]), key=lambda row: float(row["val"]))
    assert summary["best"]["epoch"] == int(best["epoch"])
    assert summary["best"]["val"] == float(best["val"])


def test_the_best_epoch_is_the_same_on_the_console(here, capsys):
    assert train("g.h5", *SHORT, "--epochs", "8", "--name", "b") == 0
    shown = capsys.readouterr().out
    best = json.loads((here / "runs" / "b" / "summary.json").read_text())["best"]
    assert f"at the best validation (epoch {best['epoch']})" in shown
    line = next(line for line in shown.splitlines() if line.split()[:2] == ["epoch",
                                                                            f"{best['epoch']}/8"])
    assert f"val {best['val']:.4f}" in line


def test_a_report_leaves_out_what_is_no_run(here, capsys):
    (here / "runs" / "b").mkdir()
    (here / "runs" / "c.txt").write_text("notes\n")
    assert main(["report", "runs/a", "runs/b", "runs/c.txt"]) == 0
    said = capsys.readouterr()
    assert said.err.count("left out: ") == 2 and "runs/b" in said.err
    assert os.path.exists("report.html")
    assert main(["report", "runs/b"]) == 2


def test_weights_of_elsewhere_become_a_run_that_trains_on(here):
    assert main(["weights", "export", "runs/a", "-o", "w.safetensors"]) == 0
    assert main(["weights", "import", "w.safetensors", "-o", "runs/w"]) == 0
    assert read_marker("runs/w")["graph"] == ""
    words = ["--hidden", "4", "--layers", "2", "--name", "w", "--epochs", "2", "--resume"]
    assert train("other.h5", *words) == 0
    assert read_marker("runs/w")["graph"] != ""
    assert train("g.h5", *words, "must", "--epochs", "3") == 2


def test_an_empty_folder_and_a_link_to_one_may_become_a_run(here):
    (here / "runs" / "new").mkdir()
    (here / "big disk").mkdir()
    (here / "runs" / "linked").symlink_to(here / "big disk")
    for name in ("new", "linked"):
        assert train("g.h5", *SHORT, "--epochs", "1", "--name", name) == 0
        assert read_marker(here / "runs" / name)["uuid"]


def test_a_graph_in_memory_is_told_from_another(here):
    from mpi4py import MPI

    import hpcgcn
    from hpcgcn.errors import CheckpointError
    from hpcgcn.graph.generate import generate_sbm
    config = make_config({"epochs": 2, "hidden": 4, "name": "memory"})
    hpcgcn.train_model(generate_sbm(60, 6, 4, 3, seed=1), config, MPI.COMM_SELF)
    longer = config.replace(epochs=3, resume="must")
    hpcgcn.train_model(generate_sbm(60, 6, 4, 3, seed=1), longer, MPI.COMM_SELF)
    with pytest.raises(CheckpointError, match="another graph"):
        hpcgcn.train_model(generate_sbm(60, 6, 4, 3, seed=2), longer.replace(epochs=4),
                           MPI.COMM_SELF)
