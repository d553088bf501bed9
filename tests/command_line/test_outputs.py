"""No command replaces a file that is not its own: commands against targets, bytes compared."""

import os
import shutil
import stat

import pytest
from folders import contents
from launch import launch

from hpcgcn.cli import main

SMALL = ["--nodes", "60", "--degree", "6", "--features", "4", "--classes", "3"]
# name: (ending of its output, command with the output last)
COMMANDS = {
    "generate": (".h5", ["generate", "sbm", *SMALL, "--seed", "5", "-o"]),
    "import": (".h5", ["import", "csv", "edges.csv", "-o"]),
    "partition": (".h5", ["partition", "g.h5", "-n", "2", "-o"]),
    "predict": (".h5", ["predict", "runs/a", "g.h5", "-o"]),
    "predict csv": (".csv", ["predict", "runs/a", "g.h5", "-o"]),
    "export file": (".npz", ["export", "g.h5", "--format", "npz", "-o"]),
    "export folder": ("", ["export", "g.h5", "--format", "csv", "-o"]),
    "weights export": (".safetensors", ["weights", "export", "runs/a", "-o"]),
    "weights import": ("", ["weights", "import", "w.safetensors", "-o"]),
    "report": (".html", ["report", "runs/a", "-o"]),
    "report picture": (".png", ["report", "runs/a", "--png"]),
    "info picture": (".png", ["info", "g.h5", "--plot"]),
}
# The input that is tried as the output, if not g.h5 (which generate does not read).
INPUTS = {"import": "edges.csv", "weights import": "w.safetensors",
          "weights export": "runs/a/run.json", "report": "runs/a/metrics.csv",
          "report picture": "runs/a/metrics.csv"}
NO_FLAG = ("weights import",)                    # which takes no --overwrite: it makes a new folder
# Formats that do not tell whose a file is: with --overwrite any regular file may be replaced.
FOREIGN = ("predict csv", "export file", "report picture", "info picture")
PICTURES = ("report picture", "info picture")


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """Two graphs, two runs, an edge list and a weight file."""
    folder = tmp_path_factory.mktemp("outputs")
    before = os.getcwd()
    os.chdir(folder)
    try:
        for name, seed in (("g", 1), ("other", 2)):
            assert main(["generate", "sbm", *SMALL, "--seed", str(seed), "-o", f"{name}.h5"]) == 0
        for name, graph in (("a", "g"), ("b", "other")):
            assert main(["train", f"{graph}.h5", "--epochs", "2", "--hidden", "4", "--layers", "2",
                         "--name", name, "--quiet"]) == 0
        assert main(["weights", "export", "runs/b", "-o", "w.safetensors"]) == 0
    finally:
        os.chdir(before)
    (folder / "edges.csv").write_text("source,target\n0,1\n1,2\n2,0\n")
    return folder


@pytest.fixture
def here(template, tmp_path, monkeypatch):
    shutil.copytree(template, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def put_other_graph(name, path, here):
    shutil.copy(here / "other.h5", path)


def put_text(name, path, here):
    path.write_text("my notes\n")


def put_empty(name, path, here):
    path.write_text("")


def put_link_to_file(name, path, here):
    (here / "linked").write_text("my notes\n")
    path.symlink_to("linked")


def put_dangling_link(name, path, here):
    path.symlink_to("nowhere")


def put_pipe(name, path, here):
    os.mkfifo(path)


def put_device(name, path, here):
    if os.geteuid():
        pytest.skip("only root makes device nodes")
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))       # as /dev/null
    except OSError:
        pytest.skip("no device nodes can be made here")


def put_folder(name, path, here):
    path.mkdir()
    (path / "notes.txt").write_text("my notes\n")


def put_input(name, path, here):
    """A second name of an input file, or a file of an input folder itself."""
    given = here / INPUTS.get(name, "g.h5")
    if "runs" in INPUTS.get(name, ""):
        return given
    os.link(given, path)


def put_file_of_another_run(name, path, here):
    """A name that the run's own marker lists."""
    path.parent.mkdir(exist_ok=True)
    marker = here / "runs" / "b" / "run.json"
    marker.write_text(marker.read_text().replace('"choices.json"', f'"{path.name}"'))
    moved = here / "runs" / "b" / path.name
    moved.write_text("of the run\n")
    return moved


