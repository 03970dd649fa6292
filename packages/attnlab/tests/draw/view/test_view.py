"""The view in a browser: opened from disk, read, walked through, zoomed, compared."""

import re

import pytest

from attnlab.draw.view import view_page
from tests.sampling import sampled

from ..attention.patterns import ODD, make_layers, make_pattern
from ..views import CONTRASTS, cell_colors
from .viewing import (
    MEASURE,
    check_cell,
    check_masked_cell_is_hatched,
    check_pointing,
    corner,
    number,
    reading,
    ready,
    title,
    wait_for_title,
    walk_to,
)


@pytest.fixture
def open_view(open_html):
    """Open patterns, or two lists of them, as their page."""

    def open_it(*recordings, width=1200, scheme="light", **options):
        has_touch = options.pop("has_touch", False)
        page = open_html(
            view_page(*recordings, **options), width, color_scheme=scheme, has_touch=has_touch
        )
        return ready(page)

    return open_it


def test_cells_are_read_within_their_bound_and_heads_picked_by_click_and_keyboard(open_view):
    patterns = make_layers(3, 4)
    page = open_view(patterns, title="A sentence")
    assert page.locator("h1").inner_text() == "A sentence"
    assert title(page) == "Head 0.0"
    assert page.locator(".overview .head").count() == 12
    assert page.locator(".row-part h3").inner_text() == "Query 7 ‘w7’ looks at"
    check_pointing(page, 5, 2)
    left, top, cell = corner(page)
    value = number(MEASURE.search(reading(page))[1])
    assert value == pytest.approx(float(patterns[0].weights[0, 5, 2]), abs=0.005)
    page.mouse.click(left + 2.5 * cell, top + 5.5 * cell)
    assert page.locator(".row-part h3").inner_text() == "Query 5 ‘w5’ looks at"
    page.mouse.move(left + 6.5 * cell, top + 1.5 * cell)
    assert reading(page) == "Query 1 ‘w1’ may not attend to key 6 ‘w6’: masked."
    for row, column in [(0, 0), (7, 7), (4, 2), (2, 6)]:
        check_cell(page, patterns[0], 0, row, column)
    page.get_by_label("Layer", exact=True).select_option("1")
    page.get_by_label("Head", exact=True).select_option("2")
    wait_for_title(page, "Head 1.2")
    check_cell(page, patterns[1], 2, 7, 3)
    page.locator(".head[data-layer='2'][data-head='1']").click()
    wait_for_title(page, "Head 2.1")
    assert page.locator(".map-part code").inner_text() == "layers.2.attention.weights"
    page.locator(".head[tabindex='0']").focus()
    for key in ("ArrowUp", "ArrowRight", "End", "Home", "ArrowRight"):
        page.keyboard.press(key)
    wait_for_title(page, "Head 1.1")
    for chosen in (".head[aria-selected='true']", ".head[tabindex='0']"):
        assert page.locator(chosen).count() == 1
    assert page.evaluate("document.activeElement.dataset.head") == "1"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") != "head"
    assert page.get_by_label("Layer", exact=True).input_value() == "1"
    # What is told of the canvas is not zoomed with the page, its place is.
    page.evaluate("document.body.style.zoom = '1.5'")
    left, top, cell = (1.5 * each for each in corner(page))
    box = page.locator("canvas.heatmap").bounding_box()
    page.mouse.move(left - 0.5 * box["x"] + 2.5 * cell, top - 0.5 * box["y"] + 5.5 * cell)
    assert reading(page).startswith("Query 5 ‘w5’ → key 2 ‘w2’: ")


@pytest.mark.slow
def test_a_page_opens_with_the_head_that_is_asked_for(open_view):
    patterns = make_layers()
    page = open_view(patterns, opens=(patterns[1].site, 2))
    assert title(page) == "Head 1.2"
    assert page.get_by_label("Layer", exact=True).input_value() == "1"


