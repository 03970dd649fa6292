"""Check the site that `make docs` built: `make check-site`.

Every page is opened in Chromium, wide and narrow, in light and dark: axe finds nothing, nothing
scrolls sideways, no column of a pair is out of sight, the names of rows stay where a table scrolls,
no figure is a white box in the dark, and no request leaves the disk. Every link of a page leads to
a file, and to a place in it, that is there. The menu of the first page is short. What searches.toml
lists is typed into the search: its page must be among the first three results, or they must begin
with those of a list; what each of them shows must have a typed word if its place has one; and the
pages that repeat others come last, once.
"""

import json
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright
from snowballstemmer import stemmer

WIDTHS = (1280, 390)
SEARCHES = Path(__file__).parent / "searches.toml"
NUM_RESULTS = 3  # of a search, among which the page must be
OPTIONS = {"preload": False, "iframes": False, "resultTypes": ["violations"]}
HIDDEN_COLUMNS = """() => [...document.querySelectorAll("[role=main] table, main table")]
  .map((table) => [...table.querySelectorAll("tr")].find((row) => row.children.length === 2
    && row.children[1].getBoundingClientRect().left > innerWidth - 80))
  .filter((row) => row).map((row) => row.textContent.trim().slice(0, 60))"""
ROW_NAMES_THAT_SCROLL_AWAY = """() => [...document.querySelectorAll("main .table-wrapper")]
  .filter((box) => {
    const name = box.querySelector("tr:has(> :nth-child(3)) > :first-child");
    if (!name || box.scrollWidth < box.clientWidth + 40) return false;
    box.scrollLeft = 40;
    const gone = name.getBoundingClientRect().left < box.getBoundingClientRect().left - 10;
    box.scrollLeft = 0;
    return gone;
  }).map((box) => box.textContent.trim().slice(0, 60))"""
WHITE_FIGURES = """() => [...document.querySelectorAll("main img:not(.only-dark)")]
  .filter((image) => image.checkVisibility() && getComputedStyle(image).filter === "none")
  .map((image) => image.getAttribute("src").slice(0, 60))"""
MENU_AT_FIRST = """() => [...document.querySelectorAll(".sidebar-tree :is(summary, a)")]
  .filter((entry) => entry.checkVisibility()).length"""
NUM_IN_MENU = 12
LOGS = ("changes", "evidence")  # which repeat other pages
RESULTS_ARE_THERE = 'document.querySelector(".search-summary")?.textContent'
CONTRAST = OPTIONS | {"runOnly": ["color-contrast"]}


class _Links(HTMLParser):
    """The links of a page, and the places in it that a link can name."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Read one element."""
        for name, value in attrs:
            if name in ("href", "src") and value and tag != "use":
                self.links.append(value)
            elif name in ("id", "name") and value:
                self.places.add(value)


def pages_of(site: Path, only: tuple[str, ...] = ("",)) -> list[Path]:
    """Return the pages of a site whose paths have one of some parts.

    The playground is left out; it has tests of its own.
    """
    return [
        path
        for path in sorted(site.rglob("*.html"))
        if not {"playground", "_static"} & set(path.relative_to(site).parts)
        and any(part in str(path.relative_to(site)) for part in only)
    ]


def broken_links(site: Path) -> Iterator[str]:
    """Yield each link within a site that leads nowhere."""
    read = {path: _Links(path.read_text()) for path in pages_of(site)}
    for path, page in read.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            place = unquote(parts.fragment)
            if not target.is_file():
                yield f"{path.relative_to(site)}: {link} is no file"
            elif place and target in read and place not in read[target].places:
                yield f"{path.relative_to(site)}: {link} is no place"


def page_findings(page: Any, site: Path, path: Path) -> Iterator[str]:
    """Yield what is wrong with a page in a browser."""
    name = str(path.relative_to(site))
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.emulate_media(color_scheme="light")
    page.goto(path.as_uri())
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        for scheme, options in (("light", OPTIONS), ("dark", CONTRAST)):
            page.emulate_media(color_scheme=scheme)
            for found in Axe().run(page, options=options).response["violations"]:
                nodes = found["nodes"]
                where = f"{len(nodes)} times, first {nodes[0]['html'][:120]}"
                yield f"{name}, {width} px, {scheme}: {found['id']}, {where}"
        if (wide := page.evaluate("document.documentElement.scrollWidth")) > width:
            yield f"{name}: {wide} px wide in a window of {width}"
        for words in page.evaluate(HIDDEN_COLUMNS):
            yield f"{name}: a column is out of sight in a window of {width}: {words}"
        for words in page.evaluate(ROW_NAMES_THAT_SCROLL_AWAY):
            yield f"{name}: the names of rows scroll away in a window of {width}: {words}"
    for source in page.evaluate(WHITE_FIGURES):  # it is dark since the last width
        yield f"{name}: a figure is a white box in the dark: {source}"
    for url in requests:
        if not url.startswith((f"{site.as_uri()}/", "data:", "blob:", "about:")):
            yield f"{name}: asks for {url}"


