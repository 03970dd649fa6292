"""Maps of any numbers on the page: cells, shades, blanks, choosing, reading by keyboard."""

import pytest

from tests.sampling import sampled

from .documents import make_kinds_document, report_of
from .views import hatched, numbers, read_cell


def open_maps(open_page, *changes, width=1000, scheme="light"):
    """Open a page of one choice of maps: the first map of the kinds with changes, each."""
    section = make_kinds_document()["sections"][2]
    first = section["choices"][0]["maps"][0]
    section["choices"] = [{"label": "", "note": "", "maps": [first | each for each in changes]}]
    return open_page(report_of(section), width=width, color_scheme=scheme)


def test_every_cell_is_read_and_another_choice_changes_note_and_maps(open_page):
    page = open_page(make_kinds_document())
    cells = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0), (1, 0, 1), (1, 1, 1)]
    assert [read_cell(page, *cell) for cell in cells] == [
        "‘the’, ‘the’: 1",
        "‘the’, ‘cat’: no value",
        "‘cat’, ‘the’: 0.25",
        "‘first’, ‘d0’: −2",
        "‘first’, ‘d1’: 0.5",
        "‘second’, ‘d1’: no value",
    ]
    signed = numbers(page, 1)
    assert [each["text"] for each in signed] == ["−2.00", ".50", "2.00", ""]
    # Below zero is another color of the same depth.
    low, weak, high, _ = ([int(part) for part in each["ground"].split(",")] for each in signed)
    assert low[0] > low[2]  # warm
    assert high[0] < high[2]  # cool
    assert abs(sum(low) - sum(high)) < 60 < sum(weak) - sum(high)
    # Missing values are blank and not zero.
    found = numbers(page, 0)
    assert len(found) == 9
    paper = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    blank = [each for each in found if each["text"] == ""]
    assert {f"rgb({each['ground'].replace(',', ', ')})" for each in blank} == {paper}
    assert len(blank) == 3
    assert not hatched(page, 0, 0, 1)
    assert "blank: no value" in page.locator(".scale").first.inner_text()
    # By keyboard, each map is one stop of the Tab key.
    page.get_by_role("button", name="Next choice").focus()
    page.keyboard.press("Tab")
    reading = page.locator(".map-reading")
    assert reading.first.inner_text() == "‘the’, ‘the’: 1"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert reading.first.inner_text() == "‘cat’, ‘cat’: 0.75"
    page.keyboard.press("Tab")
    assert reading.nth(1).inner_text() == "‘first’, ‘d0’: −2"
    assert page.locator(".choice-note").inner_text() == "Each word looks back."
    assert page.locator("figure.map").count() == 2
    page.get_by_role("button", name="Next choice").click()
    assert page.locator(".choice-note").inner_text() == "All look everywhere."
    page.wait_for_function("document.querySelectorAll('figure.map').length === 1")
    assert read_cell(page, 0, 0, 0) == "‘the’, ‘the’: 0.3333333"
    assert page.get_by_role("button", name="Next choice").is_disabled()
    field = page.get_by_label("Show", exact=True)
    field.fill("cat")
    told = page.locator(".chooser .message")
    assert told.inner_text() == "1 choice reads so inside: the cat sat. Enter opens the first."
    field.press("Enter")
    assert page.locator("figure.map").count() == 2
    field.fill("dog")
    assert told.inner_text().startswith("“dog” is not among the 2 choices here, for example the")
    page.locator(".maps-section select").select_option(label="uniform")
    assert page.locator("figure.map").count() == 1


@pytest.mark.parametrize("scheme", sampled(["dark", "light"], 1))
def test_zero_is_gray_small_numbers_are_told_and_numbers_are_legible_at_every_shade(
    open_page, scheme
):
    signed = {
        "rows": [[0.0, -0.003, 0.003], [1.0, -1.0, 0.05]],
        "row_labels": ["out 1", "out 2"],
        "column_labels": [" a", "b", "c"],
        "low": -1.0,
        "high": 1.0,
    }
    small = {
        "rows": [[0.02, 0.004]],
        "row_labels": ["0"],
        "column_labels": ["0", "1"],
        "low": -0.02,
        "high": 0.02,
    }
    shades = {
        "rows": [[i / 12 for i in range(13)], [-i / 12 for i in range(13)]],
        "row_labels": ["plus", "minus"],
        "column_labels": [str(i) for i in range(13)],
        "low": -1.0,
        "high": 1.0,
    }
    page = open_maps(open_page, signed, small, shades, scheme=scheme)
    zeros = [cell["ground"] for cell in numbers(page) if cell["text"] == "0"]
    assert len(zeros) == 3
    (ground,) = set(zeros)
    red, green, blue = (int(part) for part in ground.split(","))
    assert red == green == blue
    look = "Look for the strongest colors: they are the largest numbers, up or down from 0."
    assert page.locator(".maps-section .look").inner_text() == look
    assert read_cell(page, 0, 0, 1) == "‘out 1’, ‘b’: −0.003"  # read in full
    assert [cell["text"] for cell in numbers(page, 1)] == [".020", ".004"]
    found = numbers(page, 2)
    assert len(found) == 26
    assert min(each["ratio"] for each in found) >= 4.5, found


def test_one_map_of_many_rows_has_wide_cells_with_numbers(open_page):
    tall = {
        "rows": [[0.5] * 12] * 24,
        "row_labels": [str(row) for row in range(24)],
        "column_labels": [str(column) for column in range(12)],
    }
    page = open_maps(open_page, tall, width=1200)
    assert len([cell for cell in numbers(page) if cell["text"]]) == 24 * 12
    told = page.locator("canvas.heatmap").evaluate("canvas => ({...canvas.dataset})")
    assert float(told["cellWidth"]) > 1.5 * float(told["cellHeight"])
    beside = open_maps(open_page, tall, tall, tall, width=1200)
    boxes = [box.bounding_box()["y"] for box in beside.locator("figure.map").all()]
    assert boxes[0] == boxes[1]  # several stay side by side
