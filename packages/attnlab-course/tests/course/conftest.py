"""The sandbox and workers, made once for all tests of the course; one that ended starts again."""

import pytest

from attnlab_course.sandbox.worker import Worker

from .classroom import sandbox


@pytest.fixture(scope="session")
def jail():
    """The sandbox."""
    return sandbox()


@pytest.fixture(scope="session")
def jailed(jail):
    """A worker in the sandbox."""
    with Worker(jail) as made:
        yield made


@pytest.fixture(scope="session")
def worker():
    """A worker without a sandbox."""
    with Worker() as made:
        yield made
