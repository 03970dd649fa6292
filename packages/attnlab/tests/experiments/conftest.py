"""A blank page for what a notebook shows."""

import pytest


@pytest.fixture
def blank(browser):
    """A page that asks nothing of a network and complains of nothing."""
    context = browser.new_context(viewport={"width": 1100, "height": 900})
    asked, complaints = [], []
    try:
        page = context.new_page()
        page.set_default_timeout(8000)
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        yield page
    finally:
        context.close()
    assert [url for url in asked if not url.startswith(("blob:", "data:"))] == []
    assert complaints == []
