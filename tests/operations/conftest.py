"""Fixtures of the suite that every backend passes."""

import pytest
from backends import BACKENDS, CANARY_ITEMS, ENVIRONMENT, GUARD_ITEMS, Arena


@pytest.fixture(params=BACKENDS)
def backend(request, monkeypatch):
    """Each backend in turn."""
    for name, value in ENVIRONMENT.get(request.param, {}).items():
        monkeypatch.setenv(name, value)
    return BACKENDS[request.param]()


@pytest.fixture
def arena(backend, request):
    """Arrays on the backend; stray writes fail the test when it ends."""
    arena = Arena(backend, GUARD_ITEMS.get(request.node.callspec.params["backend"], CANARY_ITEMS))
    yield arena
    arena.check()
