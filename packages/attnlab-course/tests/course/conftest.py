"""The sandbox and workers, made once for all tests of the course; one that ended starts again."""

import os
import warnings

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


@pytest.fixture
def forked():
    """Call a function in a copy of this process, and return the number of that process."""

    def call(function):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads
            process = os.fork()
        if not process:
            status = 1
            try:
                function()
                status = 0
            finally:
                os._exit(status)
        return process

    return call
