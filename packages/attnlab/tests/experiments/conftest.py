"""A blank page for what a notebook shows."""

import pytest


@pytest.fixture
def blank(visited):
    """A page that asks nothing of a network, complains of nothing and moves nothing."""
    viewport = {"width": 1100, "height": 900}
    page = visited.page(seconds=8.0, viewport=viewport, reduced_motion="reduce")
    page.goto("about:blank")
    yield page
    assert [url for url in visited.requests if not url.startswith(("blob:", "data:"))] == []
    assert visited.complaints == []
