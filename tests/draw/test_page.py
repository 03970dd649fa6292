"""The report page, looked at with a real browser: what it shows, what it never does, and what it refuses.

The documents here are made up, yet have the size and form of real ones: a sorter of three letters with all
27 inputs, two heads and 15000 steps of loss.
"""

import itertools
import json
import math
import random
import re
import shutil
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from attnlab.draw import render_page
from attnlab.errors import WrongUsage

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
PAYLOADS = [
    "<script>window.canary = 1</script>",
    "</script><script>window.canary = 2</script>",
    "\"><img src=x onerror='window.canary = 3'>",
    "<!--<script>",
    "&lt;b&gt; \u2028 \u2029 ' \" `${window.canary = 4}` $title",
]


def softmax_row(rng: random.Random, length: int, peak: int) -> list[float]:
    scores = [rng.gauss(0, 0.8) + (4.0 if i == peak else 0.0) for i in range(length)]
    total = sum(map(math.exp, scores))
    return [math.exp(score) / total for score in scores]


def make_trace(letters: list[str], alphabet: list[str], num_heads: int, rng: random.Random) -> dict[str, Any]:
    ordered = sorted(letters)
    tokens = [*letters, "SEP", *ordered]
    steps = []
    for k, letter in enumerate(ordered):
        chances = softmax_row(rng, len(alphabet), alphabet.index(letter))
        steps.append(
            {
                "position": len(letters) + k,
                "candidates": alphabet,
                "probabilities": chances,
                "choice": alphabet[max(range(len(alphabet)), key=chances.__getitem__)],
            }
        )
    attention = [
        {
            "site": f"layers.{head // 2}.attention.weights",
            "head": head % 2,
            "rows": [softmax_row(rng, i + 1, (3 * i + head) % (i + 1)) for i in range(len(tokens) - 1)],
        }
        for head in range(num_heads)
    ]
    return {"input": letters, "tokens": tokens, "steps": steps, "attention": attention}


def make_document(num_wrong: int = 0, num_steps: int = 15000) -> dict[str, Any]:
    """A sorter that looks like a finished run; `num_wrong` of its inputs come out wrong."""
    rng = random.Random(0)
    floor = 0.3662
    inputs = [list(letters) for letters in itertools.product("abc", repeat=3)]
    items = []
    for i, letters in enumerate(inputs):
        is_wrong = i in (5, 11, 16, 21)[:num_wrong]
        ordered = sorted(letters)
        items.append(
            {
                "input": letters,
                "output": ordered[::-1] if is_wrong else ordered,
                "expected": ordered,
                "correct": not is_wrong,
                "confidence": 0.61 if is_wrong else 1 - rng.random() ** 3 * 0.02,
            }
        )
    x = list(range(num_steps))
    y = [floor + 1.9 * math.exp(-step / 1300) + abs(rng.gauss(0, 0.03 + 0.25 * math.exp(-step / 2500))) for step in x]
    held_out = list(range(0, num_steps, 500))
    right = len(inputs) - num_wrong
    claims = [
        ("all_inputs_sorted", "every one of the 27 inputs comes out sorted", f"{right}/27", "27/27", not num_wrong),
        ("loss_at_floor", "the loss ends within 0.02 nats of the smallest possible", "0.0071", "≤ 0.02", True),
        ("heads_are_sharp", "each head puts at least 0.9 of its weight on one letter", "0.934", "≥ 0.9", True),
        ("rows_sum_to_one", "every attention row sums to one", "1.2e-07", "≤ 1e-06", True),
        ("nothing_looks_ahead", "no weight on a later token", 0.0, "= 0", True),
        ("needs_both_heads", "with either head zeroed it fails on some input", "9/27 and 11/27", "< 27/27", True),
    ]
    names = ("name", "statement", "measured", "bound", "passed")
    return {
        "title": "sorting",
        "subtitle": "One layer with two heads learns to sort three letters, and shows how it does it.",
        "facts": [["seed", 0], ["parameters", 480], ["steps", "15,000"], ["device", "cpu"], ["took", "41 s"]],
        "claims": [dict(zip(names, claim, strict=True)) for claim in claims],
        "sections": [
            {
                "kind": "text",
                "title": "What is going on",
                "text": "The model reads three letters and a separator, then writes them in order.\n\n"
                "It never sees the answer: at each step it looks back over the letters and picks one.",
            },
            {
                "kind": "lines",
                "title": "Learning",
                "caption": "The loss falls until nothing is left to learn: the floor is what a perfect sorter pays "
                "for letters it cannot foresee.",
                "x_label": "step",
                "y_label": "loss (nats)",
                "series": [
                    {"name": "training loss", "x": x, "y": y},
                    {
                        "name": "all 27 inputs",
                        "x": held_out,
                        "y": [floor + 1.8 * math.exp(-step / 1250) + 0.004 for step in held_out],
                    },
                ],
                "levels": [{"name": "floor 0.366", "y": floor}],
                "y_log": False,
            },
            {
                "kind": "verdicts",
                "title": "Every input",
                "caption": "All 27 inputs there are. Choose one to follow it below.",
                "items": items,
            },
            {
                "kind": "trace",
                "title": "Step by step",
                "caption": "Follow one input through the model: where each head looks, and what is picked.",
                "traces": [make_trace(letters, ["a", "b", "c"], 2, rng) for letters in inputs],
            },
            {
                "kind": "table",
                "title": "Heads taken away",
                "caption": "How many of the 27 inputs still come out sorted.",
                "columns": ["what is zeroed", "sorted inputs", "loss"],
                "rows": [["nothing", 27, 0.3733], ["head 0", 9, 1.2041], ["head 1", 11, float("nan")]],
            },
        ],
    }


