"""The report page, looked at with a real browser: what it shows, what it never does."""

import json
import random
import re

import pytest

from attnlab.draw.page import render_page
from tests.sampling import sampled

from .documents import (
    PAYLOADS,
    content_of,
    edited,
    make_cross_document,
    make_document,
    make_kinds_document,
    make_section,
    make_table,
    make_trace,
    report_of,
)
from .views import CONTRASTS, wait_for_paint


def visible_text(html):
    """The words of a page, without its tags, styles and scripts."""
    body = re.sub(r"<(style|script).*?</\1>", "", html, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", body).split())


def taint(value, key=""):
    """Add payloads to all texts but those that choose a kind, a tone or a file."""
    if isinstance(value, dict):
        return {k: taint(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [taint(item, key) for item in value]
    is_text = isinstance(value, str) and key not in ("kind", "tone", "figure")
    return value + "".join(PAYLOADS) if is_text else value


WIDTH = "document.documentElement.scrollWidth"


def test_a_report_opens_with_its_living_picture_and_one_line_of_claims(open_page):
    page = open_page(make_document(num_steps=2000), width=390)
    assert page.locator("h2").all_inner_texts() == [
        "Step by step",
        "What is going on",
        "Learning",
        "Every input",
        "Heads taken away",
    ]
    assert page.locator(".cell").count() == 27
    assert page.locator(".map").count() == 2
    assert page.locator(".scroll td").last.inner_text() == "n/a"
    first = ["h1", ".subtitle", ".verdict", ".trace-section h2", ".chooser input", ".stepper"]
    for size, parts in {
        (390, 844): [".said"],
        (1280, 900): [".strip", ".chances", "canvas.heatmap >> nth=1"],
    }.items():
        page.set_viewport_size(dict(zip(("width", "height"), size, strict=True)))
        wait_for_paint(page)
        for part in first + parts:
            box = page.locator(part).bounding_box()
            assert box["y"] + box["height"] <= size[1] + 40, part
    page.set_viewport_size({"width": 390, "height": 844})
    rows = page.locator(".claims tbody tr:visible")
    assert page.locator(".verdict").inner_text() == "✓ 6 of 6 claims hold"
    assert rows.count() == 0
    page.locator(".verdict").focus()
    page.keyboard.press("Enter")
    assert rows.count() == 6
    assert page.evaluate(WIDTH) == 390
    page.keyboard.press("Enter")
    assert rows.count() == 0
    page.emulate_media(media="print")
    assert page.locator(".claims tbody tr").first.bounding_box()["height"] > 10


def test_policy_admits_only_the_inlined_script_and_style(browser, tmp_path):
    html = render_page(content_of(make_document(num_steps=10)))
    assert "default-src 'none'" in html
    assert re.search(r"script-src 'sha256-[^' ]+'; style-src 'sha256-[^' ]+'", html)
    assert not re.search(r"""\b(src|action)=["']|<link rel="stylesheet"|@import|url\(""", html)
    tampered = html.replace("mountTheme();\nmountSections();", "mountTheme(); mountSections();")
    assert tampered != html
    path = tmp_path / "tampered.html"
    path.write_text(tampered, encoding="utf-8")
    page = browser.new_page()
    refusals: list[str] = []
    page.on("console", lambda message: refusals.append(message.text))
    page.goto(path.as_uri())
    assert page.locator(".map").count() == 0
    assert any("Content Security Policy" in refusal for refusal in refusals)
    page.close()


def test_failed_and_undecided_claims_are_said_in_words_and_stand_open():
    document = make_document(num_wrong=3, num_steps=10)
    failed, undecided = (claim["statement"] for claim in document["claims"][:2])
    document["claims"][1]["passed"] = None
    html = render_page(content_of(document))
    assert "✗ 1 of 6 claims failed, 1 undecided" in visible_text(html)
    assert f"Failed: {failed} Undecided: {undecided}" in visible_text(html)
    states = re.findall(r"(?:✓|✗|\?) (?:holds|failed|undecided)(?= )", visible_text(html))
    assert states[:3] == ["✗ failed", "? undecided", "✓ holds"]
    document["claims"][0]["passed"] = True
    only_undecided = render_page(content_of(document))
    assert "? 5 of 6 claims hold, 1 undecided" in visible_text(only_undecided)
    for page in (html, only_undecided, render_page(content_of(edited("claims.2.passed", False)))):
        assert '<details class="claims-part" open>' in page


NEVER_RUN = """() => [window.canary, document.querySelectorAll('img').length,
  document.querySelectorAll('script').length]"""


def test_hostile_strings_are_shown_literally_and_never_run(open_page):
    document = make_document(num_wrong=1, num_steps=10)
    document["sections"] += make_kinds_document()["sections"]
    names = dict(zip("abc", PAYLOADS, strict=False))  # letters become the payloads themselves

    def rename(node):
        for key in ("input", "output", "expected", "tokens", "candidates"):
            if isinstance(node.get(key), list):
                node[key] = [names.get(item[0], item) for item in node[key]]
        if "choice" in node:
            node["choice"] = names.get(node["choice"][0], node["choice"])
        return node

    page = open_page(json.loads(json.dumps(taint(document)), object_hook=rename))
    page.get_by_role("button", name="Next step").click()
    page.get_by_role("button", name="Next choice").click()
    for field in (
        page.get_by_label("Input", exact=True),
        page.locator(".maps-section .chooser input"),
    ):
        field.fill("<img src=x onerror='window.canary = 5'>")
    message = page.locator(".trace-section .message").inner_text()
    assert "<img src=x onerror='window.canary = 5'>" in message
    page.locator(".bars-section .chart").focus()
    page.keyboard.press("Home")
    assert page.evaluate(NEVER_RUN) == [None, 0, 2]
    heading = page.locator("h1").inner_text()
    assert heading.startswith("sorting<script>window.canary = 1</script></script><script>")
    assert "$title" in heading
    assert PAYLOADS[0] in page.locator(".cell").first.inner_text()
    assert page.locator(".token").first.inner_text().replace("␣", " ") in PAYLOADS
    assert PAYLOADS[0].replace(" ", "␣") in page.locator(".said").inner_text()
    assert PAYLOADS[0] in page.locator(".bars-section .reading-line").inner_text()
    assert PAYLOADS[0] in page.locator(".choice-note").inner_text()
    assert PAYLOADS[0] in page.locator("svg.drawing").get_attribute("aria-label")


def test_arrays_of_markup_cannot_leave_the_data_block():
    document = make_cross_document()
    document["sections"][0]["traces"][0]["input"] = PAYLOADS
    html = render_page(content_of(document))
    data = re.search(
        r'<script type="application/json" id="document">(.*?)</script>', html, re.DOTALL
    )
    assert data is not None
    assert not set("<>&\u2028\u2029") & set(data[1])
    assert json.loads(data[1])[0]["traces"][0]["input"] == PAYLOADS


@pytest.mark.parametrize("width", sampled([360, 1400], 1))
def test_body_never_overflows_sideways(open_page, width):
    document = make_document(num_steps=10)
    document["sections"] += make_cross_document()["sections"] + make_kinds_document()["sections"]
    rng = random.Random(3)
    alphabet = list("abcdefghijklm")
    for num_letters in (12, 30):
        letters = [rng.choice(alphabet) for _ in range(num_letters)]
        trace = make_trace(letters, alphabet, 6, rng)
        document["sections"].append(make_section("trace", "A" * 90, "long", traces=[trace]))
    document["sections"].append(make_table(["column"] * 30, [[1.5] * 30]))
    page = open_page(document, width=width)
    assert page.evaluate(WIDTH) == width
    assert page.evaluate("document.body.scrollWidth") <= width


GROUNDS = {"light": "rgb(251, 250, 247)", "dark": "rgb(20, 23, 27)"}


GROUND = "getComputedStyle(document.documentElement).backgroundColor"


@pytest.mark.parametrize("checked", sampled(["light", "dark"], 1))
def test_every_kind_of_section_is_legible_accessible_and_says_where_to_look(open_page, checked):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
    )
    document = make_document(num_wrong=3, num_steps=10)
    table = make_table(["a"], [[i] for i in range(50)])
    document["sections"] += [*make_kinds_document()["sections"], table]
    page = open_page(document, color_scheme="dark")
    assert page.evaluate(GROUND) == GROUNDS["dark"]
    page.emulate_media(color_scheme="light")
    for scheme in ("light", "dark"):
        assert page.evaluate(GROUND) == GROUNDS[scheme]
        ratios = page.evaluate(CONTRASTS)
        assert len(ratios) > 145
        assert min(ratios)[0] >= 4.5, min(ratios)
        if scheme == checked:
            found = axe.Axe().run(page).response["violations"]
            assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == []
        page.locator("#theme").click()
    for kind in ("lines", "bars", "maps", "diagram"):
        look = page.locator(f".{kind}-section .look").first.inner_text()
        assert re.fullmatch(r"[A-Z][^.]+\.", look), look
    assert page.locator(".text-section .look").count() == 0


def test_without_a_script_claims_tables_and_a_list_of_contents_are_there(open_page):
    document = make_document(num_wrong=1, num_steps=10)
    document["sections"] += [
        {"kind": "text", "title": title, "text": ""}
        for title in ("Learning", "Σ", "", PAYLOADS[0], "Überblick: 1/√d")
    ]
    document["sections"].append(make_table(["a"], [[i] for i in range(64)]))
    page = open_page(document, width=375, java_script_enabled=False)
    assert "26/27" in page.locator(".claims").inner_text()
    page.locator(".verdict").click()
    assert page.locator(".claims tbody tr:visible").count() == 0
    page.locator(".verdict").click()
    assert page.locator(".claims tbody tr:visible").count() == 6
    assert page.locator(".scroll tbody tr:visible").count() == 3 + 64
    assert page.locator("noscript").first.inner_text().startswith("This part is interactive")
    assert not page.locator("#theme").is_visible()
    page.locator(".contents summary").click()
    links = page.locator(".contents a")
    # In the order of the page, which begins with the trace.
    titles = [each["title"].strip() for each in document["sections"]]
    assert links.all_inner_texts() == [titles[3], *titles[:3], *titles[4:]]
    targets = [
        link[1:] for link in links.evaluate_all("all => all.map(a => a.getAttribute('href'))")
    ]
    assert targets == page.locator("main > section[id]").evaluate_all("all => all.map(s => s.id)")
    assert len(set(targets)) == len(targets)
    assert targets[1:3] == ["section-what-is-going-on", "section-learning"]
    assert targets[5] == "section-learning-2"
    assert targets[-2] == "section-uberblick-1-d"
    assert page.evaluate(WIDTH) == 375
    links.nth(4).click()
    page.wait_for_function(
        "document.querySelector('#section-heads-taken-away').getBoundingClientRect().top < 600"
    )
    page.emulate_media(media="print")
    assert not page.locator(".contents").is_visible()


def test_a_long_table_shows_its_first_rows_and_all_where_a_reader_needs_them(open_page):
    page = open_page(report_of(*(make_table(["a"], [[i] for i in range(n)]) for n in (15, 64))))
    short, long = (table.locator("tbody tr:visible") for table in page.locator(".scroll").all())
    fold = page.locator(".fold")
    assert (short.count(), long.count()) == (15, 10)
    assert fold.inner_text() == "10 of 64 rows; show all"
    page.emulate_media(media="print")
    assert long.count() == 64
    page.emulate_media(media="screen")
    page.get_by_role("button", name="show all").press("Enter")
    assert fold.inner_text() == "64 rows; show the first 10"
    assert long.count() == 64
