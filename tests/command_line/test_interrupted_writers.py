"""Signals, closed pipes, locales and places that cannot be written: no rubbish, no traceback."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from folders import contents
from launch import rank_environment

from hpcgcn.graph.generate import generate_sbm
from hpcgcn.graph.store import write_graph

MAIN = [sys.executable, "-m", "hpcgcn"]


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A graph whose files take a while to write."""
    path = tmp_path_factory.mktemp("large") / "g.h5"
    graph = generate_sbm(30_000, 10, 8, 4, seed=1)
    graph.features = np.random.default_rng(0).standard_normal((30_000, 500), np.float32)
    write_graph(path, graph)
    return path


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("command", [["partition", "{graph}", "-n", "2", "--method", "block", "-o"],
                                     ["export", "{graph}", "--format", "npz", "-o"],
                                     ["export", "{graph}", "--format", "ogb", "-o"]],
                         ids=["partition", "export-file", "export-folder"])
def test_a_signal_leaves_nothing(large, tmp_path, command, number):
    words = [word.format(graph=large) for word in command]
    process = subprocess.Popen([*MAIN, *words, str(tmp_path / "out.npz")], env=rank_environment(),
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    limit = time.monotonic() + 120
    while not os.listdir(tmp_path) and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.001)
    assert [name
            for name in os.listdir(tmp_path) if name.startswith(".hpcgcn-")], "not seen writing"
    process.send_signal(number)
    said = process.communicate(timeout=60)[1]
    assert process.returncode in (-number, 130), said
    assert os.listdir(tmp_path) == [] and "Traceback" not in said


INTERRUPTED = """
import sys, h5py
from hpcgcn.files.h5 import atomic_h5
class Interrupted(h5py.File):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        raise KeyboardInterrupt
h5py.File = Interrupted
try:
    with atomic_h5(sys.argv[1]):
        pass
except KeyboardInterrupt as error:
    kept = error             # and with it, until Python ends, what h5py has opened
"""


def test_a_signal_within_h5py_leaves_nothing_open(tmp_path):
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, str(tmp_path / "g.h5")],
                          env=rank_environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr == "" and os.listdir(tmp_path) == []


@pytest.fixture
def here(tmp_path):
    write_graph(tmp_path / "g.h5", generate_sbm(60, 6, 4, 3, seed=1))
    return tmp_path


TRAIN = ["train", "g.h5", "--epochs", "400", "--eval-every", "1", "--hidden", "4", "--name", "a"]


@pytest.mark.parametrize("redirect", ["", "2>&1"])
def test_a_reader_that_goes_away_does_not_end_the_run(here, redirect):
    line = (f"{sys.executable} -m hpcgcn {' '.join(TRAIN)} {redirect} | head -n 1; echo "
            f"${{PIPESTATUS[0]}}")
    done = subprocess.run(["bash", "-c", line], cwd=here, env=rank_environment(),
                          capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "0" and "Traceback" not in done.stderr + done.stdout
    assert "Exception ignored" not in done.stderr
    assert os.listdir(here / "runs" / "a" / "checkpoints")[-1] in ("epoch-000350", "epoch-000400")
    assert (here / "runs" / "a" / "summary.json").exists()


@pytest.mark.parametrize("words", [["info", "g.h5"], ["config"], ["methods"],
                                   ["partition", "g.h5", "-n", "2"]])
def test_other_commands_end_quietly_without_a_reader(here, words):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*MAIN, *words], cwd=here, env=rank_environment(), stdout=writer,
                          stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writer)
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    assert not [name for name in os.listdir(here) if name.startswith(".hpcgcn-")]


@pytest.fixture
def trained(here):
    subprocess.run([*MAIN, *TRAIN[:2], "--epochs", "2", "--hidden", "4", "--name", "a"], cwd=here,
                   env=rank_environment(), check=True, capture_output=True, timeout=60)
    return here


# Written at once, or when the buffer is full or the command ends.
BUFFERING = [{"PYTHONUNBUFFERED": "1"}, {"PYTHONUNBUFFERED": ""}]
RESULTS = [["evaluate", "runs/a", "g.h5"], ["predict", "runs/a", "g.h5", "-o", "p.h5"]]


