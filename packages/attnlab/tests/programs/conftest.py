"""Sorters that several files of proofs read."""

import pytest

import attnlab


@pytest.fixture(scope="package")
def sorters(tmp_path_factory):
    """Three trained sorters, in a folder that no test changes."""
    folder = tmp_path_factory.mktemp("sorters") / "run"
    return attnlab.train_population("sorting", range(3), recipe="fast", steps=500, out=folder)