SCROLLED = """node => new Promise((done) => {
  node.addEventListener("scroll", () => setTimeout(done, 100), { once: true });
  node.scrollTo(9999, 9999);
})"""


def test_a_grid_of_heads_that_scrolls_says_so_and_fades_where_there_are_more(open_view):
    fades = "node => ['--below', '--right'].map((name) => node.style.getPropertyValue(name))"
    page = open_view(make_layers(30, 18, length=2), width=500)
    scroller = page.locator(".overview-scroll")
    assert page.get_by_text("Scroll for more.").is_visible()
    assert scroller.evaluate(fades) == ["2rem", "2rem"]
    scroller.evaluate(SCROLLED)
    assert scroller.evaluate(fades) == ["0px", "0px"]
    few = open_view(make_layers(2, 3, length=2))
    assert few.get_by_text("Scroll for more.").is_hidden()
    assert few.locator(".overview-scroll").evaluate(fades) == ["0px", "0px"]


def test_masked_cells_are_hatched_words_legible_and_a_row_told_in_full(open_view):
    pattern = make_pattern()
    page = open_view([pattern])
    page.get_by_label("Shown as", exact=True).select_option(label="Entropy")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        check_masked_cell_is_hatched(page, 1, 6)
        with pytest.raises(AssertionError, match="looks like a weight of zero"):
            check_masked_cell_is_hatched(page, 6, 1)
        ratios = page.evaluate(CONTRASTS.replace("'.token,", "'.head, .token,"))
        assert any(name.startswith("head shade measure") for _, name in ratios)
        assert len(ratios) > 20
        assert min(ratios)[0] >= 4.5, sorted(ratios)[:3]
    page.get_by_label("Query", exact=True).fill("5")
    weights = pattern.weights[0, 5].tolist()
    best = max(range(8), key=lambda key: weights[key])
    first = page.locator(".row-words .chances li").first
    assert first.locator(".word").inner_text() == f"w{best}"
    assert first.locator(".number").inner_text() == f"{weights[best]:.3f}"
    widths = "(bar) => bar.getBoundingClientRect().width / bar.parentElement.clientWidth"
    share = first.locator(".track i").evaluate(widths)
    assert share == pytest.approx(weights[best], abs=0.02)  # the whole track is a weight of 1
    assert page.locator(".row-words .note").inner_text().endswith("2 masked.")
    page.get_by_text("All weights of this query as a table").click()
    page.locator(".weights-table tbody tr").first.wait_for()
    rows = page.locator(".weights-table tbody tr").all_inner_texts()
    assert len(rows) == 8
    assert [row.split("\t")[2] for row in rows[6:]] == ["masked", "masked"]
    for key, row in enumerate(rows[:6]):
        number_of, token, value, bound = row.split("\t")
        assert (number_of, token) == (str(key), f"w{key}")
        off = abs(number(value.strip("<>")) - weights[key])
        assert off <= number(bound) + 0.001


def test_the_map_is_zoomed_by_buttons_wheel_and_keys_and_fitted_again(open_view):
    page = open_view([make_pattern(queries=64)])
    left, top, cell = corner(page)
    context = (left + 31.5 * cell, top + 31.5 * cell)
    page.mouse.move(*context)
    assert "Query 31 ‘w31’ → key 31" in reading(page)
    page.mouse.move(left + 0.5 * cell, top + 0.5 * cell)
    edge = reading(page)
    page.get_by_role("button", name="Zoom in").click()
    page.get_by_role("button", name="Zoom in").click()
    page.mouse.move(left + 1, top + 1)
    assert reading(page) != edge
    page.get_by_role("button", name="Fit the whole map").click()
    page.mouse.move(left + 0.5 * cell, top + 0.5 * cell)
    assert reading(page) == edge
    page.mouse.move(*context)
    page.mouse.wheel(0, -300)  # the page may scroll: the map has not been clicked
    left, top, cell = corner(page)
    context = (left + 31.5 * cell, top + 31.5 * cell)
    page.mouse.move(left + 1, top + 1)
    assert reading(page) == edge
    page.mouse.click(*context)
    page.mouse.wheel(0, -300)
    page.mouse.move(left + 1, top + 1)
    zoomed = reading(page)
    assert zoomed != edge
    page.mouse.move(*context)
    assert "Query 31 ‘w31’ → key 31" in reading(page)  # what is under the pointer stays there
    page.mouse.down()
    page.mouse.move(context[0] + 40, context[1] + 40, steps=4)
    page.mouse.up()
    page.mouse.move(left + 1, top + 1)
    assert reading(page) != zoomed
    page.locator("canvas.heatmap").focus()
    page.keyboard.press("0")
    page.mouse.move(left + 1, top + 1)
    assert reading(page) == edge
    page.keyboard.press("+")
    page.mouse.move(left + 1, top + 1)
    assert reading(page) != edge


