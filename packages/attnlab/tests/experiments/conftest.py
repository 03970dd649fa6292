"""A notebook and a blank page for what it shows, and members of a population that diverge."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from attnlab.experiments.sorting import sorter as sorting


@pytest.fixture
def blank(visited):
    """A page that asks nothing of a network, complains of nothing and moves nothing."""
    viewport = {"width": 1100, "height": 900}
    page = visited.page(seconds=8.0, viewport=viewport, reduced_motion="reduce")
    page.goto("about:blank")
    yield page
    assert [url for url in visited.requests if not url.startswith(("blob:", "data:"))] == []
    assert visited.complaints == []


@pytest.fixture
def ipython(monkeypatch):
    """Pretend to be a notebook."""
    module = ModuleType("IPython")
    module.get_ipython = lambda: SimpleNamespace(kernel=True)
    monkeypatch.setitem(sys.modules, "IPython", module)
    display = ModuleType("IPython.display")  # where a slow machine draws a bar
    display.display = lambda *_, **__: SimpleNamespace(update=lambda _: None)
    monkeypatch.setitem(sys.modules, "IPython.display", display)


@pytest.fixture
def break_seeds(monkeypatch):
    """Let the batches of some sorters hold NaN at one step."""

    def plant(seeds, step):
        whole = sorting.make_sampler

        def broken(task, batch_size, seed, *rest):
            draw = whole(task, batch_size, seed, *rest)

            def drawn(first, count):
                counts = draw(first, count)[0].float()
                if seed in seeds and first <= step < first + count:
                    counts[step - first] = float("nan")
                return (counts,)

            return drawn

        monkeypatch.setattr(sorting, "make_sampler", broken)

    return plant