def searches() -> dict[str, str | list[str]]:
    """Return what is searched, and the page that must be found, or the first results."""
    return tomllib.loads(SEARCHES.read_text())


class Result(NamedTuple):
    """A result of a search: the page, the place in it, and the passage that is shown."""

    page: str
    place: str
    shown: str


def results_of(page: Any, site: Path, words: str) -> list[Result]:
    """Type words into the search of a site, from disk; return its results."""
    page.goto(f"{(site / 'search.html').as_uri()}?q={quote(words)}")
    page.wait_for_function(RESULTS_ARE_THERE)
    rows = page.locator("ul.search > li").evaluate_all(
        "rows => rows.map(row => [row.querySelector('a').getAttribute('href'),"
        " row.querySelector(':scope > span')?.innerText ?? ''])"
    )
    parts = [(*link.partition("#"), shown) for link, shown in rows]
    return [Result(path.removesuffix(".html"), place, shown) for path, _, place, shown in parts]


def has_typed(text: str, words: str) -> bool:
    """Does a text have a word that begins as one of the typed words, or with its stem?"""
    parts = re.findall(r"[A-Z]?[a-z0-9]{2,}|[A-Z]+", words)
    begins = [*parts, *stemmer("english").stemWords(parts)]
    return any(re.search(rf"(?i)(\b|_){begin}", text) for begin in begins)


def begins_as(found: list[Result], wanted: list[str]) -> bool:
    """Do results begin with some pages, or places in them, in this order?"""
    places = [(result.page, f"{result.page}#{result.place}") for result in found[: len(wanted)]]
    return len(places) == len(wanted) and all(map(tuple.__contains__, places, wanted))


def logs_are_last(found: list[Result]) -> bool:
    """Do pages that repeat others come after all others, and once?"""
    are_logs = [result.page in LOGS for result in found]
    pages = [result.page for result in found if result.page in LOGS]
    return are_logs == sorted(are_logs) and len(pages) == len(set(pages))


def search_findings(site: Path, browser: Any, wanted: dict[str, str | list[str]]) -> Iterator[str]:
    """Yield each search whose page is not among the first results, or that begins otherwise than it
    should, or with logs before others; and each result that shows another passage than one with the
    words."""
    if not (site / "search.html").is_file():
        return
    line = (site / "_static" / "passages.js").read_text().partition("\n")[0]
    passages = json.loads(line.removeprefix("window.PASSAGES = ").removesuffix(";"))
    page = browser.new_page()
    for words, place in wanted.items():
        all_found = results_of(page, site, words)
        found = all_found[:NUM_RESULTS]
        if isinstance(place, str) and place not in [result.page for result in found]:
            yield f"search for {words!r}: {place} is not in {found}"
        if isinstance(place, list) and not begins_as(found, place):
            yield f"search for {words!r}: {place} are not the first of {found}"
        if not logs_are_last(all_found):
            yield f"search for {words!r}: changes or evidence stand before others, or twice"
        for result in found:
            here = [text for place, _, text, _ in passages[result.page] if place == result.place]
            if has_typed(" ".join(here), words) and not has_typed(result.shown, words):
                yield f"search for {words!r}: {result.page} shows {result.shown!r}"
    page.close()


def menu_findings(site: Path, browser: Any) -> Iterator[str]:
    """Yield that the menu of the first page is too long for a newcomer."""
    page = browser.new_page(viewport={"width": WIDTHS[0], "height": 900})
    page.route("**/playground/**", lambda route: route.abort())
    page.goto((site / "index.html").as_uri())
    if (number := page.evaluate(MENU_AT_FIRST)) > NUM_IN_MENU:
        yield f"the menu of the first page shows {number} entries, more than {NUM_IN_MENU}"
    page.close()


def site_findings(site: Path, browser: Any, only: tuple[str, ...] = ("",)) -> Iterator[str]:
    """Yield all that is wrong with the links of a site, and with some of its pages."""
    yield from broken_links(site)
    yield from menu_findings(site, browser)
    yield from search_findings(site, browser, searches())
    for path in pages_of(site, only):
        context = browser.new_context()
        context.route("**/playground/**", lambda route: route.abort())
        yield from page_findings(context.new_page(), site, path)
        context.close()


def main() -> int:
    """Print what is wrong; the status is 1 where something is."""
    site = Path(sys.argv[1]).resolve()
    if not (site / "index.html").is_file():
        sys.exit(f"expected a site in {site}; there is none: run make docs first")
    only = tuple(sys.argv[2:]) or ("",)
    number = 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),  # else the one that Playwright installs
            args=["--no-sandbox"],
        )
        for finding in site_findings(site, browser, only):
            sys.stdout.write(f"{finding}\n")
            sys.stdout.flush()
            number += 1
    sys.stdout.write(f"{len(pages_of(site, only))} pages, {number} findings\n")
    return min(number, 1)


if __name__ == "__main__":
    sys.exit(main())
