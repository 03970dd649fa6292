"""The gallery: many runs on one page, with and without a script."""

import base64
from dataclasses import replace
from typing import Any

import pytest

from attnlab.draw.claims import Claim
from attnlab.draw.gallery import GalleryRun, render_gallery
from attnlab.draw.sections import Lines, ReportContent
from attnlab.errors import WrongUsage
from attnlab.experiments.gallery import _thumbnail

from .documents import PAYLOADS
from .views import CONTRASTS

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def claim(name, passed=True):
    return Claim(name, f"{name} is so", "0.5", "≤ 1", passed)


def make_run(number, **changes):
    fields: dict[str, Any] = {
        "name": f"sorting-{number}",
        "href": f"sorting-{number}/report.html",
        "experiment": "sorting",
        "title": "sorting",
        "subtitle": "Letters are put in order.",
        "seed": number,
        "started": "2026-01-02T03:04:05",
        "state": "finished",
        "claims": [claim("sorted"), claim("sharp")],
    }
    return GalleryRun(**fields | changes)


RUNS = [
    make_run(0, thumbnail=PNG),
    make_run(1, claims=[claim("sorted", False), claim("sharp")]),
    make_run(2, state="unfinished", claims=[]),
    make_run(3, state="damaged", claims=[]),
    make_run(4, claims=[claim("sorted", None), claim("sharp")]),
]


def test_cards_and_the_table_tell_what_each_run_found(open_html):
    page = open_html(render_gallery("Runs in here", RUNS), color_scheme="dark")
    headings = page.locator("h1, h2").all_inner_texts()
    assert headings == ["Runs in here", *(run.title for run in RUNS), "Claims of all runs"]
    assert page.locator(".subtitle").inner_text() == "5 runs, 1 unfinished, 1 damaged."
    assert page.locator(".verdict").inner_text() == "✗ 1 of 6 claims failed, 1 undecided"
    assert page.locator(".outcome").all_inner_texts() == [
        "✓ 2 of 2 claims hold",
        "✗ 1 of 2 claims failed",
        "Unfinished: stopped before its claims were evaluated",
        "Damaged: one of its files cannot be read",
        "? 1 of 2 claims hold, 1 undecided",
    ]
    assert page.locator(".lacking").all_inner_texts() == ["sorted is so"] * 2
    rows = page.locator(".claims tbody tr")
    assert rows.count() == 6
    assert rows.nth(2).locator("td, th").all_inner_texts() == [
        "✗ failed",
        "sorting-1",
        "sorted is so\nsorted",
        "0.5",
        "≤ 1",
    ]
    assert page.locator(".card").first.inner_text().count("2026-01-02T03:04:05") == 1
    # Only finished runs are linked; pictures are inlined, and shown whole.
    links = page.locator(".card a").evaluate_all("all => all.map(a => a.getAttribute('href'))")
    assert links == [f"sorting-{number}/report.html" for number in (0, 1, 4)]
    assert page.locator(".card img").evaluate_all("all => all.map(i => i.naturalWidth)") == [1]
    assert page.locator(".card svg.none").count() == 4
    picture = page.locator("img.picture")
    assert picture.evaluate("node => getComputedStyle(node).objectFit") == "contain"
    # White pictures are dark on a dark page, and all words legible.
    is_dark = "node => getComputedStyle(node).filter.startsWith('invert')"
    for scheme in ("dark", "light"):
        ratios = page.evaluate(CONTRASTS)
        assert len(ratios) > 40
        assert min(ratios)[0] >= 4.5, min(ratios)
        assert picture.evaluate(is_dark) is (scheme == "dark")
        page.locator("#theme").click()


def test_a_card_shows_the_first_picture_whose_words_are_legible_there(tmp_path):
    sizes = {"wide": 1965, "narrow": 1050, "later": 900}
    (tmp_path / "figures").mkdir()
    for name, width in sizes.items():
        header = PNG[:16] + width.to_bytes(4, "big")
        (tmp_path / "figures" / f"{name}.png").write_bytes(header + name.encode())
    words = {"title": "", "caption": "", "x_label": "", "y_label": ""}
    shown = [Lines(figure=name, series=[], **words) for name in sizes]
    content = ReportContent(title="", subtitle="", facts=[], sections=shown)
    assert _thumbnail(tmp_path, content).endswith(b"narrow")
    assert _thumbnail(tmp_path, replace(content, sections=shown[:1])).endswith(b"wide")
    assert _thumbnail(tmp_path, replace(content, sections=[])) == b""


@pytest.mark.parametrize("has_script", [True, False])
def test_the_filter_works_by_keyboard_with_and_without_a_script(open_html, has_script):
    page = open_html(render_gallery("Runs", RUNS), java_script_enabled=has_script)
    rows = page.locator(".claims tbody tr:visible")
    assert rows.count() == 6
    page.get_by_label("all (6)").focus()
    page.keyboard.press("ArrowRight")
    assert page.get_by_label("failed or undecided (2)").is_checked()
    assert rows.locator(".state").all_inner_texts() == ["✗ failed", "? undecided"]
    assert "sorting-1" in rows.first.inner_text()
    page.keyboard.press("ArrowLeft")
    assert rows.count() == 6


def test_pictures_stop_where_the_page_would_become_too_large():
    large = PNG + bytes(3_000_000)
    html = render_gallery("Runs", [make_run(i, thumbnail=large) for i in range(5)])
    assert html.count("data:image/png;base64,") == 2
    assert html.count('class="picture none finished"') == 3
    html = render_gallery("Runs", [make_run(0, thumbnail=b"no picture")])
    assert html.count('class="picture none finished"') == 1


def test_hostile_words_and_names_stay_words_and_paths(open_html):
    words = "".join(PAYLOADS)
    texts = dict.fromkeys(("name", "title", "subtitle", "experiment"), words)
    runs = [make_run(0, **texts, href='a #1 "b"/report.html', claims=[claim(words, False)])]
    page = open_html(render_gallery(words, runs))
    assert page.evaluate("window.canary") is None
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 1
    assert page.locator("h1").inner_text().startswith("<script>window.canary = 1</script>")
    assert page.locator(".card a").get_attribute("href") == "a%20%231%20%22b%22/report.html"
    assert page.locator(".card a").evaluate("a => a.href").startswith("file://")


@pytest.mark.parametrize("href", ["javascript:alert(1)", "//elsewhere.org/x", "/x", "\\\\x"])
def test_a_link_that_leaves_the_folder_is_refused(href):
    with pytest.raises(WrongUsage, match="href: expected a path relative to the page"):
        make_run(0, href=href)
