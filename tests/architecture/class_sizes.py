"""The classes of the package as their source tells them: methods and attributes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from import_graph import sources


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """(module, class) of the package, also classes within others."""
    for name, path in sources().items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        yield from ((name, node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def methods(kind: ast.ClassDef) -> list[ast.FunctionDef]:
    """A class's methods; properties are methods."""
    return [node for node in kind.body if isinstance(node, ast.FunctionDef)]


def attributes(kind: ast.ClassDef) -> set[str]:
    """Names that instances hold: set on self anywhere, or declared in the class's body."""
    names = {node.target.id for node in kind.body
             if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    for method in methods(kind):
        if method.args.args and not _is_static(method):
            names |= _set_on(method, method.args.args[0].arg)
    return names


def _is_static(method: ast.FunctionDef) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in method.decorator_list)


def _set_on(method: ast.FunctionDef, name: str) -> set[str]:
    """Attributes of the variable `name` that a method assigns to."""
    return {node.attr for node in ast.walk(method)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name) and node.value.id == name}
