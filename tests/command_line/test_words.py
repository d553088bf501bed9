"""What commands tell people: notes at the start of a run, choices in help, and what info knows."""

import json
import logging
import os
import re
import subprocess
import sys
import time

import pytest
from graphs import random_graph
from launch import launch, rank_environment

from hpcgcn import logs
from hpcgcn.config import FIELDS, flag_of
from hpcgcn.graph.store import write_graph
from hpcgcn.setting import choices_of


def hpcgcn(*args, cwd=None, **env):
    return subprocess.run([sys.executable, "-m", "hpcgcn", *map(str, args)], cwd=cwd,
                          capture_output=True, text=True, timeout=120, env=rank_environment(env))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    graph = random_graph()
    graph.extra = {"class_names": [f"kind {k}" for k in range(graph.n_classes)]}
    write_graph(folder / "g.h5", graph)
    hpcgcn("partition", "g.h5", "-n", "4", "--method", "block", "-o", "four.h5",
           cwd=folder).check_returncode()
    done = hpcgcn("train", "g.h5", "--epochs", "4", "--eval-every", "2", "--name", "first", "--lr",
                  "0.02", cwd=folder)
    done.check_returncode()
    return folder


def test_train_help_lists_every_choice(monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")        # lines are broken at hyphens, too
    shown = " ".join(hpcgcn("train", "--help").stdout.split())
    for key, spec in FIELDS.items():
        choices = choices_of(spec)
        assert flag_of(key) in shown
        if choices:
            assert f"({' | '.join(map(str, choices))})" in shown, key


@pytest.mark.parametrize("flags, noted",
                         [(("--method", "pipegcn"), "method = 'pipegcn'"),
                          (("--codec", "8bit"), "codec = '8bit'"),
                          ((), ""), (("--method", "mixgcn"), "")])
def test_communication_settings_on_one_rank_are_said_to_have_no_effect(folder, flags, noted):
    done = hpcgcn("train", "g.h5", "--epochs", "1", "--overwrite", "--name", "alone", *flags,
                  cwd=folder)
    assert done.returncode == 0, done.stderr
    assert ("on 1 rank it has no effect" in done.stderr) == bool(noted)
    assert noted in done.stderr, "what was given is named"


def test_communication_settings_on_two_ranks_are_not(folder):
    done = launch(2, ["hpcgcn", "train", "g.h5", "--epochs", "1", "--method", "pipegcn"],
                  cwd=folder).check()
    assert "has no effect" not in done.stderr


def test_roles_with_a_partition_file_say_what_they_need(folder):
    args = ["hpcgcn", "train", "--method", "mixgcn-moa", "--epochs", "1", "--overwrite", "--name",
            "roles"]
    done = launch(4, [*args, "four.h5"], cwd=folder)
    assert done.code == 2
    assert ("has 4 parts, but with roles only 2 of 4 ranks own nodes (2 only aggregate): give "
            "the graph file, or a partition file with 2 parts" in done.stderr)
    launch(4, [*args, "g.h5"], cwd=folder).check()


def test_train_announces_the_partition_file_that_it_writes(folder):
    args = ["hpcgcn", "train", "g.h5", "--epochs", "1", "--partition-method", "random", "--name",
            "parted", "--overwrite"]
    done = launch(2, args, cwd=folder).check()
    assert "partitioning g.h5 into 2 parts (random); they are kept in g-2-random.h5" in done.stderr
    assert (folder / "g-2-random.h5").exists()
    assert "partitioning" not in launch(2, args, cwd=folder).check().stderr


def test_quiet_prints_only_the_summary(folder):
    done = hpcgcn("train", "g.h5", "--epochs", "4", "--eval-every", "1", "--quiet", "--name",
                  "quiet", cwd=folder)
    assert done.returncode == 0 and done.stderr == ""
    assert not re.search(r"^epoch ", done.stdout,
                         re.MULTILINE) and "results: runs/quiet" in done.stdout


def test_progress_is_on_stdout_and_notes_are_on_stderr(folder):
    done = hpcgcn("train", "g.h5", "--epochs", "2", "--eval-every", "1", "--name", "loud",
                  "--method", "pipegcn", cwd=folder)
    assert done.stdout.count("epoch     ") == 2 and "results: " in done.stdout
    assert done.stderr.startswith("hpcgcn: method = 'pipegcn'") and done.stderr.count("\n") == 1


def test_old_flags_work_with_a_note(folder):
    args = ["hpcgcn", "train", "g.h5", "--epochs", "1", "--method", "gnnpipe", "--ways", "2",
            "--layers", "2", "--name", "old"]
    done = launch(2, args, cwd=folder).check()
    assert "'ways' in the command line is now called 'partitions_per_stage'" in done.stderr
    assert "partitions_per_stage = 2" in (folder / "runs/old/config.toml").read_text()


def test_info_shows_class_names(folder):
    shown = hpcgcn("info", "g.h5", cwd=folder).stdout
    assert "0 kind 0" in shown
    assert json.loads(hpcgcn("info", "g.h5", "--json",
                             cwd=folder).stdout)["contents"]["class_names"][1] == "kind 1"


def test_info_shows_runs_and_checkpoints(folder):
    facts = json.loads(hpcgcn("info", "runs/first", "--json", cwd=folder).stdout)
    assert (facts["state"] == "finished" and facts["epochs"] == 4
            and facts["checkpoints"] == ["epoch-000004"])
    assert (facts["settings"]["lr"] == 0.02 and "layers" not in facts["settings"]
            and 0 <= facts["test"] <= 1)
    shown = hpcgcn("info", "runs/first", cwd=folder).stdout
    assert "finished" in shown and "epoch-000004" in shown and "lr" in shown
    of_checkpoint = hpcgcn("info", "runs/first/checkpoints/epoch-000004", cwd=folder)
    assert of_checkpoint.returncode == 0 and "checkpoint" in of_checkpoint.stdout


@pytest.mark.parametrize("path, words", [("runs", "it holds runs, though: give runs/"),
                                         (".", "is not the folder of a run")])
def test_info_refuses_other_folders(folder, path, words):
    done = hpcgcn("info", path, cwd=folder)
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr


def test_a_reader_that_goes_away_does_not_end_a_run(folder):
    command = f"{sys.executable} -m hpcgcn train g.h5 --epochs 40 --eval-every 1 --name piped"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command} | head -n 1"], cwd=folder,
                          capture_output=True, text=True, timeout=120, env=rank_environment())
    assert done.returncode == 0 and done.stderr == "" and done.stdout.count("\n") == 1
    assert json.loads((folder / "runs/piped/summary.json").read_text())["epochs"] == 40


