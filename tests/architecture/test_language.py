"""The project speaks the field's language: words that were replaced do not come back.

docs/glossary.md has the terms. The patterns are those of private words that once stood for them.
"""

import ast
import re
from pathlib import Path

import pytest
from import_graph import sources

ROOT = Path(__file__).resolve().parents[2]
TEXTS = [path for pattern in ("hpcgcn/**/*.py", "hpcgcn/backend/native/src/*", "benchmarks/**/*.py",
                              "tests/**/*.py", "jobs/**/*", "cuda/**/*", "docs/*.md", "data/*.md",
                              "*.md", "tests/*.md")
         for path in sorted(ROOT.glob(pattern))
         if path.suffix in (".py", ".md", ".cu", ".cuh", ".h", ".c", ".sh", ".sbatch", "")
         and path.is_file() and path.resolve() != Path(__file__).resolve()]

COUNTED = (r"rows|bytes|memory|MB|MiB|GB|ms|seconds|epochs|threads?|messages|exchanges?|once|twice|"
           r"times|number|columns|labels|bits|entries|transposes|numbers|files|requests")
EACH = (r"rank|hop|epoch|host|chunk|peer|receiver|stage|node|layer|second|element|thread|block|"
        r"warp|message|row|step|direction|class|link")
REPLACED = {
    "bytes per rank, once per host": rf"(?<!which )\b(?:{COUNTED}) an? (?:{EACH})\b(?!')",
    "sent, in flight": r"\btravel",
    "overlap, at the same time": r"\bmeanwhile\b",
    "the loss depends on, is in the loss": r"\bloss (?:already )?looks at\b",
    "aggregates": r"\blooks? at neighbours\b",
    "fix": r"\bmend(?:s|ed|ing)?\b",
    "progress": r"\bpok(?:e|ed|es|ing)\b",
    "heartbeat": r"\bheadway\b",
    "quantisation scale and offset": r"\bzero[ _]points?\b",
}


@pytest.mark.parametrize("term", REPLACED)
def test_replaced_words_do_not_return(term):
    pattern = re.compile(REPLACED[term], re.IGNORECASE)
    lines = [f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
             for path in TEXTS
             for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
             if pattern.search(line)]
    assert not lines, f"write: {term}\n" + "\n".join(lines)


def test_the_patterns_see_what_they_are_for():
    said = {"bytes per rank, once per host": "memory a rank; kept once a host",
            "sent, in flight": "rows that travel", "overlap, at the same time": "work meanwhile",
            "the loss depends on, is in the loss": "rows the loss looks at",
            "aggregates": "a layer that looks at neighbours", "fix": "can be mended",
            "progress": "poke MPI", "heartbeat": "no headway",
            "quantisation scale and offset": "zero point and step"}
    assert all(re.search(REPLACED[term], text) for term, text in said.items())
    plain = "which rows a rank reads; per rank; what a message's size is; look at docs"
    assert not any(re.search(pattern, plain) for pattern in REPLACED.values())


# Names that say only that something was found, not what it is.
EMPTY_NAMES = {"found", "wanted", "ends"}


def empty_names(path: Path) -> set[str]:
    """Variables and arguments of a source that have such a name."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
    return names & EMPTY_NAMES


def test_variables_are_named_by_what_they_hold():
    # doctor: the key under which its table has what it found on this machine.
    guilty = {name: empty for name, path in sources().items()
              if name != "hpcgcn.doctor" and (empty := empty_names(path))}
    assert not guilty


def test_empty_names_are_noticed(tmp_path):
    (tmp_path / "a.py").write_text("def f(wanted):\n    found = wanted\n    return found.ends\n")
    assert empty_names(tmp_path / "a.py") == {"wanted", "found"}
