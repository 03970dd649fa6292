"""A real browser for the tests that look at pages, which may make no request and no complaint."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attnlab.draw import render_page

from .documents import content_of
from .views import Open

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

# Charts are drawn when their width is known, which the browser tells before it paints.
ONCE_DRAWN = "() => new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))"

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not Path(CHROMIUM).exists():
        pytest.skip(f"no chromium at {CHROMIUM}")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def open_html(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Open a page from disk; at the end, no request but file:// and no complaint of the console."""
    contexts, requests, complaints = [], [], []

    def open_it(html: str, width: int = 1000, **options: Any) -> Any:
        path = tmp_path / "report.html"
        path.write_text(html, encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(path.as_uri())
        if options.get("java_script_enabled", True):
            page.evaluate(ONCE_DRAWN)
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert [
        url for url in requests if not url.startswith(("file://", "data:,", "data:image/png;"))
    ] == []
    assert any(url.startswith("file://") for url in requests)
    assert complaints == []


@pytest.fixture
def open_page(open_html: Open) -> Open:
    """Open a document as its page."""
    return lambda document, width=1000, **options: open_html(
        render_page(content_of(document)), width, **options
    )