@pytest.mark.parametrize("command", [["methods"], ["config"], ["info", "g.h5"]])
def test_other_commands_end_quietly_if_their_reader_goes_away(folder, command):
    words = " ".join(map(str, command))
    done = subprocess.run(["bash", "-c", f"{sys.executable} -m hpcgcn {words} | true"], cwd=folder,
                          capture_output=True, text=True, timeout=120,
                          env=rank_environment({"PYTHONUNBUFFERED": ""}))
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}


def test_an_ascii_locale_reads_and_writes_other_names(folder):
    name = "größe-図"
    args = ("train", "g.h5", "--epochs", "1", "--name", name)
    done = hpcgcn(*args, cwd=folder, **ASCII)
    assert done.returncode in (0, 2) and "Traceback" not in done.stderr, done.stderr
    hpcgcn(*args, "--overwrite", cwd=folder).check_returncode()
    for command in (("info", f"runs/{name}"), ("info", f"runs/{name}", "--json"),
                    ("evaluate", f"runs/{name}", "g.h5"),
                    ("report", f"runs/{name}", "-o", "report.html")):
        done = hpcgcn(*command, cwd=folder, **ASCII)
        assert done.returncode == 0, (command, done.stderr)


@pytest.mark.parametrize("flags, words", [
    (("--stall-timeout", "inf"), "expected a finite number"),
    (("--stall-timeout", "-1"), "at least 0"),
    (("--stall-timeout", "1e300"), "at most"), (("--threads", "1e20"), "invalid int value"),
    (("--threads", "100000000000000000000"), "at most 4096"),
    (("--split-index", "-1"), "at least 0"), (("--split-index", "9"), "splits 0..0"),
    (("--seed", "-1"), "at least 0"), (("--seed", "9" * 30), "at most"),
    (("--name", "a\nb"), "without line feeds"), (("--output", "a\nb"), "without line feeds"),
    (("--name", "\x1b[31mred"), "printable"),
    (("--feature-blocks", "100000", "--method", "mixgcn"), "at most 1024"),
    (("--epochs", "99999999999999999999"), "at most"), (("--time-limit", "nan"), "finite"),
    (("--rate", "\n"), "printable"),
], ids=str)
@pytest.mark.parametrize("ranks", [1, 2])
def test_impossible_values_are_refused_with_one_message(folder, flags, words, ranks):
    if ranks == 2 and flags[0] not in ("--stall-timeout", "--seed"):
        pytest.skip("the same on any number of ranks")
    done = launch(ranks, ["hpcgcn", "train", "g.h5", "--epochs", "1", *flags], cwd=folder,
                  timeout=60)
    assert done.code == 2 and words in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert sum(line.startswith("hpcgcn") for line in done.stderr.splitlines()) == 1
    assert not any("\n" in name for name in os.listdir(folder))


def test_many_ranks_say_that_they_start(folder):
    done = launch(8, ["hpcgcn", "train", "g.h5", "--epochs", "1", "--name", "many"],
                  cwd=folder).check()
    assert done.stderr.count("starting 8 ranks ...") == 1


def test_a_slow_phase_is_named_and_a_fast_one_is_not(monkeypatch, caplog):
    monkeypatch.setattr(logs, "PATIENCE_SECONDS", 0.05)
    log = logging.getLogger("hpcgcn.test")
    with caplog.at_level(logging.INFO, "hpcgcn"):
        with logs.named_if_slow(log, "reading"):
            while "reading ..." not in caplog.text:
                time.sleep(0.01)
        with logs.named_if_slow(log, "of another rank", speaks=False):
            time.sleep(0.2)
        with logs.named_if_slow(log, "fast"):
            pass
        time.sleep(0.2)
    assert caplog.messages == ["reading ..."]


@pytest.mark.parametrize("command", [
    ("generate", "sbm", "-o", "new.h5", "--seed", "-1"),
    ("generate", "grid", "-o", "new.h5", "--seed", "1" * 30),
    ("partition", "g.h5", "-n", "2", "-o", "new.h5", "--seed", "-1"),
    ("partition", "g.h5", "-n", "0"), ("import", "four.h5", "-o", "new.h5", "--seed", "-1"),
    ("import", "four.h5", "-o", "new.h5", "--splits", "99999999"),
    ("evaluate", "runs/first", "g.h5", "--split-index", "-1"),
    ("evaluate", "runs/first", "g.h5", "--backend", "no"),
    ("predict", "runs/first", "g.h5", "-o", "new.h5", "--what", "embeddings", "--layer", "0")],
                         ids=" ".join)
def test_impossible_values_of_other_commands_are_refused(folder, command):
    done = hpcgcn(*command, cwd=folder)
    assert (done.returncode == 2 and done.stderr.count("\n") == 1
            and done.stderr.startswith("hpcgcn: ")), done.stderr
    assert not (folder / "new.h5").exists()