def make_cross_document() -> dict[str, Any]:
    """A tiny translator: one self head, one cross head over the source, gaps, and many candidates."""
    document = make_document(num_steps=10)
    source = ["the", "cat", "sleeps", "<end>"]
    tokens = ["BOS", "le", "chat", "dort"]
    candidates = [f"word{i}" for i in range(20)] + ["le", "chat", "dort"]
    steps = [
        {
            "position": i,
            "candidates": candidates,
            "probabilities": [0.0] * 19 + [None] + [0.9 if c == tokens[i + 1] else 0.05 for c in candidates[20:]],
            "choice": tokens[i + 1],
        }
        for i in range(3)
    ]
    self_rows = [[1.0], [0.25, 0.75], [float("nan"), 0.5, 0.5]]
    cross_rows = [[0.125, 0.625, 0.125, 0.125], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]]
    document["sections"] = [
        {
            "kind": "trace",
            "title": "Translation",
            "caption": "Self-attention and cross-attention.",
            "traces": [
                {
                    "input": source,
                    "tokens": tokens,
                    "steps": steps,
                    "attention": [
                        {"site": "layers.0.attention.weights", "head": 0, "rows": self_rows},
                        {
                            "site": "layers.0.cross_attention.weights",
                            "head": 0,
                            "rows": cross_rows,
                            "key_tokens": source,
                        },
                    ],
                }
            ],
        }
    ]
    return document


class Words(HTMLParser):
    """Collects the text that is read without JavaScript, and the tags around it."""

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not Path(CHROMIUM).exists():
        pytest.skip(f"no chromium at {CHROMIUM}")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