def put_run_folder(name, path, here):
    shutil.copytree(here / "runs" / "b", path)


TARGETS = {"another graph": put_other_graph, "text": put_text, "empty file": put_empty,
           "link to a file": put_link_to_file, "dangling link": put_dangling_link,
           "pipe": put_pipe, "device": put_device, "folder": put_folder, "own input": put_input,
           "file of another run": put_file_of_another_run, "run folder": put_run_folder}
# What --overwrite allows, as the file is of the command's own kind or the format does not tell.
ALLOWED = ({("generate", "another graph"), ("import", "another graph"), ("generate", "own input")}
           | {(name, target) for name in FOREIGN for target in ("text", "empty file")})


def refused(arguments, capsys) -> str:
    """The one message of a command that ends with 2."""
    capsys.readouterr()
    assert main(arguments) == 2
    message = capsys.readouterr().err
    assert message.startswith("hpcgcn: ") and "Traceback" not in message, message
    assert "cannot write" in message or "neither" in message, message
    return message


@pytest.mark.parametrize("flag", [[], ["--overwrite"]], ids=["plain", "overwrite"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_not_its_own_stays(here, capsys, name, target, flag):
    if flag and name in NO_FLAG:
        pytest.skip("takes no --overwrite")
    if name in PICTURES:
        pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    ending, command = COMMANDS[name]
    path = here / f"target{ending}"
    path = TARGETS[target](name, path, here) or path
    before = contents(here)
    if flag and (name, target) in ALLOWED:
        assert main([*command, str(path), *flag]) == 0
        changed = {name for name, state in contents(here).items() if before.get(name) != state}
        assert changed == {path.name}
        return
    refused([*command, str(path), *flag], capsys)
    assert contents(here) == before


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in (
    *FOREIGN, "export folder", "weights import")])
def test_its_own_output_is_replaced(here, name):
    ending, command = COMMANDS[name]
    path = here / f"target{ending}"
    assert main([*command, str(path)]) == 0
    before, number = set(contents(here)), os.stat(path).st_ino
    assert main([*command, str(path)]) == 0
    assert set(contents(here)) == before, "nothing temporary is left"
    assert os.stat(path).st_ino != number, "it is a new file"


def test_an_empty_folder_may_be_filled(here):
    (here / "new").mkdir()
    assert main(["export", "g.h5", "--format", "csv", "-o", "new"]) == 0
    assert sorted(os.listdir(here / "new")) == ["edges.csv.gz", "nodes.csv.gz"]


@pytest.mark.parametrize("name,own,other", [
    ("partition", ["g.h5"], ["other.h5"]), ("predict", ["runs/a", "g.h5"], ["runs/b", "other.h5"]),
    ("weights export", ["runs/a"], ["runs/b"]), ("report", ["runs/a"], ["runs/b"])])
def test_the_same_kind_of_another_graph_or_run_needs_the_flag(here, capsys, name, own, other):
    ending, command = COMMANDS[name]
    path = str(here / f"target{ending}")
    words = name.split()
    rest = command[len(words) + len(own):]
    assert main([*words, *own, *rest, path]) == 0
    before = contents(here)
    assert "--overwrite" in refused([*words, *other, *rest, path], capsys)
    assert contents(here) == before
    assert main([*words, *other, *rest, path, "--overwrite"]) == 0
    assert contents(here) != before


def test_a_report_grows_by_runs_and_is_not_replaced_by_one_of_fewer(here, capsys):
    assert main(["report", "runs/a"]) == 0 and main(["report", "runs/a", "runs/b"]) == 0
    refused(["report", "runs/b"], capsys)


@pytest.mark.parametrize("target", ["another graph", "text", "link to a file", "pipe",
                                    "a partition of another graph"])
def test_train_replaces_nothing_beside_the_graph(here, capsys, target):
    path = here / "g-2.h5"
    if target in TARGETS:
        TARGETS[target]("train", path, here)
    else:
        assert main(["partition", "other.h5", "-n", "2", "-o", str(path)]) == 0
    before = contents(here)
    done = launch(2, ["hpcgcn", "train", "g.h5", "--epochs", "1", "--name", "new"], cwd=here)
    assert done.code == 2, done.stderr
    assert "cannot write" in done.stderr and "g-2.h5" in done.stderr
    assert "Traceback" not in done.stderr
    assert contents(here) == before
