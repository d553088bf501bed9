"""Which package of hpcgcn imports which, read from the sources.

    python tests/architecture/import_graph.py       the graph, one package per line

A package is a folder below hpcgcn; the modules beside them (config, errors, philox, ...) count as
themselves. Imports within functions count too: they are edges all the same.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "hpcgcn"


def sources(root: Path = ROOT) -> dict[str, Path]:
    """Every module by its dotted name."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path, name: str, modules) -> set[str]:
    """The modules of the package that a source imports, as the import system would find them."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = (package.split(".")[:len(package.split(".")) - node.level + 1] if node.level
                     else [])
            base = ".".join([*above, *([node.module] if node.module else [])])
            inner = {f"{base}.{alias.name}" for alias in node.names}
            found |= {full if full in modules else base for full in inner}
    return {module for module in found if module == "hpcgcn" or module.startswith("hpcgcn.")}


def package_of(module: str) -> str:
    """The part of hpcgcn that a module belongs to: "hpcgcn.nn.steps.dense" is of "nn"."""
    return (module.split(".") + ["hpcgcn"])[1]


def edges(root: Path = ROOT) -> dict[tuple[str, str], set[str]]:
    """(package, imported package): the modules that do it."""
    modules, found = sources(root), {}
    for name, path in modules.items():
        for target in imported(path, name, modules):
            pair = package_of(name), package_of(target)
            if pair[0] != pair[1]:
                found.setdefault(pair, set()).add(name)
    return found


def drawn(root: Path = ROOT) -> str:
    """The graph as text."""
    graph = edges(root)
    lines = []
    for package in sorted({package for package, _ in graph}):
        lines.append(f"{package:12} -> "
                     f"{' '.join(sorted(target for source, target in graph if source == package))}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(drawn() + "\n")
