"""Which part of the package may import which: parts below know nothing of those above."""

from __future__ import annotations

from collections import defaultdict

import pytest
from source import PACKAGE, imports, modules, package_of

# From the bottom to the top. A part imports only parts of earlier lines.
LAYERS = (
    ("errors", "philox"),
    ("logs", "setting"),
    ("graph", "files"),
    ("nn", "mpi", "formats"),
    ("backend", "exchange"),
    ("parallel",),
    ("parallel.partition", "parallel.features", "parallel.layers", "parallel.single"),
    ("config",),
    ("train", "doctor"),
    ("weights", "report"),
    ("cli",),
)
# Edges that this order does not allow, each with the reason why it is there.
REASONS = {
    ("graph", "files"): "a graph file is written by the atomic writer",
    ("files", "graph"): "the atomic writer of HDF5 files adds the checksum of their metadata",
    ("graph", "train"): "verifying a checkpoint asks what a model holds, and imports it only then",
    ("parallel.single", "parallel.partition"): "one rank reads files as the only part of many would",
}
# Every part may ask for the version, and `hpcgcn` itself offers what is public.
FREE = {"hpcgcn", "__main__"}
LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}


def edges() -> dict[tuple[str, str], list[str]]:
    """{(importing part, imported part): modules that do it}."""
    found = defaultdict(list)
    for module in modules():
        for imported in sorted(imports(module)):
            pair = module.package, package_of(imported)
            if pair[0] != pair[1] and not FREE & set(pair):
                found[pair].append(f"{module.name} imports {imported}")
    return found


def test_every_part_has_its_place():
    assert {module.package for module in modules()} - FREE == set(LEVEL)


def test_no_part_imports_one_above_it():
    wrong = {pair: who for pair, who in edges().items()
             if LEVEL[pair[1]] >= LEVEL[pair[0]] and pair not in REASONS}
    assert not wrong, "\n".join(line for who in wrong.values() for line in who)


def test_every_exception_is_needed():
    assert set(REASONS) <= set(edges())


@pytest.mark.parametrize("part, unknown", [
    ("nn", {"parallel", "exchange", "mpi"}),
    ("graph", {"mpi", "formats"}),
    ("exchange", {"parallel"}),
    ("backend", {"nn", "exchange", "parallel", "graph"}),
])
def test_what_a_part_knows_nothing_of(part: str, unknown: set[str]):
    known = {to.split(".")[0] for start, to in edges() if start == part}
    assert not known & unknown


def test_strategies_name_no_model():
    from hpcgcn.nn.models import MODELS
    words = {f"models.{name}" for name in MODELS} | {f'"{name}"' for name in MODELS}
    for path in (PACKAGE / "parallel").rglob("*.py"):
        text = path.read_text(encoding="utf-8").replace("'", '"')
        assert not [word for word in words if word in text], path


def test_nothing_outside_names_a_strategy_in_a_condition():
    """A strategy is asked through its class; which one it is, only its own folder knows."""
    import ast

    from hpcgcn.parallel import STRATEGIES
    for module in modules():
        if module.package.startswith("parallel"):
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Compare):
                names = {value.value for value in ast.walk(node) if isinstance(value, ast.Constant)
                         and isinstance(value.value, str)}
                asks = {name.attr for name in ast.walk(node) if isinstance(name, ast.Attribute)}
                assert not ("parallel" in asks and names & set(STRATEGIES)), (module.name, node.lineno)


def test_the_import_graph_can_be_drawn(tmp_path):
    """docs/architecture.md shows this drawing."""
    lines = [f"{start:20} {' '.join(sorted(to for first, to in edges() if first == start))}"
             for start in LEVEL if any(first == start for first, _ in edges())]
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    missing = [line for line in lines if line.rstrip() not in page]
    assert not missing, "docs/architecture.md should have:\n" + "\n".join(lines)
