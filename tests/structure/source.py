"""The package as its source tells it: modules, imports, classes with methods and attributes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "hpcgcn"


@dataclass
class Module:
    """One file of the package."""

    name: str                        # hpcgcn.nn.plan
    path: Path
    tree: ast.Module

    @property
    def package(self) -> str:
        """What the rules on imports speak of: nn, parallel.layers, or the module itself (errors)."""
        return package_of(self.name)


def package_of(name: str) -> str:
    """The part of the package that a module belongs to; a strategy counts as one."""
    words = name.split(".")[1:]
    if words[:1] == ["parallel"] and len(words) > 1 and (PACKAGE / "parallel" / words[1]).is_dir():
        return f"parallel.{words[1]}"
    return words[0] if words else "hpcgcn"


def modules() -> Iterator[Module]:
    """All Python files of the package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if "cuda_sources" in path.parts:             # a link to cuda/
            continue
        words = list(path.relative_to(ROOT).with_suffix("").parts)
        name = ".".join(words[:-1] if words[-1] == "__init__" else words)
        yield Module(name, path, ast.parse(path.read_text(encoding="utf-8")))


def imports(module: Module) -> set[str]:
    """The modules of this package that a module imports, anywhere in its code."""
    found = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from hpcgcn.mpi import world` names a module, `from hpcgcn.errors import X` does not.
            found |= {_module_named(node.module, alias.name) for alias in node.names}
    return {name for name in found if name.split(".")[0] == "hpcgcn"}


def _module_named(parent: str, name: str) -> str:
    path = ROOT / Path(*parent.split(".")) / name
    return f"{parent}.{name}" if path.is_dir() or path.with_suffix(".py").exists() else parent


def classes(module: Module) -> Iterator[ast.ClassDef]:
    """The classes of a module, also those within others."""
    yield from (node for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef))


def functions(body: list[ast.stmt]) -> list[ast.FunctionDef]:
    """The functions that are defined directly in a module or class."""
    return [node for node in body if isinstance(node, ast.FunctionDef)]


def methods(kind: ast.ClassDef) -> list[str]:
    """Names of a class's methods; properties are methods."""
    return [function.name for function in functions(kind.body)]


def attributes(kind: ast.ClassDef) -> set[str]:
    """Names that instances hold: set on self anywhere, or declared in the class's body."""
    names = {target.id for node in kind.body if isinstance(node, ast.AnnAssign)
             for target in [node.target] if isinstance(target, ast.Name)}
    for function in functions(kind.body):
        first = function.args.args[:1]
        if not first or any(getattr(d, "id", "") == "staticmethod" for d in function.decorator_list):
            continue
        names |= {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)
                  and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name)
                  and node.value.id == first[0].arg}
    return names
