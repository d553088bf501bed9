"""Packages import downwards only: a model knows no ranks, an exchange no strategy, a graph no file
format.

`python tests/architecture/import_graph.py` draws the graph that is tested here. A new edge is a
decision: write it down in MAY_IMPORT, or do without.
"""

import re
import tokenize

import pytest
from import_graph import ROOT, drawn, edges, sources

BASE = {"errors", "hpcgcn", "logs", "philox", "setting"}       # hpcgcn itself: its version

MAY_IMPORT = {
    "backend": set(),
    "cli": {"config", "doctor", "exchange", "files", "formats", "graph", "info", "mpi", "nn",
            "parallel", "report", "timeline", "train", "weights"},
    "config": {"backend", "exchange", "nn", "parallel", "trace"},
    "doctor": {"backend", "mpi"},
    "exchange": {"backend", "mpi"},
    "files": set(),
    "formats": {"files", "graph"},
    "graph": {"backend", "files"},
    "info": {"files", "graph", "train"},
    "hpcgcn": {"config", "graph", "info", "train"},
    "logs": set(),
    "mpi": {"files", "trace"},
    "nn": {"backend"},
    "parallel": {"backend", "exchange", "files", "graph", "mpi", "nn", "trace"},
    "report": {"config", "files", "timeline", "trace", "train"},
    "setting": set(),
    "timeline": {"files", "mpi", "trace"},
    "trace": set(),
    "train": {"backend", "config", "exchange", "files", "graph", "mpi", "nn", "parallel",
              "timeline", "trace"},
    "weights": {"config", "files", "formats", "mpi", "nn", "train"},
}

NEVER = [("nn", "parallel"), ("nn", "exchange"), ("nn", "mpi"), ("graph", "mpi"),
         ("graph", "formats"), ("exchange", "parallel"), ("exchange", "train"), ("exchange", "nn"),
         ("mpi", "exchange"), ("backend", "nn")]


def wrong_edges() -> dict[tuple[str, str], set[str]]:
    """Edges that no one has allowed, with the modules that make them."""
    return {(source, target): who for (source, target), who in edges().items()
            if target not in MAY_IMPORT.get(source, set()) | BASE and source != "__main__"}


def test_no_package_imports_one_above_it():
    wrong = wrong_edges()
    assert not wrong, f"imports that the layers do not allow: {wrong}\n{drawn()}"


@pytest.mark.parametrize("source, target", NEVER, ids="-".join)
def test_what_separates_the_ideas_is_not_allowed_by_mistake(source, target):
    assert target not in MAY_IMPORT[source]


def test_the_layers_have_no_cycle():
    below, left = [], {package: set(targets) for package, targets in MAY_IMPORT.items()}
    while left:
        free = [package for package, targets in left.items() if targets <= set(below)]
        assert free, f"these import each other: {left}"
        below += free
        left = {package: targets for package, targets in left.items() if package not in free}


# -- names -----------------------------------------------------------------------------------------

def code_words(path) -> set[str]:
    """Names and whole strings in a source, without comments and docstrings: what the program can
    act on."""
    words = set()
    with open(path, "rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.NAME:
                words.add(token.string)
            elif token.type == tokenize.STRING and re.fullmatch(r"""['"][\w-]+['"]""",
                                                                token.string):
                words.add(token.string[1:-1])
    return words


def of_package(package: str) -> dict[str, set[str]]:
    """The words of each module of a package."""
    return {name: code_words(path) for name, path in sources().items()
            if name.startswith(f"hpcgcn.{package}.") or name == f"hpcgcn.{package}"}


def test_parallel_names_no_model():
    from hpcgcn.nn.models import MODELS
    names = set(MODELS) | {model.__name__ for model in MODELS.values()}
    found = {module: names & words
             for module, words in of_package("parallel").items() if names & words}
    assert MODELS and not found


def test_nothing_outside_parallel_asks_which_strategy_it_is():
    asks = re.compile(r"\bparallel\s*(?:==|!=|\bin\b)")
    found = {name for name, path in sources().items() if not name.startswith("hpcgcn.parallel")
             and any(asks.search(line) for line in path.read_text().splitlines()
                     if not line.lstrip().startswith("#"))}
    assert not found


# -- the drawing itself ----------------------------------------------------------------------------

def test_every_kind_of_import_is_an_edge(tmp_path):
    root = tmp_path / "hpcgcn"
    for folder in ("nn", "mpi", "graph", "exchange"):
        (root / folder).mkdir(parents=True)
        (root / folder / "__init__.py").write_text("")
    (root / "__init__.py").write_text("")
    (root / "mpi" / "world.py").write_text("")
    (root / "nn" / "a.py").write_text("import hpcgcn.mpi.world\n")
    (root / "nn" / "b.py").write_text("def late():\n    from hpcgcn import graph\n")
    (root / "nn" / "c.py").write_text("from ..exchange import anything\nfrom . import a\nimport "
                                      "numpy\n")
    assert edges(root) == {("nn", "mpi"): {"hpcgcn.nn.a"}, ("nn", "graph"): {"hpcgcn.nn.b"},
                           ("nn", "exchange"): {"hpcgcn.nn.c"}}


def test_the_sources_are_found():
    assert len(sources()) > 100 and sources()["hpcgcn"] == ROOT / "__init__.py"
