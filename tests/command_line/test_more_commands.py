"""watch, run list, configs, config --check and completion, as a user meets them."""

import json
import pathlib
import shutil
import subprocess
import sys

import pytest
from test_report import make_run

from hpcgcn.cli import COMMANDS, command_parser, main
from hpcgcn.config import make_config
from hpcgcn.config.published import published
from hpcgcn.exchange.presets import PRESETS
from hpcgcn.graph.generate import generate_sbm
from hpcgcn.report.watch import frame
from hpcgcn.train.accounting import EpochLedger
from hpcgcn.train.folder import LIVE, RunFolder
from hpcgcn.train.live import LiveFile

RANKS = [{"busy": 0.75, "moves": 0.05, "waits": 0.2}, {"busy": 0.5, "moves": 0.1, "waits": 0.4}]


def write_live(run: str, **content):
    (pathlib.Path(run) / LIVE).write_text(json.dumps(content))


# -- watch -----------------------------------------------------------------------------------------

def test_a_running_run_has_curves_rate_eta_and_ranks(tmp_path):
    run = make_run(tmp_path / "going", epochs=20, summary=False)
    text = (tmp_path / "going" / "config.toml").read_text()
    (tmp_path / "going" / "config.toml").write_text(text.replace("epochs = 20", "epochs = 50"))
    write_live(run, epoch=20, epochs=50, written_at=2e9, ranks=RANKS)
    shown = frame(run, 80)
    assert "epoch 20/50, 100.0 ms/epoch, ETA " in shown
    assert "training loss" in shown and "validation score" in shown and "best so far" in shown
    assert " 75 % busy,  20 % waits" in shown and " 50 % busy,  40 % waits" in shown
    assert max(map(len, shown.splitlines()[1:])) <= 80     # the first has the path
    assert any(0x2800 < ord(c) < 0x2900 for c in shown)


def test_a_terminal_that_knows_only_ascii_gets_ascii(tmp_path):
    run = make_run(tmp_path / "run")
    write_live(run, ranks=RANKS)
    shown = frame(run, 60, plain=True)
    assert shown.isascii() and shown.count("*") >= 20 and "finished" in shown


def test_curves_fall_as_the_loss_does(tmp_path):
    shown = frame(make_run(tmp_path / "run"), 60, plain=True).split("\n\n")[1].splitlines()
    first, last = (next(row for row, line in enumerate(shown) if line[at:at + 6].strip(" |"))
                   for at in (11, 52))
    assert first < last


def test_a_silent_run_is_told(tmp_path):
    run = make_run(tmp_path / "run", summary=False)
    text = (tmp_path / "run" / "config.toml").read_text()
    (tmp_path / "run" / "config.toml").write_text(text.replace("epochs = 20", "epochs = 50"))
    write_live(run, written_at=1e9, ranks=[])
    assert "nothing has been written for" in frame(run)


@pytest.mark.parametrize("content", ["", "[]", '{"ranks": 3}', '{"ranks": [{"busy": "x"}, 7]}',
                                     '{"written_at": "now", "ranks": [{"busy": 1e999}]}'])
def test_a_damaged_live_file_is_left_out(tmp_path, content):
    run = make_run(tmp_path / "run", summary=False)
    (tmp_path / "run" / LIVE).write_text(content)
    assert "training loss" in frame(run)


def test_watch_ends_where_there_is_no_terminal(tmp_path, capsys):
    run = make_run(tmp_path / "run")
    assert main(["watch", run]) == 0
    assert "epoch 20/20" in capsys.readouterr().out
    assert main(["watch", run, "--every", "0"]) == 2
    assert main(["watch", str(tmp_path / "none")]) == 2


def test_training_writes_the_share_of_every_rank(tmp_path):
    from mpi4py import MPI

    from hpcgcn import train_model
    result = train_model(generate_sbm(200, 6, 8, 3, seed=1),
                         make_config({"epochs": 5, "hidden": 8, "quiet": True, "name": "live",
                                      "output": str(tmp_path)}), MPI.COMM_SELF)
    live = json.loads((tmp_path / "live" / LIVE).read_text())
    assert live["epoch"] == live["epochs"] == 5 and len(live["ranks"]) == 1
    assert sum(live["ranks"][0].values()) == pytest.approx(1.0)
    assert frame(result.folder).count("% busy") == 1


