"""Pages in a real browser, which may make no request and no complaint."""

from typing import Any

import pytest

from attnlab.draw.page import render_page

from .documents import content_of

# Charts are drawn when their width is known, which the browser tells before it paints.
ONCE_DRAWN = "() => new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))"


@pytest.fixture(scope="session")
def free_pages():
    """Keep pages that no test uses, by the options of their context: a new one takes a second."""
    return {}


@pytest.fixture
def open_html(browser, free_pages, resting_page, tmp_path):
    """Open a page from disk; at the end, no request but file:// and no complaint of the console."""
    requests: list[str] = []
    complaints: list[str] = []
    taken: list[tuple[list[Any], Any]] = []
    listeners = {
        "request": lambda request: requests.append(request.url),
        "console": lambda message: complaints.append(f"{message.type}: {message.text}"),
        "pageerror": lambda error: complaints.append(str(error)),
    }

    def open_it(
        html, width=1000, *, color_scheme="light", reduced_motion="no-preference", **options
    ):
        path = tmp_path / "report.html"
        path.write_text(html, encoding="utf-8")
        free = free_pages.setdefault(str(sorted(options.items())), [])
        page = free.pop() if free else browser.new_context(**options).new_page()
        taken.append((free, page))
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(media="null", color_scheme=color_scheme, reduced_motion=reduced_motion)
        for event, listener in listeners.items():
            page.on(event, listener)
        page.goto(path.as_uri())
        if options.get("java_script_enabled", True):
            page.evaluate(ONCE_DRAWN)
        return page

    yield open_it
    for free, page in taken:
        for event, listener in listeners.items():
            page.remove_listener(event, listener)
        page.mouse.move(-1, -1)  # nothing is pointed at
        page.goto(resting_page.as_uri())
        free.append(page)
    assert [
        url for url in requests if not url.startswith(("file://", "data:,", "data:image/png;"))
    ] == []
    assert any(url.startswith("file://") for url in requests)
    assert complaints == []


@pytest.fixture
def open_page(open_html):
    """Open a document as its page."""
    return lambda document, width=1000, **options: open_html(
        render_page(content_of(document)), width, **options
    )
