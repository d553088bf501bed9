"""How large classes may be, and that what is public says what it is."""

from __future__ import annotations

import ast
import importlib
import inspect

import pytest
from class_sizes import attributes, classes, methods
from import_graph import sources

MOST_METHODS, MOST_ATTRIBUTES = 15, 14
# Classes outside the backends that have more, each with the reason why.
REASONS = {
    "hpcgcn.config.groups.TrainingSettings": "one attribute per setting of the group",
    "hpcgcn.config.groups.CommunicationSettings": "one attribute per setting of the group",
    "hpcgcn.formats.draft.ReadOptions": "one attribute per flag about files",
    "hpcgcn.formats.draft.Draft": "one attribute per thing that a file of any format may tell",
    "hpcgcn.nn.builder.Builder": "one method per kind of step that a model is put together from",
    "hpcgcn.nn.models.base.Shape": "one attribute per setting that parameters depend on",
    "hpcgcn.parallel.strategy.Strategy": "all that a strategy is, with defaults for most of it",
    "hpcgcn.parallel.features.aggregations.TransposedAggregation":
        "a hop is two transposes around a product: arrays, blocks and an exchange for each",
    "hpcgcn.parallel.layers.engine.PipelineEngine":
        "what trainer and accounting read of any engine, and the stage of this rank",
    "hpcgcn.parallel.layers.rank.PipelineRank":
        "one rank's links, halos, history and stage, for both directions and evaluation",
}


def large_classes() -> dict[str, tuple[int, int]]:
    """{class: (methods, attributes)} of those outside the backends with more than allowed."""
    found = {}
    for module, kind in classes():
        counts = len(methods(kind)), len(attributes(kind))
        large = counts[0] > MOST_METHODS or counts[1] > MOST_ATTRIBUTES
        if large and not module.startswith("hpcgcn.backend"):
            found[f"{module}.{kind.name}"] = counts
    return found


def test_classes_are_small_or_say_why_not():
    assert set(large_classes()) == set(REASONS), large_classes()


def test_methods_and_attributes_are_counted():
    text = """
class Kind:
    declared: int
    constant = 1
    def __init__(self, other):
        self.one, self.two = other, 2
        other.three = 3
    @property
    def both(self): return self.four
    @staticmethod
    def alone(thing): thing.five = 5
"""
    kind = ast.parse(text).body[0]
    assert [method.name for method in methods(kind)] == ["__init__", "both", "alone"]
    assert attributes(kind) == {"declared", "one", "two"}


@pytest.mark.parametrize("name", [name for name in sources() if not name.endswith("__main__")])
def test_what_is_public_has_a_docstring(name: str):
    """Of its own, or of what it overrides."""
    assert not silent_names(importlib.import_module(name))


def silent_names(module) -> list[str]:
    """Public functions, classes and methods that a module defines and that say nothing."""
    own = {name: value for name, value in vars(module).items() if not name.startswith("_")
           and getattr(value, "__module__", None) == module.__name__
           and (inspect.isfunction(value) or inspect.isclass(value))}
    found = [name for name, value in own.items() if not inspect.getdoc(value)]
    for kind in filter(inspect.isclass, own.values()):
        found += [f"{kind.__name__}.{name}" for name, value in vars(kind).items()
                  if not name.startswith("_") and _is_method(value)
                  and not inspect.getdoc(getattr(kind, name))]
    return found


def _is_method(value) -> bool:
    return inspect.isfunction(value) or isinstance(value, (property, classmethod, staticmethod))


def test_silence_is_noticed(tmp_path, monkeypatch):
    (tmp_path / "some_module.py").write_text("""
class Base:
    'Speaks.'
    def told(self):
        'Speaks.'
class Kind(Base):
    'Speaks.'
    def told(self): pass
    def silent(self): pass
    def _private(self): pass
def function(): pass
""")
    monkeypatch.syspath_prepend(tmp_path)
    assert silent_names(importlib.import_module("some_module")) == ["function", "Kind.silent"]
