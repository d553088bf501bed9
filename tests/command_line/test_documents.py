"""What the documents say is true: their commands run as they are written, their links lead
somewhere, their flags exist, their drawings and reference are those of the code."""

import functools
import importlib.util
import json
import pathlib
import random
import re
import shlex
import subprocess
import sys

import pytest
from graphs import random_graph
from launch import launch, rank_environment

from hpcgcn.cli import COMMANDS
from hpcgcn.config import FIELDS, flag_of
from hpcgcn.exchange.presets import PRESETS
from hpcgcn.graph.store import write_graph

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@functools.cache
def documents(name: str):
    """A script of docs/, as a module."""
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        spec = importlib.util.spec_from_file_location(f"documents_{name}",
                                                      ROOT / "docs" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(ROOT / "docs"))


def run_lines(lines: list[str], folder: pathlib.Path, replaced: dict[str, str] = {},  # noqa: B006
              added: tuple = ()):
    """Run commands one after the other; `added` to those that train."""
    for line in lines:
        words = [replaced.get(word, word) for word in shlex.split(line, comments=True)]
        ranks = int(words[2]) if words[0] == "mpirun" else 1
        words = words[3:] if words[0] == "mpirun" else words
        words += list(added) if words[1] == "train" else []
        launch(ranks, words, cwd=folder).check()


# -- commands --------------------------------------------------------------------------------------

def test_the_first_session_of_the_readme_runs(tmp_path):
    text = README.partition("\n## Start\n")[2].partition("\n## ")[0]
    lines = re.findall(r"^    ((?:mpirun -n \d+ )?hpcgcn .*)$", text, re.MULTILINE)
    assert len(lines) >= 6
    run_lines(lines, tmp_path, {"100000": "1000", "256": "16"}, ("--epochs", "3"))
    assert (tmp_path / "report.html").read_text().count("<canvas") == 2


@pytest.mark.slow
def test_a_first_hour_runs_as_it_is_written(tmp_path):
    """From a folder of CSV files to a report of three methods on four ranks."""
    page = (ROOT / "docs" / "first-hour.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```bash\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.strip()]
    assert len(lines) >= 14 and sum("train" in line for line in lines) == 3
    run_lines(lines, tmp_path)
    report = (tmp_path / "report.html").read_text()
    assert report.count("<canvas") == 3 and "sylvie-s" in report
    assert len((tmp_path / "classes.csv").read_text().splitlines()) == 2001
    for name in ("exact", "stale", "onebit"):
        summary = json.loads((tmp_path / "runs" / name / "summary.json").read_text())
        assert summary["best"]["test"] > 0.6 and summary["ranks"] == 4     # chance is 0.25


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
    page = (ROOT / "docs" / "how-to" / "import.md").read_text(encoding="utf-8")
    lines = re.findall(r"^    ((?:mpirun -n \d+ )?hpcgcn .*\braw.*)$", page, re.MULTILINE)
    assert len(lines) == 3
    raw_folder(tmp_path / "raw")
    run_lines(lines, tmp_path)
    summary = json.loads((tmp_path / "runs" / "raw" / "summary.json").read_text())
    assert summary["best"]["test"] > 0.8              # chance is 0.25


def test_the_script_of_the_readme_runs_on_two_ranks_again_and_again(tmp_path):
    code = README.partition("```python\n")[2].partition("```")[0]
    assert "train_model" in code
    (tmp_path / "script.py").write_text(code.replace("epochs=100", "epochs=10"))
    write_graph(tmp_path / "g.h5", random_graph())
    for _ in range(2):
        done = launch(2, [sys.executable, "script.py"], cwd=tmp_path).check()
        assert (done.stdout.count("1bit 0.01") == done.stdout.count("'test':") == 2
                and done.stdout.count("results: ") == 1)


# -- pages -----------------------------------------------------------------------------------------

def test_the_readme_is_two_screens():
    assert len(README.splitlines()) <= 100


def texts() -> dict[pathlib.Path, str]:
    """All pages of the site."""
    return {path: (ROOT / path).read_text(encoding="utf-8")
            for path in documents("build").pages() if path.suffix == ".md"}


def test_every_relative_link_leads_to_a_file():
    dead = [f"{page}: {target}" for page, text in texts().items()
            for target in documents("build").links(text)
            if not (ROOT / page.parent / target.partition("#")[0]).exists()]
    assert not dead


def test_a_dead_link_is_noticed():
    links = documents("build").links
    assert links("[a](b.md) ![c](d.png) [e](https://f.g) [h](#i)") == ["b.md", "d.png"]


def test_every_page_is_in_the_navigation():
    nav = (ROOT / "docs" / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    named = set(re.findall(r": (\S+\.md)$", nav, re.MULTILINE))
    pages = {str(page) for page in texts() if page.parts[0] == "docs"}
    assert pages <= named, pages - named


COMMAND_FLAGS = {"--config", "--plot", "--weights", "--normalise-features", "--oversubscribe",
                 "--reorder", "--nodes", "--degree", "--features", "--classes", "--fast-check",
                 "--undirected", "--labels", "--label-column", "--seed", "--format", "--help",
                 "--split", "--splits", "--json", "--by", "--to", "--what", "--check", "--time",
                 "--account", "--method", "--memory", "--force", "--forecast",
                 "--signal", "--overwrite", "--sort", "--once", "--png"}


def test_the_flags_of_readme_and_guides_exist():
    known = {flag_of(key) for key in FIELDS} | {flag_of("no_" + key) for key in FIELDS}
    pages = {page: text for page, text in texts().items()
             if str(page) == "README.md" or str(page).startswith(("docs/methods", "docs/how-to",
                                                                  "docs/first", "docs/training"))}
    used = {(str(page), flag) for page, text in pages.items()
            for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)}
    unknown = {(page, flag) for page, flag in used if flag not in known | COMMAND_FLAGS}
    assert len(used) > 100 and not unknown, unknown


def test_drawings_are_those_of_their_script():
    drawings = documents("drawings")
    for name, make in drawings.DRAWINGS.items():
        assert (drawings.FOLDER / f"{name}.svg").read_text(encoding="utf-8") == make().svg(), (
            "python docs/drawings.py writes them")


def test_the_reference_has_every_command_setting_and_preset(tmp_path):
    reference = documents("reference")
    reference.write(tmp_path)
    commands, settings, presets, python = ((tmp_path / f"{name}.md").read_text(encoding="utf-8")
                                           for name in ("commands", "settings", "presets",
                                                        "python"))
    assert [f"\n## {name}\n" in commands for name in COMMANDS] == [True] * len(COMMANDS)
    assert all(f"| `{flag_of(key)}` |" in settings for key in FIELDS)
    assert all(f"| `{name}` |" in presets for name in PRESETS)
    assert "## train_model" in python and "### Graph.from_numpy" in python


def test_the_site_has_no_dead_link(tmp_path):
    """`make docs` is strict: here with one dead link, then without."""
    pytest.importorskip("material", reason="make docs installs what builds the site")
    build = documents("build")
    build.main()
    page = build.SOURCE / "docs" / "glossary.md"

    def built() -> int:
        return subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict",
                               "--config-file", str(ROOT / "docs" / "mkdocs.yml"), "--site-dir",
                               str(tmp_path / "site")], capture_output=True, timeout=200,
                              env=rank_environment({"NO_MKDOCS_2_WARNING": "1"})).returncode
    assert built() == 0
    page.write_text(page.read_text() + "\n[nowhere](no-such-page.md)\n")
    assert built() != 0
