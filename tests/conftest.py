"""Settings that all tests share: reproducible property tests, and one thread for each worker."""

import os
import signal
import tempfile

import pytest
import torch
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


# A file goes to one worker as a whole where its fixtures train something for all of its tests.
TRAINED_ONCE = ("cli", "experiments")


@pytest.hookimpl(wrapper=True)  # before the workers read the groups, and after
def pytest_collection_modifyitems(config, items):
    for item in items:
        if item.path.parent.name in TRAINED_ONCE:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
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
    if request.path.parent.name == "experiments":
        named = lambda name, draw: {f"{name}.png": b"-", f"{name}.svg": b"-"}  # noqa: E731
        monkeypatch.setattr("attnlab.draw.figures.to_files", named)
