"""Fixtures of the suite that every backend passes.

A test asks for `backend` or `arena`, and for `width` if it is to run at the widths that matter to
each backend. Markers:

    thread_orders      a CUDA kernel with barriers or shuffles: threads run in three orders
    one_level          not compiled for each instruction set: one level of native is enough
"""

import pytest
from backends import BACKENDS, CANARY_ITEMS, ENVIRONMENT, GUARD_ITEMS, Arena, backends, widths


def pytest_generate_tests(metafunc):
    """Each backend in turn, at its own widths where the test has one."""
    if "backend" not in metafunc.fixturenames:
        return
    marks = {mark.name for mark in metafunc.definition.iter_markers()}
    names = backends("thread_orders" in marks, "one_level" not in marks)
    if "width" in metafunc.fixturenames and not has_own_widths(metafunc):
        pairs = [(name, width) for name in names for width in widths(name)]
        metafunc.parametrize("backend, width", pairs, indirect=["backend"])
    else:
        metafunc.parametrize("backend", names, indirect=True)


def has_own_widths(metafunc) -> bool:
    """Does the test say itself at which widths it runs?"""
    return any("width" in str(mark.args[0])
               for mark in metafunc.definition.iter_markers("parametrize"))


@pytest.fixture
def backend(request, monkeypatch):
    """The backend whose name is the parameter."""
    for name, value in ENVIRONMENT.get(request.param, {}).items():
        monkeypatch.setenv(name, value)
    return BACKENDS[request.param]()


@pytest.fixture
def arena(backend, request):
    """Arrays on the backend; stray writes fail the test when it ends."""
    arena = Arena(backend, GUARD_ITEMS.get(request.node.callspec.params["backend"], CANARY_ITEMS))
    yield arena
    arena.check()
