"""The sandbox and workers, made once for all tests of the course; one that ended starts again."""

import pytest

from attnlab.errors import CouldNotRun
from attnlab_course.sandbox.jail import probe
from attnlab_course.sandbox.worker import Worker


@pytest.fixture(scope="session")
def jail():
    """The sandbox; tests of it are skipped where the system forbids it."""
    try:
        return probe()
    except CouldNotRun as error:
        pytest.skip(f"no sandbox here: {error}")


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
