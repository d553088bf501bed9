"""Fixtures of the suite that every backend passes."""

import pytest
from backends import BACKENDS, Arena


@pytest.fixture(params=BACKENDS)
def backend(request):
    """Each backend in turn."""
    return BACKENDS[request.param]()


@pytest.fixture
def arena(backend):
    """Arrays on the backend; stray writes fail the test when it ends."""
    arena = Arena(backend)
    yield arena
    arena.check()