def test_a_folder_that_cannot_be_written_ends_no_run(tmp_path):
    from mpi4py import MPI
    ledger = EpochLedger(MPI.COMM_SELF, [])
    LiveFile(RunFolder(str(tmp_path / "nowhere")), 3, ledger).update(3)


# -- run list --------------------------------------------------------------------------------------

def test_runs_are_listed_with_settings_and_results(tmp_path, capsys):
    make_run(tmp_path / "runs" / "a", method="pipegcn", seed=3)
    make_run(tmp_path / "runs" / "b", method="vanilla", summary=False, epochs=4)
    (tmp_path / "runs" / "other").mkdir()
    assert main(["run", "list", str(tmp_path / "runs")]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and "test %" in head
    assert "pipegcn" in lines[0] and "finished" in lines[0] and "78.00" in lines[0]
    assert "not ended" in lines[1]
    assert main(["run", "list", str(tmp_path / "runs"), "--json", "--sort", "test"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == ["a", "b"] and rows[0]["seed"] == 3


def test_a_folder_without_runs_is_said_so(tmp_path, capsys):
    assert main(["run", "list", str(tmp_path)]) == 0
    assert "no run in" in capsys.readouterr().out
    assert main(["run", "list", str(tmp_path / "none")]) == 2


# -- configs, config --check -----------------------------------------------------------------------

def test_published_settings_are_listed_and_copied(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["configs", "list"]) == 0
    assert capsys.readouterr().out.count("\n") == len(published()) > 20
    assert main(["configs", "copy", "cora-gcn"]) == 0
    assert make_config(toml_path="cora-gcn.toml").hidden == 16
    assert main(["configs", "copy", "cora-gcn"]) == 2          # it is there already
    assert main(["configs", "copy", "cora-gnc"]) == 2
    assert "did you mean 'cora-gcn'?" in capsys.readouterr().err


@pytest.mark.parametrize("name", published())
def test_every_published_file_is_right(name, tmp_path, capsys):
    (tmp_path / "a.toml").write_text(published()[name])
    assert main(["config", "--check", str(tmp_path / "a.toml")]) == 0
    assert "settings are right" in capsys.readouterr().out


def test_a_wrong_file_of_settings_is_refused(tmp_path, capsys):
    (tmp_path / "a.toml").write_text("layerz = 3\n")
    assert main(["config", "--check", str(tmp_path / "a.toml")]) == 2
    assert "did you mean 'layers'?" in capsys.readouterr().err


# -- completion ------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def bash(tmp_path_factory):
    """complete("train", "--met") -> what bash offers."""
    if not shutil.which("bash"):
        pytest.skip("no bash")
    path = tmp_path_factory.mktemp("completion") / "hpcgcn.bash"
    done = subprocess.run([sys.executable, "-m", "hpcgcn", "completion", "bash"], text=True,
                          capture_output=True, timeout=60, check=True)
    path.write_text(done.stdout)

    def complete(*words: str) -> list[str]:
        line = " ".join(f"'{word}'" for word in ("hpcgcn", *words))
        script = (f"source {path}; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _hpcgcn; "
                  'printf "%s\\n" "${COMPREPLY[@]}"')
        out = subprocess.run(["bash", "-c", script], text=True, capture_output=True, timeout=20,
                             cwd=path.parent, check=True).stdout
        return out.split()
    return complete


def test_bash_completes_commands_flags_choices_and_files(bash):
    assert sorted(bash("")) == sorted(COMMANDS)
    assert bash("tr") == ["train", "trace"]
    assert sorted(bash("train", "--met")) == ["--method", "--metric"]
    assert sorted(bash("train", "--method", "")) == sorted(PRESETS)
    assert bash("run", "li") == ["list"]
    assert "hpcgcn.bash" in bash("train", "")


def test_zsh_gets_the_same_words(capsys):
    assert main(["completion", "zsh"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("#compdef hpcgcn\n")
    assert all(f"    {name}) words_here=(" in text for name in COMMANDS)
    assert f"--method) compadd -- {' '.join(PRESETS)}" in text
    if shutil.which("zsh"):
        subprocess.run(["zsh", "-n"], input=text, text=True, check=True, timeout=20)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_parser_of_its_own(command):
    assert command_parser(command).prog == f"hpcgcn {command}"
