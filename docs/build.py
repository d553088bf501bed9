"""Copies what the documentation site shows to build/docs/source, in the places that it has here.

    python docs/build.py && mkdocs build --strict --config-file docs/mkdocs.yml     (make docs)

Pages link to each other as they do in the repository. Links to folders go to a list of what is in
them, links to source files become plain text.
"""

from __future__ import annotations

import pathlib
import re
import shutil

import reference

ROOT = pathlib.Path(__file__).resolve().parents[1]
SOURCE = ROOT / "build" / "docs" / "source"
SHOWN = ("*.md", "docs/**/*.md", "docs/**/*.svg", "docs/*.png", "benchmarks/results/*.md",
         "benchmarks/results/*.png", "data/*.md", "jobs/*.md", "cuda/*.md", "tests/*.md")
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def pages() -> list[pathlib.Path]:
    """All files that the site shows, relative to the root."""
    return sorted({path.relative_to(ROOT) for pattern in SHOWN for path in ROOT.glob(pattern)})


def links(text: str) -> list[str]:
    """The relative targets that a page links to."""
    return [target for _, _, target in LINK.findall(text)
            if not target.startswith(("http:", "https:", "mailto:", "#"))]


def main():
    """Make the copy."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    shown = pages()
    for path in shown:
        target = SOURCE / ("index.md" if path.name == "README.md" and len(path.parts) == 1
                           else path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            target.write_text(_adapted(ROOT / path, set(shown)), encoding="utf-8")
        else:
            shutil.copyfile(ROOT / path, target)
    reference.write(SOURCE / "docs" / "reference")
    _list_tables(SOURCE / "benchmarks" / "results")


def _adapted(page: pathlib.Path, shown: set[pathlib.Path]) -> str:
    def replace(match) -> str:
        bang, words, target = match.groups()
        if target.startswith(("http:", "https:", "mailto:", "#")):
            return match.group(0)
        name, _, anchor = target.partition("#")
        at = (page.parent / name).resolve().relative_to(ROOT)
        if at == pathlib.Path("benchmarks/results"):
            return f"[{words}]({target.rstrip('/')}/README.md)"
        if at == pathlib.Path("README.md"):
            return f"[{words}]({name.replace('README.md', 'index.md')})"
        if at in shown or str(at).startswith("docs/reference"):
            return match.group(0)
        readme = at / "README.md"
        return f"[{words}]({target.rstrip('/')}/README.md)" if readme in shown else words
    return LINK.sub(replace, page.read_text(encoding="utf-8"))


def _list_tables(folder: pathlib.Path):
    """A page that names all tables."""
    rows = []
    for page in sorted(folder.glob("*.md")):
        title = page.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
        rows.append(f"| [{page.stem}]({page.name}) | {title} |\n")
    (folder / "README.md").write_text("# All tables\n\nEach says which command made it, on which "
                                      "machine.\n\n| table | what was measured |\n|---|---|\n"
                                      + "".join(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