@pytest.mark.slow
def test_two_fingers_zoom(open_view):
    page = open_view([make_pattern(queries=64)], has_touch=True)
    left, top, cell = corner(page)
    x, y = left + 32 * cell, top + 32 * cell
    touch = page.context.new_cdp_session(page)

    for kind, apart in {"touchStart": 20, "touchMove": 80, "touchEnd": 0}.items():
        places = [{"x": x + way * apart, "y": y, "id": way + 2} for way in (-1, 1) if apart]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": places})
    assert "zoomed" in page.locator("canvas.heatmap").get_attribute("class")
    page.mouse.move(left + 1, top + 1)
    assert not re.search("Query 0 .* key 0 ", reading(page))


@pytest.mark.slow
def test_the_keyboard_reads_a_zoomed_map_cell_by_cell(open_view):
    patterns = [make_pattern(queries=64)]
    page = open_view(patterns)
    page.locator("canvas.heatmap").focus()
    for _ in range(4):
        page.keyboard.press("+")
    check_cell(page, patterns[0], 0, 63, 3)
    page.keyboard.press("PageUp")
    assert "Query 53 ‘w53’ → key 3 " in reading(page)
    page.keyboard.press("End")
    assert reading(page).startswith("Query 53 ‘w53’ may not attend to key 63")


def test_cross_attention_has_a_list_of_its_own_on_each_axis(open_view):
    cross = make_pattern(
        "decoder.layers.0.cross_attention.weights", 2, 3, len(ODD), is_causal=False, tokens=ODD
    )
    own = make_pattern("decoder.layers.0.attention.weights", 2, 3)
    page = open_view([own, cross])
    assert title(page) == "Head decoder 0.0"
    page.get_by_label("Attention", exact=True).select_option(label="Decoder cross-attention")
    wait_for_title(page, "Head cross 0.0")
    assert walk_to(page, 2, 3).startswith("Query 2 ‘w2’ → key 3 ‘שלום’: ")
    assert walk_to(page, 1, 0).startswith("Query 1 ‘w1’ → key 0 ‘∅’: ")
    assert walk_to(page, 1, 2).startswith("Query 1 ‘w1’ → key 2 ‘⏎’: ")
    assert walk_to(page, 0, 9).startswith("Query 0 ‘w0’ → key 9 ‘<script>alert(1)</script>’: ")
    names = page.locator(".map-part dt").all_inner_texts()
    assert names == ["Entropy", "Effective keys", "Largest weight", "On the first key"]


CHOSEN = "each => each.selectedOptions[0].label"


