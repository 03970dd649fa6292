"""What all tests share: settings, one thread for each worker, a real browser for pages."""

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock
from hypothesis import settings

from attnlab.draw.attention.figure_files import plain_style
from tests.pages import Pages, Visit

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"

settings.register_profile(
    "attnlab", deadline=None, derandomize=True, database=None, print_blob=False
)
settings.load_profile("attnlab")
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # of the commands that tests start, too
# A shell tells jobs in the background to ignore Ctrl-C; the tests of interrupts need it.
signal.signal(signal.SIGINT, signal.default_int_handler)
if "PYTEST_XDIST_WORKER" not in os.environ:  # workers share what one of them has compiled
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(
        prefix="attnlab-tests-"
    )  # nobody's own cache is touched
gc.disable()  # until all tests are collected: nothing of them is garbage


# What a file or a folder makes once for all of its tests is made by one worker alone.
ONCE = {"module", "package"}


def turn(item):
    """Journeys come first, then the lab, whose long files would end with one worker alone."""
    parts = item.path.parts
    return 0 if "journeys" in parts else 1 if "lab" in parts else 2


@pytest.hookimpl(wrapper=True)  # before the workers read the groups, and after
def pytest_collection_modifyitems(config, items):
    for item in items:
        found = item._fixtureinfo.name2fixturedefs.values()
        scopes = {each.scope for definitions in found for each in definitions}
        if scopes & ONCE and not item.get_closest_marker("xdist_group"):
            home = item.path.parent if "package" in scopes else item.path
            item.add_marker(pytest.mark.xdist_group(str(home)))
    items.sort(key=turn)
    yield
    gc.freeze()
    gc.enable()
    if config.getoption("loadgroup", default=False):
        unheard = [
            item
            for item in items
            if item.get_closest_marker("xdist_group") and "@" not in item.nodeid
        ]
        assert not unheard, "this pytest-xdist does not hear groups under this pytest"


UNPAINTED = b"\0\0\0\0IEND"  # the end of a PNG
FULL_OF_FIGURES = ("cli", "experiments", "train")  # painting them takes most of the time of a run


def laid_out(figure, kind, *, salt, dpi=150):
    """Lay a figure out once with all that it holds, and paint nothing."""
    if kind == "png":  # every figure is written as one
        with plain_style(salt):
            figure.draw_without_rendering()
    return UNPAINTED


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """Lay out the figures of runs that all tests of a file share; those of `sorter` are painted."""
    if fixturedef.scope == "module" and request.path.parent.name in FULL_OF_FIGURES:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("attnlab.draw.figures.to_bytes", laid_out)
            return (yield)
    return (yield)


@pytest.fixture(autouse=True)
def _figures_only_for_shared_runs(request, monkeypatch):
    """Let a run of a single test name its figures, and lay out those of a recording."""
    if request.path.parent.name in FULL_OF_FIGURES and "drawn" not in request.fixturenames:
        named = lambda name, draw: {f"{name}.png": UNPAINTED, f"{name}.svg": UNPAINTED}  # noqa: E731
        monkeypatch.setattr("attnlab.draw.figures.to_files", named)
        monkeypatch.setattr("attnlab.draw.attention.figure_files.to_bytes", laid_out)


@pytest.fixture
def drawn():
    """Paint the figures of this test."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not Path(CHROMIUM).exists():
        pytest.skip(f"no chromium at {CHROMIUM}")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def resting_page(tmp_path_factory) -> Path:
    """An empty page from disk: where a page waits in the process that opens the next file."""
    page = tmp_path_factory.mktemp("resting") / "empty.html"
    page.write_text("<!doctype html><title>Resting</title>")
    return page


@pytest.fixture(scope="session")
def pages(browser, resting_page) -> Pages:
    return Pages(browser, resting_page)


@pytest.fixture
def visited(pages) -> Iterator[Visit]:
    """The pages of this test."""
    visit = Visit(pages)
    yield visit
    visit.end()


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
