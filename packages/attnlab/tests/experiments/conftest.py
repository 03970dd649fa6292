"""A blank page for what a notebook shows."""

import pytest


@pytest.fixture(scope="session")
def free_blank_pages():
    """Keep pages that no test uses: a new one takes a second."""
    return []


@pytest.fixture
def blank(browser, free_blank_pages):
    """A page that asks nothing of a network, complains of nothing and moves nothing."""
    if free_blank_pages:
        page = free_blank_pages.pop()
    else:
        viewport = {"width": 1100, "height": 900}
        page = browser.new_context(viewport=viewport, reduced_motion="reduce").new_page()
        page.set_default_timeout(8000)
    asked, complaints = [], []
    listeners = {
        "request": lambda request: asked.append(request.url),
        "console": lambda message: complaints.append(message.text),
        "pageerror": lambda error: complaints.append(str(error)),
    }
    for event, listener in listeners.items():
        page.on(event, listener)
    yield page
    if not page.is_closed():
        for event, listener in listeners.items():
            page.remove_listener(event, listener)
        page.goto("about:blank")
        free_blank_pages.append(page)
    assert [url for url in asked if not url.startswith(("blob:", "data:"))] == []
    assert complaints == []