Open = Callable[..., Any]


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Open a document from disk; at the end, no request but file:// and no complaint of the console."""
    contexts, requests, complaints = [], [], []

    def open_it(document: dict[str, Any], width: int = 1000, **options: Any) -> Any:
        path = tmp_path / "report.html"
        path.write_text(render_page(document), encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(path.as_uri())
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert [url for url in requests if not url.startswith(("file://", "data:,"))] == []
    assert any(url.startswith("file://") for url in requests)
    assert complaints == []


def shown_weights(page: Any) -> list[str]:
    """The weights under the token strip, as titles: what the first head pictures at the current step."""
    return page.locator(".strip .bars").first.locator(".column").evaluate_all("all => all.map(c => c.title)")


def said(page: Any) -> str:
    return page.locator(".said").inner_text()


def first_heatmap(page: Any) -> list[str]:
    return page.locator(".map").first.locator(".weight").evaluate_all("all => all.map(c => c.title)")


def test_whole_page_works_without_network_or_console_messages(open_page: Open) -> None:
    page = open_page(make_document())
    assert page.locator("h1").inner_text() == "sorting"
    assert "6 of 6 claims hold" in page.locator(".verdict").inner_text()
    assert page.locator("h2").all_inner_texts() == [
        "What is going on",
        "Learning",
        "Every input",
        "Step by step",
        "Heads taken away",
    ]
    assert page.locator(".cell").count() == 27
    assert page.locator(".map").count() == 2
    assert page.locator(".scroll td").last.inner_text() == "n/a"


def test_policy_admits_only_the_inlined_script_and_style(browser: Any, tmp_path: Path) -> None:
    html = render_page(make_document(num_steps=10))
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


def test_failed_claim_is_said_in_words(open_page: Open) -> None:
    page = open_page(make_document(num_wrong=3))
    assert "✗ 1 of 6 claims failed" in page.locator(".verdict").inner_text()
    assert page.locator(".failures").inner_text() == "Failed: all_inputs_sorted"
    assert page.locator(".claims tbody tr").first.locator(".state").inner_text() == "✗ failed"


def test_claims_and_tables_are_there_without_javascript(open_page: Open) -> None:
    page = open_page(make_document(num_wrong=1), java_script_enabled=False)
    assert page.locator(".claims tbody tr").count() == 6
    assert page.locator(".claims tbody tr .state").all_inner_texts()[:2] == ["✗ failed", "✓ holds"]
    assert "26/27" in page.locator(".claims").inner_text()
    assert page.locator(".scroll tbody tr").count() == 3
    assert page.locator("noscript").first.inner_text().startswith("This part is interactive")
    assert not page.locator("#theme").is_visible()


def test_steps_by_button_change_the_pictured_weights(open_page: Open) -> None:
    document = make_document(num_steps=10)
    page = open_page(document)
    page.locator(".chooser select").select_option(label="cab")
    trace = next(t for t in document["sections"][3]["traces"] if t["input"] == ["c", "a", "b"])
    for k, step in enumerate(trace["steps"]):
        chance = step["probabilities"][step["candidates"].index(step["choice"])]
        prefix = " ".join(trace["tokens"][: 4 + k])
        assert said(page) == (
            f"Step {k + 1} of 3: after {prefix}, the model looks back from ‘{trace['tokens'][3 + k]}’ "
            f"and picks ‘{step['choice']}’ with probability {chance:.3f}."
        )
        row = trace["attention"][0]["rows"][step["position"]]
        pictured = [title.rsplit(" ", 1)[1] for title in shown_weights(page)]
        assert pictured == [f"{weight:.3f}" for weight in row] + ["masked"] * (7 - len(row))
        assert page.locator(".map").first.locator(".row.current").count() == 1
        assert page.locator(".token.query").inner_text() == trace["tokens"][3 + k]
        assert page.locator(".token.next").inner_text() == step["choice"]
        assert page.locator(".chances .is-choice .word").inner_text() == step["choice"]
        if k < 2:
            page.get_by_role("button", name="Next step").click()
    assert page.get_by_role("button", name="Next step").is_disabled()
    page.get_by_role("button", name="Previous step").click()
    assert said(page).startswith("Step 2 of 3")


def test_arrow_keys_step_and_change_the_pictured_weights(open_page: Open) -> None:
    page = open_page(make_document(num_steps=10))
    page.locator(".stepper").scroll_into_view_if_needed()
    before = shown_weights(page)
    page.keyboard.press("ArrowRight")
    assert said(page).startswith("Step 2 of 3")
    assert shown_weights(page) != before
    page.get_by_role("button", name="Next step").focus()
    page.keyboard.press("ArrowRight")
    assert said(page).startswith("Step 3 of 3")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert shown_weights(page) == before


def test_arrow_keys_inside_the_text_field_do_not_step(open_page: Open) -> None:
    page = open_page(make_document(num_steps=10))
    page.get_by_label("Input", exact=True).focus()
    page.keyboard.press("ArrowRight")
    assert said(page).startswith("Step 1 of 3")


def test_playing_walks_to_the_last_step_and_stops(open_page: Open) -> None:
    page = open_page(make_document(num_steps=10))
    page.clock.install()
    page.get_by_role("button", name="Play").click()
    assert said(page).startswith("Step 2 of 3")
    page.clock.run_for(1300)
    assert said(page).startswith("Step 3 of 3")
    page.clock.run_for(1300)
    assert page.locator(".play").inner_text() == "▶ Play"


def test_less_motion_means_no_transitions_and_a_slower_walk(open_page: Open) -> None:
    page = open_page(make_document(num_steps=10), reduced_motion="reduce")
    bar = page.locator(".column i").first
    assert bar.evaluate("node => getComputedStyle(node).transitionProperty") in ("none", "all")
    assert bar.evaluate("node => getComputedStyle(node).transitionDuration") == "0s"
    page.clock.install()
    page.get_by_role("button", name="Play").click()
    page.clock.run_for(1300)
    assert said(page).startswith("Step 2 of 3")
    page.clock.run_for(1300)
    assert said(page).startswith("Step 3 of 3")


def test_choosing_another_input_changes_everything_pictured(open_page: Open) -> None:
    page = open_page(make_document(num_steps=10))
    field = page.get_by_label("Input", exact=True)
    before = shown_weights(page), first_heatmap(page), said(page)
    field.fill("b c, a")
    assert "after b c a SEP" in said(page)
    by_typing = shown_weights(page), first_heatmap(page), said(page)
    assert all(one != other for one, other in zip(before, by_typing, strict=True))
    page.get_by_role("button", name="Next input").click()
    assert "after b c b SEP" in said(page)
    page.get_by_role("button", name="Previous input").click()
    assert (shown_weights(page), first_heatmap(page), said(page)) == by_typing
    page.locator(".chooser select").select_option(label="aab")
    assert "after a a b SEP" in said(page)
    assert field.input_value() == "aab"


def test_typed_input_is_completed_or_refused_in_a_sentence(open_page: Open) -> None:
    page = open_page(make_document(num_steps=10))
    field = page.get_by_label("Input", exact=True)
    message = page.locator(".chooser .message")
    before = said(page)
    field.fill("xyz")
    assert message.inner_text() == (
        "“xyz” is not among the 27 inputs recorded here; each has 3 tokens from a b c, "
        "for example aaa, aab, aac, aba, …."
    )
    assert field.get_attribute("aria-invalid") == "true"
    assert said(page) == before
    field.fill("ca")
    assert message.inner_text().startswith("3 inputs begin so: caa, cab, cac.")
    assert page.locator(".chooser option").all_inner_texts() == ["caa", "cab", "cac"]
    field.press("Enter")
    assert "after c a a SEP" in said(page)
    assert page.locator(".chooser option").count() == 27


def test_wrong_verdicts_are_marked_filtered_and_lead_to_their_trace(open_page: Open) -> None:
    page = open_page(make_document(num_wrong=3, num_steps=10))
    wrong = page.locator(".cell.wrong")
    assert wrong.count() == 3
    assert "✗" in wrong.first.inner_text()
    assert "expected abc" in wrong.first.inner_text()
    page.get_by_role("button", name="Only wrong (3)").click()
    assert page.locator(".cell:visible").count() == 3
    wrong.nth(1).click()
    assert "after b a c SEP" in said(page)
    assert page.locator(".stepper").is_visible()
    right = open_page(make_document(num_steps=10))
    assert right.get_by_role("button", name=re.compile("Only wrong")).count() == 0


def test_masked_keys_are_not_drawn_as_zero(open_page: Open) -> None:
    page = open_page(make_document(num_steps=10))
    rows = page.locator(".map").first.locator(".row:not(.keys)")
    assert rows.count() == 6
    for i in range(6):
        assert rows.nth(i).locator(".weight").count() == i + 1
        assert rows.nth(i).locator(".masked-area").count() == (1 if i < 5 else 0)
    assert "masked" in rows.first.locator(".masked-area").get_attribute("title")


def test_cells_of_a_map_can_be_read_by_keyboard(open_page: Open) -> None:
    document = make_document(num_steps=10)
    page = open_page(document)
    page.get_by_role("button", name="Next step").click()
    page.get_by_role("button", name="Enlarge Layer 0, head 0").focus()
    page.keyboard.press("Tab")
    trace = next(t for t in document["sections"][3]["traces"] if t["input"] == ["c", "b", "a"])
    rows = trace["attention"][0]["rows"]
    reading = page.locator(".map").first.locator(".axes")
    assert reading.inner_text() == f"‘a’ at 4 → ‘c’ at 0: {rows[4][0]:.4f}"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowUp")
    assert reading.inner_text() == f"‘SEP’ at 3 → ‘b’ at 1: {rows[3][1]:.4f}"
    assert said(page).startswith("Step 2 of 3")


def test_head_chosen_by_its_name_draws_its_arcs(open_page: Open) -> None:
    page = open_page(make_document(num_steps=10))
    arcs = "() => [...document.querySelectorAll('.arcs path')].map(p => p.getAttribute('stroke-width'))"
    before = page.evaluate(arcs)
    page.get_by_role("button", name="L0 H1").click()
    assert page.evaluate(arcs) != before
    assert page.get_by_role("button", name="L0 H1").get_attribute("aria-pressed") == "true"


def test_cross_attention_names_its_own_keys_and_gaps_are_worded(open_page: Open) -> None:
    page = open_page(make_cross_document())
    cross = page.locator(".map").nth(1)
    assert cross.locator("h4").inner_text().startswith("Layer 0 cross, head 0")
    assert cross.locator(".key").all_inner_texts() == ["the", "cat", "sleeps", "<end>"]
    assert cross.locator(".masked-area").count() == 0
    assert "Layer 0 cross, head 0 looks most at ‘cat’, position 1 (0.625)" in page.locator(".said + .note").inner_text()
    assert page.locator(".chances li").count() == 13
    assert page.locator(".chances .rest").inner_text().startswith("11 others")
    assert page.locator(".map").first.locator(".weight.missing").get_attribute("title").endswith("n/a")


def test_crosshair_reads_exact_values_and_gaps_stay_gaps(open_page: Open) -> None:
    document = make_document(num_steps=10)
    document["sections"][1]["series"] = [
        {"name": "loss", "x": [0, 1, 2, 3, 4], "y": [2.0, 1.0, float("nan"), None, 0.125]}
    ]
    page = open_page(document)
    chart = page.locator(".chart")
    paths = chart.locator("path.series").evaluate_all("all => all.map(p => p.getAttribute('d'))")
    assert [len(re.findall("[ML]", path)) for path in paths] == [2, 1]
    assert page.locator(".lines .note").inner_text() == "2 values not finite, left as gaps."
    output = page.locator(".legend output")
    chart.focus()
    page.keyboard.press("Home")
    assert output.inner_text() == "2 at step 0"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert output.inner_text() == "n/a at step 2"
    box = chart.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 20, box["y"] + 100)
    assert output.inner_text() == "0.12500 at step 4"


