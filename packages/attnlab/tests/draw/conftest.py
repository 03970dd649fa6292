"""Pages in a real browser, which may make no request and no complaint."""

from functools import cache

import pytest

from attnlab.draw.page import render_page

from .documents import content_of

# Charts are drawn when their width is known, which the browser tells before it paints.
ONCE_DRAWN = "() => new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))"


@pytest.fixture
def open_html(visited, tmp_path):
    """Open a page from disk in place of the last; no request but file://, no complaint."""

    page_of = cache(visited.page)

    def open_it(
        html, width=1000, *, color_scheme="light", reduced_motion="no-preference", **options
    ):
        path = tmp_path / "report.html"
        path.write_text(html, encoding="utf-8")
        page = page_of(**options)
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(media="null", color_scheme=color_scheme, reduced_motion=reduced_motion)
        page.goto(path.as_uri())
        if options.get("java_script_enabled", True):
            page.evaluate(ONCE_DRAWN)
        return page

    yield open_it
    own = ("file://", "data:,", "data:image/png;")
    assert [url for url in visited.requests if not url.startswith(own)] == []
    assert any(url.startswith("file://") for url in visited.requests)
    assert visited.complaints == []


@pytest.fixture
def open_page(open_html):
    """Open a document as its page."""
    return lambda document, width=1000, **options: open_html(
        render_page(content_of(document)), width, **options
    )
