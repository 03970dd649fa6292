"""Sorters that several files of proofs read, trained once for all workers."""

import os

import pytest
from filelock import FileLock

import attnlab


@pytest.fixture(scope="session")
def sorters(tmp_path_factory):
    """Three trained sorters, in a folder that no test changes."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "sorters"
    with FileLock(shared / "sorters.lock"):
        if not folder.exists():
            attnlab.train_population("sorting", range(3), recipe="fast", out=folder)
    return attnlab.open(folder)