def test_thinned_line_keeps_the_smallest_and_the_largest_value(open_page: Open) -> None:
    document = make_document()
    losses = [1.0] * 15000
    losses[7001], losses[9001] = 9.0, -7.0
    document["sections"][1]["series"] = [{"name": "loss", "x": list(range(15000)), "y": losses}]
    document["sections"][1]["levels"] = []
    page = open_page(document)
    ticks = page.locator(".chart text").all_text_contents()
    band = page.locator(".chart .envelope").evaluate("node => { const b = node.getBBox(); return [b.y, b.height] }")
    # The band spans 16 of the 17.6 units between the padded ends of the axis.
    assert band[1] == pytest.approx((320 - 14 - 40) * 16 / 17.6, rel=0.01)
    assert "smallest to largest" in page.locator(".lines .note").inner_text()
    assert "−5" in ticks


def test_log_scale_is_a_switch(open_page: Open) -> None:
    page = open_page(make_document(num_steps=100))
    path = page.locator(".chart path.series").first
    before = path.get_attribute("d")
    page.get_by_role("button", name="Log scale").click()
    assert path.get_attribute("d") != before
    assert page.get_by_role("button", name="Log scale").get_attribute("aria-pressed") == "true"


def test_hostile_strings_are_shown_literally_and_never_run(open_page: Open) -> None:
    def taint(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {k: taint(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return [taint(item, key) for item in value]
        return value + "".join(PAYLOADS) if isinstance(value, str) and key != "kind" else value

    document = taint(make_document(num_wrong=1, num_steps=10))
    # Letters become the payloads themselves.
    names = dict(zip("abc", PAYLOADS, strict=False))
    document = json.loads(
        json.dumps(document),
        object_hook=lambda node: {
            k: [names.get(item[0], item) if isinstance(item, str) else item for item in v]
            if k in ("input", "output", "expected", "tokens", "candidates") and isinstance(v, list)
            else names.get(v[0], v)
            if k == "choice"
            else v
            for k, v in node.items()
        },
    )
    page = open_page(document)
    page.get_by_role("button", name="Next step").click()
    page.get_by_label("Input", exact=True).fill("<img src=x onerror='window.canary = 5'>")
    assert "<img src=x onerror='window.canary = 5'>" in page.locator(".message").inner_text()
    assert page.evaluate("window.canary") is None
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2
    assert page.locator("h1").inner_text().startswith("sorting<script>window.canary = 1</script></script><script>")
    assert "$title" in page.locator("h1").inner_text()
    assert PAYLOADS[0] in page.locator(".cell").first.inner_text()
    assert page.locator(".token").first.inner_text().replace("␣", " ") in PAYLOADS
    assert PAYLOADS[0].replace(" ", "␣") in page.locator(".said").inner_text()


def test_arrays_of_markup_cannot_leave_the_data_block() -> None:
    document = make_cross_document()
    document["sections"][0]["traces"][0]["input"] = PAYLOADS
    html = render_page(document)
    data = re.search(r'<script type="application/json" id="document">(.*?)</script>', html, re.DOTALL)
    assert data is not None
    assert not set("<>&\u2028\u2029") & set(data[1])
    assert json.loads(data[1])[0]["traces"][0]["input"] == PAYLOADS


@pytest.mark.parametrize("make", [make_document, make_cross_document])
@pytest.mark.parametrize("width", [360, 1400])
def test_body_never_overflows_sideways(open_page: Open, make: Callable[[], Any], width: int) -> None:
    document = make()
    rng = random.Random(3)
    alphabet = list("abcdefghijklm")
    for num_letters in (12, 30):
        document["sections"].append(
            {
                "kind": "trace",
                "title": "A" * 90,
                "caption": "long",
                "traces": [make_trace([rng.choice(alphabet) for _ in range(num_letters)], alphabet, 6, rng)],
            }
        )
    document["sections"].append(
        {"kind": "table", "title": "wide", "caption": "", "columns": ["column"] * 30, "rows": [[1.5] * 30]}
    )
    page = open_page(document, width=width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate("document.body.scrollWidth") <= width


CONTRASTS = """() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const pixel = (colour, under) => {
    canvas.fillStyle = under; canvas.fillRect(0, 0, 1, 1);
    canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = rgb => rgb.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = node => {
    for (let at = node; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (pixel(colour, '#000').join() === pixel(colour, '#fff').join()) return colour;
    }
  };
  const chosen = 'h1, h2, h3, h4, p, dt, dd, td, th, code, button:enabled, li span, output, .token, ' +
    '.row:not(.ahead) .weight, .row:not(.ahead) .query-name, .role, .key';
  return [...document.querySelectorAll(chosen)]
    .filter(node => node.textContent.trim() || node.dataset.brief)
    .filter(node => node.checkVisibility() && !node.closest('noscript'))
    .map(node => {
      const back = ground(node);
      const [a, b] = [light(pixel(getComputedStyle(node).color, back)), light(pixel(back, back))];
      return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), node.className + ' ' + node.textContent.slice(0, 30)];
    });
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground_in_both_themes(open_page: Open, scheme: str) -> None:
    page = open_page(make_document(num_wrong=3, num_steps=10), color_scheme=scheme)
    # Cells of every shade, so that the turn from dark to light text is looked at too.
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    assert page.evaluate(ground) == {"light": "rgb(251, 250, 247)", "dark": "rgb(20, 23, 27)"}[scheme]
    ratios = page.evaluate(CONTRASTS)
    assert len(ratios) > 150
    assert min(ratios)[0] >= 4.5, min(ratios)
    page.locator("#theme").click()
    assert page.evaluate(ground) == {"dark": "rgb(251, 250, 247)", "light": "rgb(20, 23, 27)"}[scheme]
    ratios = page.evaluate(CONTRASTS)
    assert min(ratios)[0] >= 4.5, min(ratios)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_printed_weights_are_legible_on_every_shade(open_page: Open, scheme: str) -> None:
    document = make_document(num_steps=10)
    shades = [[i / 20] for i in range(21)]
    document["sections"][3]["traces"] = [
        {
            "input": ["a"],
            "tokens": ["a"] * 22,
            "steps": [],
            "attention": [{"site": "layers.0.attention.weights", "head": 0, "rows": shades}],
        }
    ]
    page = open_page(document, color_scheme=scheme)
    ratios = [ratio for ratio in page.evaluate(CONTRASTS) if ratio[1].strip().startswith("weight shade")]
    assert len(ratios) == 21
    assert min(ratios)[0] >= 4.5, ratios


def test_three_hundred_long_traces_with_eight_heads_can_be_stepped_through(open_page: Open) -> None:
    rng = random.Random(1)
    alphabet = list("abcdefghijklmnop")
    document = make_document(num_steps=10)
    document["sections"][3]["traces"] = [
        make_trace([rng.choice(alphabet) for _ in range(12)], alphabet, 8, rng) for _ in range(300)
    ]
    page = open_page(document, width=1400)
    page.locator(".maps").scroll_into_view_if_needed()
    for _ in range(9):
        page.get_by_label("Next step").click()
    assert said(page).startswith("Step 10 of 12")


def test_page_prints_all_of_a_long_list_in_light_colours(open_page: Open) -> None:
    document = make_document(num_steps=10)
    document["sections"][2]["items"] *= 4
    page = open_page(document, color_scheme="dark")
    cells = page.locator(".cells")
    assert cells.evaluate("node => node.scrollHeight > node.clientHeight")
    page.emulate_media(media="print", color_scheme="dark")
    assert cells.evaluate("node => node.scrollHeight <= node.clientHeight + 4")
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("#theme").is_visible()


def test_empty_parts_say_so_instead_of_breaking(open_page: Open) -> None:
    document = {
        "title": "empty",
        "subtitle": "",
        "facts": [],
        "claims": [],
        "sections": [
            {
                "kind": "lines",
                "title": "none",
                "caption": "",
                "x_label": "step",
                "y_label": "loss",
                "series": [{"name": "loss", "x": [0, 1], "y": [None, float("inf")]}],
            },
            {"kind": "verdicts", "title": "none", "caption": "", "items": []},
            {"kind": "trace", "title": "none", "caption": "", "traces": []},
        ],
    }
    page = open_page(document)
    assert page.locator(".verdict").inner_text() == "– This run makes no claims"
    assert page.locator(".stage").all_inner_texts() == [
        "There is no finite value to draw.",
        "No input was judged.",
        "No trace was recorded.",
    ]


def test_static_words_need_no_browser_to_be_read() -> None:
    words = Words()
    words.feed(render_page(make_document(num_steps=10)))
    text = " ".join(words.text)
    for claim in make_document(num_steps=10)["claims"]:
        assert claim["statement"] in text
        assert claim["name"] in text
    assert words.tags.count("h1") == 1
    assert words.tags.count("main") == 1


def edited(path: str, value: Any) -> dict[str, Any]:
    """A small document with one place changed, or taken away where `value` is `...`."""
    document = make_document(num_steps=10)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    node: Any = document
    for part in parents:
        node = node[part]
    if value is ...:
        del node[last]
    else:
        node[last] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("title", ..., r"document: expected the key 'title' in a document, got the keys \['claims'"),
        ("colour", "red", r"document: expected only known keys in a document, got 'colour'; .*Known: claims"),
        ("sections.0.kind", "txt", r"sections\[0\]: expected a known kind of section, got 'txt'; did you mean 'text'"),
        ("sections.0.kind", ["text"], r"expected a known kind of section, got \['text'\]"),
        ("sections.0.kind", ..., r"sections\[0\]: expected the key 'kind'"),
        ("sections.1.y_label", ..., r"sections\[1\]: expected the key 'y_label' in a lines"),
        ("sections.1.series.0.y", [1.0], r"series\[0\]: expected as many y as x, 10, got 1"),
        ("sections.4.rows.0", [1], r"rows\[0\]: expected one cell per column, 3, got 1"),
        ("claims.0.passed", "yes", r"claims\[0\].passed: expected True or False, got str 'yes'"),
        ("claims", {"name": "x"}, r"document.claims: expected a list, got dict"),
        ("facts.0", ["seed"], r"facts\[0\]: expected a name and a value, 2, got 1"),
        ("sections.3.traces.0.steps.0.position", 6, r"position: expected a token after it, below 6, got 6"),
        ("sections.3.traces.0.steps.0.probabilities", [1.0], r"one probability per candidate, 3, got 1"),
        ("sections.3.traces.0.attention.0.rows.0", [0.1] * 8, r"rows: expected rows of at most 7 keys, got 8"),
        ("sections.3.traces.0.attention.0.rows.0", ["1"], r"rows\[0\]\[0\]: expected a plain number or None, got str"),
        ("sections.3.traces.0.tokens.0", 3, r"tokens\[0\]: expected a string, got int '3'"),
    ],
)
def test_malformed_document_is_refused_with_expected_and_got(path: str, value: Any, message: str) -> None:
    with pytest.raises(WrongUsage, match=message):
        render_page(edited(path, value))


def test_array_in_the_document_is_refused_with_the_way_out() -> None:
    numpy = pytest.importorskip("numpy")
    with pytest.raises(WrongUsage, match=r"series\[0\].y: expected a list, got ndarray .*\.tolist\(\)"):
        render_page(edited("sections.1.series.0.y", numpy.ones(10)))


def test_stored_numbers_keep_the_stated_precision() -> None:
    document = make_document(num_steps=50)
    html = render_page(document)
    data = re.search(r'<script type="application/json" id="document">(.*?)</script>', html, re.DOTALL)
    assert data is not None
    stored = json.loads(data[1])
    for kept, given in zip(stored[3]["traces"], document["sections"][3]["traces"], strict=True):
        for one, other in zip(kept["attention"], given["attention"], strict=True):
            for row, exact in zip(one["rows"], other["rows"], strict=True):
                assert row == pytest.approx(exact, abs=0.5000001e-5)
    assert stored[1]["series"][0]["y"] == pytest.approx(document["sections"][1]["series"][0]["y"], rel=5e-7)