@pytest.mark.parametrize("looks", sampled([("light", 1280), ("dark", 360)], 1), ids=str)
def test_two_recordings_are_compared_cell_by_cell_on_an_accessible_page(open_view, looks):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
    )
    scheme, width = looks
    one, other = make_layers(seed=1), make_layers(seed=2)
    page = open_view(one, other, names=("clean", "cut"), width=width, scheme=scheme)
    choice = page.get_by_label("Show", exact=True)
    assert choice.evaluate(CHOSEN) == "cut − clean"
    change = float(other[0].weights[0, 5, 2] - one[0].weights[0, 5, 2])
    measure = MEASURE.search(walk_to(page, 5, 2))
    assert measure
    assert abs(number(measure[1]) - change) <= number(measure[2]) + 0.0005
    assert (measure[1][0] == "+") == (change > 0)
    page.get_by_text("All weights of this query as a table").click()
    found = axe.Axe().run(page).response["violations"]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    choice.select_option(label="cut")
    page.locator(".legend-line").filter(has_not_text="−").wait_for()
    check_cell(page, other[0], 0, 5, 2)
    assert " → " not in page.locator(".map-part dd").first.inner_text()


def test_a_pooled_page_says_so_and_reads_means_and_largest(open_view):
    pattern = make_pattern(heads=2, queries=700)
    page = open_view([pattern], max_bytes=400_000)
    footer = page.locator("footer").inner_text()
    side = int(re.search(r"of (\d+) × \d+ weights", footer)[1])
    assert "The maps are pooled to keep this page within its size" in footer
    square = pattern.weights[0, 2 * side : 3 * side, side : 2 * side]
    words_read = walk_to(page, 2, 1)
    assert words_read.startswith(
        f"Queries {2 * side}–{3 * side - 1} → keys {side}–{2 * side - 1}: mean "
    )
    mean, bound, most, bound_too = map(
        number, re.findall(r"([\d.e−]+)(?= ±|,|$)", words_read.split(": ")[1])
    )
    assert abs(mean - float(square.mean())) <= bound + 0.0006 * mean
    assert abs(most - float(square.max())) <= bound_too + 0.0006 * most


@pytest.mark.slow
def test_the_shade_and_what_the_heads_show_can_be_chosen(open_view):
    page = open_view(make_layers())
    legend, heads = page.locator(".legend-line"), page.locator(".overview-part")
    thumb = "document.querySelector('.head canvas').getContext('2d').getImageData(0, 0, 9, 9).data"
    drawn = []
    for choice, told in (
        (None, "linear"),
        ("Square root, 0 to 1", "square root"),
        ("Linear, to the largest here", "linear"),
    ):
        if choice is not None:
            page.get_by_label("Shade", exact=True).select_option(label=choice)
        assert f"shade: {told}" in legend.inner_text()
        assert f"Shade: {told}, 0 to 1." in heads.inner_text()
        drawn.append(page.evaluate(f"[...{thumb}]"))
    assert drawn[0] == drawn[2] != drawn[1]
    page.get_by_label("Shown as", exact=True).select_option(label="Largest weight")
    label = page.locator(".head[data-layer='1'][data-head='2']").get_attribute("aria-label")
    value = float(make_layers()[1].weights[2].amax(-1).mean())
    assert label == f"Head 1.2: largest weight {value:.3f}"


@pytest.mark.slow
def test_themes_repaint_the_maps_and_paper_is_light_with_maps_as_light_as_the_words(open_view):
    page = open_view(make_layers())
    light = cell_colors(page, 0, 7, 0)
    page.get_by_role("button", name="Switch to dark colors").click()
    page.wait_for_timeout(100)
    assert cell_colors(page, 0, 7, 0) != light
    page.emulate_media(media="print", color_scheme="dark")
    for _ in range(50):  # painted at the browser's next leisure
        if cell_colors(page, 0, 7, 0) == light:
            break
        page.wait_for_timeout(100)
    assert cell_colors(page, 0, 7, 0) == light
    assert not page.get_by_role("button", name="Zoom in").is_visible()


def test_a_damaged_map_is_said_and_not_drawn(open_html):
    html = view_page(make_layers())
    start = html.index('"content":"', html.index('id="maps"')) + len('"content":"')
    page = open_html(html[:start] + html[start + 4 :])
    page.wait_for_selector("#view[data-ready='failed']")
    assert page.get_by_role("alert").inner_text().startswith("The maps cannot be shown: ")