@pytest.mark.parametrize("buffering", BUFFERING, ids=["at once", "buffered"])
def test_a_full_disk_behind_stdout(trained, buffering):
    """Training goes on without its messages; what only prints says that it could not."""
    for words, code in (([*TRAIN, "--resume"], 0), *((words, 2) for words in RESULTS),
                        (["info", "g.h5"], 2), (["config"], 2)):
        with open("/dev/full", "w") as full:
            done = subprocess.run([*MAIN, *words], cwd=trained, env=rank_environment(buffering),
                                  stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        assert done.returncode == code, (words, done.stderr)
        assert "hpcgcn: stdout cannot be written" in done.stderr, words
        assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr, words
    assert "epoch-000400" in os.listdir(trained / "runs" / "a" / "checkpoints")


@pytest.mark.parametrize("buffering", BUFFERING, ids=["at once", "buffered"])
@pytest.mark.parametrize("words", RESULTS, ids=["evaluate", "predict"])
def test_results_without_a_reader(trained, words, buffering):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*MAIN, *words], cwd=trained, env=rank_environment(buffering),
                          stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writer)
    assert done.returncode == 0 and done.stderr == ""


@pytest.mark.parametrize("words", [TRAIN, ["info", "g.h5"]], ids=["train", "info"])
def test_closed_streams_are_no_obstacle(here, words):
    line = f"{sys.executable} -m hpcgcn {' '.join(words)} >&- 2>&-"
    assert subprocess.run(["bash", "-c", line], cwd=here, env=rank_environment(),
                          timeout=120).returncode == 0


@pytest.mark.parametrize("variables", [{"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0",
                                                         "PYTHONCOERCECLOCALE": "0"}])
def test_an_ascii_locale_is_no_obstacle(tmp_path, variables):
    (tmp_path / "kanten.csv").write_text("source,target\n0,1\n1,2\n2,3\n3,0\n")
    (tmp_path / "knoten.csv").write_text(
        "id,label,split,x\n0,Größe,train,1\n1,Maß,train,2\n2,Größe,val,3\n3,Maß,test,4\n",
        encoding="utf-8")
    env = rank_environment(variables)
    for words in (["import", "csv", "kanten.csv", "knoten.csv", "-o", "größe.h5"],
                  ["info", "größe.h5"],
                  ["train", "größe.h5", "--epochs", "2", "--hidden", "4", "--name", "lauf"],
                  ["train", "größe.h5", "--epochs", "3", "--hidden", "4", "--name", "lauf",
                   "--resume"],
                  ["predict", "runs/lauf", "größe.h5", "-o", "klassen.csv"],
                  ["report", "runs/lauf", "-o", "größe.html"],
                  ["export", "größe.h5", "--format", "csv", "-o", "größe"]):
        done = subprocess.run([*MAIN, *words], cwd=tmp_path, env=env, capture_output=True,
                              timeout=60)
        assert done.returncode == 0, (words, done.stderr)
    assert "Größe" in (tmp_path / "klassen.csv").read_text(encoding="utf-8") or \
        "Maß" in (tmp_path / "klassen.csv").read_text(encoding="utf-8")


READ_ONLY = ["unshare", "--mount", "sh", "-c",
             'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"']


@pytest.mark.parametrize("words", [
    ["train", "g.h5", "--epochs", "2", "--output", "locked"],
    ["train", "g.h5", "--epochs", "2", "--output", "locked/below"],
    ["partition", "g.h5", "-n", "2", "-o", "locked/p.h5"],
    ["export", "g.h5", "--format", "npz", "-o", "locked/x.npz"],
    ["export", "g.h5", "--format", "csv", "-o", "locked/x"],
    ["generate", "sbm", "-o", "locked/x.h5", "--nodes", "50"]])
def test_a_place_that_is_read_only_is_one_message(here, words):
    (here / "locked").mkdir()
    around = []
    if os.geteuid() == 0:
        around = [*READ_ONLY, str(here / "locked")]
        if subprocess.run([*around, "true"], capture_output=True).returncode:
            pytest.skip("no mounts can be made here")
    else:
        (here / "locked").chmod(0o500)
    before = contents(here)
    done = subprocess.run([*around, *MAIN, *words], cwd=here, env=rank_environment(),
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("hpcgcn: cannot write") and done.stderr.count("\n") == 1
    assert contents(here) == before
