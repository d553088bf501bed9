"""The commands and the script of README.md run as they are written (on a smaller graph, for fewer
epochs)."""

import json
import pathlib
import random
import re
import shlex
import sys

from graphs import random_graph
from launch import launch

from hpcgcn.graph.store import write_graph

README = (pathlib.Path(__file__).resolve().parents[2] / "README.md").read_text()


def section(title: str) -> str:
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_commands_of_its_first_session_run_one_after_the_other(tmp_path):
    lines = re.findall(r"^    ((?:mpirun -n \d+ )?hpcgcn .*)$", section("Use"), re.MULTILINE)
    assert len(lines) >= 6
    for line in lines:
        words = shlex.split(line, comments=True)
        ranks = int(words[2]) if words[0] == "mpirun" else 1
        words = words[3:] if words[0] == "mpirun" else words
        words = [{"100000": "1000", "256": "16"}.get(word, word) for word in words]
        words += ["--epochs", "3"] if words[1] == "train" else []
        launch(ranks, words, cwd=tmp_path).check()
    assert (tmp_path / "report.html").exists() and (tmp_path / "classes.h5").exists()


def raw_folder(folder: pathlib.Path, n_nodes: int = 240):
    """edges.csv, target.csv and features.json as the MUSAE data sets have them."""
    rng = random.Random(1)
    kinds = ["company", "government", "politician", "tvshow"]
    of_node = [rng.randrange(len(kinds)) for _ in range(n_nodes)]
    edges = {tuple(sorted(rng.sample(range(n_nodes), 2))) for _ in range(6 * n_nodes)}
    edges = [pair for pair in edges if of_node[pair[0]] == of_node[pair[1]] or rng.random() < 0.2]
    folder.mkdir()
    (folder / "edges.csv").write_text("id_1,id_2\n" + "".join(f"{a},{b}\n" for a, b in edges)
                                      + "7,7\n")
    (folder / "target.csv").write_text("id,facebook_id,page_name,page_type\n" + "".join(
        f'{k},{10 ** 14 + k},"Page {k}, official",{kinds[kind]}\n'
        for k, kind in enumerate(of_node)))
    (folder / "features.json").write_text(json.dumps(
        {str(k): [rng.randrange(15) + 15 * kind for _ in range(6)] + [rng.randrange(60)]
         for k, kind in enumerate(of_node)}))


def test_a_raw_folder_becomes_a_trained_model_in_three_commands(tmp_path):
    lines = re.findall(r"^    ((?:mpirun -n \d+ )?hpcgcn .*\braw.*)$", section("Your graph"),
                       re.MULTILINE)
    assert len(lines) == 3
    raw_folder(tmp_path / "raw")
    for line in lines:
        words = shlex.split(line, comments=True)
        ranks = int(words[2]) if words[0] == "mpirun" else 1
        launch(ranks, words[3:] if words[0] == "mpirun" else words, cwd=tmp_path).check()
    summary = json.loads((tmp_path / "runs" / "raw" / "summary.json").read_text())
    assert summary["best"]["test"] > 0.8              # chance is 0.25


def test_its_script_runs_on_two_ranks_again_and_again(tmp_path):
    code = section("Use").partition("```python\n")[2].partition("```")[0]
    assert "train_model" in code
    (tmp_path / "script.py").write_text(code.replace("epochs=100", "epochs=10"))
    write_graph(tmp_path / "g.h5", random_graph())
    for _ in range(2):
        done = launch(2, [sys.executable, "script.py"], cwd=tmp_path).check()
        assert (done.stdout.count("1bit 0.01") == done.stdout.count("'test':") == 2
                and done.stdout.count("results: ") == 1)


def test_its_flags_exist():
    from hpcgcn.config import FIELDS, flag_of
    known = {flag_of(key) for key in FIELDS} | {flag_of("no_" + key) for key in FIELDS}
    known |= {"--method", "--config", "--plot", "--weights", "--normalise-features",
              "--oversubscribe", "--reorder", "--nodes", "--degree", "--features", "--classes",
              "--fast-check", "--undirected", "--labels", "--label-column", "--memory",
              "--force", "--forecast",
              "--seed", "--format", "--help", "--force-reinstall", "--no-deps"}
    used = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", README))
    assert used <= known, used - known
