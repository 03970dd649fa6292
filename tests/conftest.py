"""Settings that all tests share: reproducible property tests, and one thread for each worker."""

import os
import signal
import tempfile

import pytest
import torch
from filelock import FileLock
from hypothesis import settings

settings.register_profile(
    "attnlab", deadline=None, derandomize=True, database=None, print_blob=False
)
settings.load_profile("attnlab")
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # of the commands that tests start, too
# A shell tells jobs in the background to ignore Ctrl-C; the tests of interrupts need it.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(
    prefix="attnlab-tests-"
)  # nobody's own cache is touched


# What a file makes once for all of its tests is made by one worker alone.
ONCE = {"module", "package"}


@pytest.hookimpl(wrapper=True)  # before the workers read the groups, and after
def pytest_collection_modifyitems(config, items):
    for item in items:
        found = item._fixtureinfo.name2fixturedefs.values()
        is_shared = any(each.scope in ONCE for definitions in found for each in definitions)
        if is_shared and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(str(item.path)))
    yield
    if config.getoption("loadgroup", default=False):
        unheard = [
            item
            for item in items
            if item.get_closest_marker("xdist_group") and "@" not in item.nodeid
        ]
        assert not unheard, "this pytest-xdist does not hear groups under this pytest"


@pytest.fixture(autouse=True)
def _figures_only_for_shared_runs(request, monkeypatch):
    """Let a run of a single test name its figures without drawing them: they take most of its time.

    The runs that all tests of a file share are made before, with figures.
    """
    if request.path.parent.name in ("cli", "experiments") and "drawn" not in request.fixturenames:
        named = lambda name, draw: {f"{name}.png": b"-", f"{name}.svg": b"-"}  # noqa: E731
        monkeypatch.setattr("attnlab.draw.figures.to_files", named)


@pytest.fixture
def drawn():
    """Draw the figures of this test's runs."""


@pytest.fixture(scope="session")
def sorter(tmp_path_factory):
    """The folder of a run whose model sorts, made once for all workers; copy it to change it."""
    from attnlab.cli import main

    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "sorter"
    with FileLock(shared / "sorter.lock"):
        if not folder.exists():
            settings = ["steps=1200", "learning_rate=1e-2", "evaluate_every=200"]
            assert main(["run", "sorting", "-q", "--out", str(folder), "--set", *settings]) == 0
    return folder
